"""Counts that need the sources alone."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
POSITIONAL = 7
"""From this number of positional arguments on, a call must name them."""
BRANCHES = 12
_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.BoolOp,
    ast.comprehension,
    ast.match_case,
    ast.With,
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Sources:
    """The modules of all packages below one root of the repository."""

    def __init__(self, root: Path = ROOT) -> None:
        paths = sorted(root.glob("packages/*/src/**/*.py"))
        self._texts = {path.relative_to(root).as_posix(): path.read_text() for path in paths}
        self._trees = {path: ast.parse(text) for path, text in self._texts.items()}

    def lines(self, below: str = "packages/") -> int:
        return sum(len(text.splitlines()) for path, text in self._texts.items() if path.startswith(below))

    def modules(self, below: str = "packages/") -> int:
        return sum(path.startswith(below) for path in self._texts)

    @cached_property
    def repeated_classes(self) -> Mapping[str, Sequence[str]]:
        """Public names of classes that several modules define, with these modules."""
        where = defaultdict(list)
        for path, tree in self._trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    where[node.name].append(path)
        return {name: paths for name, paths in sorted(where.items()) if len(paths) > 1}

    @cached_property
    def long_calls(self) -> Sequence[str]:
        """Places of calls with too many positional arguments."""
        return [
            f"{path}:{node.lineno}"
            for path, node in self._nodes()
            if isinstance(node, ast.Call) and sum(not isinstance(each, ast.Starred) for each in node.args) >= POSITIONAL
        ]

    def locals_named(self, name: str) -> int:
        """Functions that assign to a local of this name, in themselves or in a function inside them."""
        return sum(
            isinstance(node, _Function)
            and any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in ast.walk(node))
            for _, node in self._nodes()
        )

    @cached_property
    def branching(self) -> Sequence[str]:
        """Functions with too many branches."""
        return [
            f"{path}: {node.name}"
            for path, node in self._nodes()
            if isinstance(node, _Function) and sum(isinstance(n, _BRANCHES) for n in ast.walk(node)) > BRANCHES
        ]

    @cached_property
    def import_depth(self) -> int:
        """Modules on the longest path of imports from one module to another."""
        names = {_module(path): tree for path, tree in self._trees.items()}
        imports = {name: _imports(tree) & names.keys() - {name} for name, tree in names.items()}
        depths: dict[str, int] = {}

        def depth(name: str) -> int:
            if name not in depths:
                depths[name] = 0  # a circle ends here
                depths[name] = 1 + max(map(depth, imports[name]), default=0)
            return depths[name]

        return max(map(depth, sorted(names)))

    def _nodes(self) -> Iterator[tuple[str, ast.AST]]:
        return ((path, node) for path, tree in self._trees.items() for node in ast.walk(tree))


def _module(path: str) -> str:
    parts = Path(path).with_suffix("").parts
    return ".".join(parts[parts.index("src") + 1 :]).removesuffix(".__init__")


def _imports(tree: ast.Module) -> set[str]:
    """The modules that one imports. A name that is imported from a package may be a module, too."""
    return {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    }
