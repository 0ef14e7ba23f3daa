"""The decision record names each part of pyiceberg that is not public and that calving uses, and where."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORE = ROOT / "packages/core/src/calving"
RECORD = ROOT / "docs/adr/0007-a-pinned-pyiceberg.md"
_ROW = re.compile(r"^\| `(?P<module>[\w.]+)` \| (?P<names>[^|]+) \|", re.MULTILINE)


def _own(tree: ast.AST) -> Iterator[str]:
    """The names that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Attribute(ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                yield node.attr
            case ast.Name(ctx=ast.Store()):
                yield node.id


def _private(tree: ast.AST) -> Iterator[str]:
    """The private names that a module takes from others."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute() if re.match("_[a-z]", node.attr):
                yield node.attr
            case ast.ImportFrom(module=str(module)) if module.startswith("pyiceberg"):
                yield from (each.name for each in node.names if each.name.startswith("_"))


def test_the_decision_record_names_what_calving_uses_of_pyicebergs_inside() -> None:
    modules = {path: ast.parse(path.read_text()) for path in CORE.rglob("*.py")}
    own = {name for tree in modules.values() for name in _own(tree)}
    inside = {name for names in _of_pyiceberg().values() for name in names}
    used = defaultdict(set)
    for path, tree in modules.items():
        name = ".".join(path.relative_to(CORE).with_suffix("").parts)
        for each in _private(tree):
            if each in inside and (each not in own or each.startswith("_do_")):
                used[name].add(each)
    assert dict(used) == _of_pyiceberg()


def test_no_module_takes_a_private_name_of_pyiceberg_that_the_record_lacks() -> None:
    names = {name for names in _of_pyiceberg().values() for name in names}
    of_others = {"_replace", "_asdict", "_exit", "_current_frames", "_strip_protocol", "_pandas_api"}
    modules = {path: ast.parse(path.read_text()) for path in CORE.rglob("*.py")}
    own = {name for tree in modules.values() for name in _own(tree)}
    rooms = ("catalogs", "iceberg", "maintenance", "mutations", "records", "runtime", "writing", "tasks")
    found = {
        f"{path.relative_to(CORE)}: {name}"
        for path, tree in modules.items()
        if path.relative_to(CORE).parts[0] in rooms
        for name in _private(tree)
        if name not in own | names | of_others
    }
    assert not found


def _of_pyiceberg() -> dict[str, set[str]]:
    """The private names by module, as the record has them."""
    return {row["module"]: {*re.findall(r"`(\w+)`", row["names"])} for row in _ROW.finditer(RECORD.read_text())}
