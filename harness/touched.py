"""``make test-touched``: the tests of what has changed, by one rule for each place of a file.

The base is ``main``, or the commit that is given: what differs from it, committed or not, has changed. Tests that start
services are left out, but those of a backend: it has hardly any others.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
_CORE = "packages/core/src/calving/"
_STRUCTURE = ("tests/unit/test_layers.py", "tests/unit/test_sizes.py", "tests/unit/test_house.py")
"""What holds for every module."""
_TOOLS = {
    "bench": ("tests/unit/test_layout.py",),
    "campaign": ("tests/campaign", "tests/unit/test_layout.py"),
    "changes": ("tests/unit/test_changes.py",),
    "deploy": ("tests/deploy",),
    "docs": ("tests/unit/test_docs.py",),
    "harness": ("tests/harness", "tests/unit/test_layout.py"),
    "stubs": (),
    "tools": ("tests/unit/test_house.py", "tests/unit/test_layout.py"),
}
_LEFT_OUT = ("tests/iceberg/test_histories.py",)
"""With them the largest package would take more than three minutes on two cores. ``make histories`` has the same."""
_BACKENDS = {"backend-kafka": "kafka", "backend-redis": "redis", "backend-zookeeper": "zookeeper"}


def touched_by(path: str) -> tuple[str, ...]:
    """The files and folders of tests for one changed file. Paths are those below the repository."""
    folder, _, rest = path.partition("/")
    if path.startswith(_CORE):
        package, _, module = path.removeprefix(_CORE).partition("/")
        if not module:
            return ("tests/unit",)
        return (*_STRUCTURE, "tests/backend" if package == "testing" else f"tests/{package}")
    if folder == "packages":
        name = rest.partition("/")[0]
        if name == "spark":
            return ("tests/spark",)
        return (f"tests/{_BACKENDS[name]}",) if name in _BACKENDS else ("tests/converters", "tests/records")
    if folder == "tests":
        return (path if _is_test(path) else str(Path(path).parent) if rest.count("/") else "tests/unit",)
    if folder in _TOOLS:
        return _TOOLS[folder]
    if path == "CHANGELOG.md":
        return _TOOLS["changes"]
    return _TOOLS["docs"] if path.endswith(".md") else ("tests/unit",)


def _is_test(path: str) -> bool:
    return Path(path).name.startswith("test_") and path.endswith(".py")


def chosen(paths: Iterable[str], root: Path = ROOT) -> list[str]:
    """The tests of all changed files, each once, without files and folders that are no longer there."""
    every = {test for path in paths for test in touched_by(path)}
    there = {test for test in every if (root / test).exists()}
    return sorted(test for test in there if not any(str(above) in there for above in Path(test).parents))


def left_out(paths: Iterable[str]) -> list[str]:
    """Long tests that are run only if they have changed themselves."""
    changed = set(paths)
    return [test for test in _LEFT_OUT if test not in changed]


def needs_services(test: str) -> bool:
    """Whether these are the tests of a backend, which start its store."""
    return any(Path(test).is_relative_to(f"tests/{name}") for name in _BACKENDS.values())


def _changed(base: str) -> list[str]:
    start = _git("merge-base", base, "HEAD").strip()
    return sorted({*_git("diff", "--name-only", start).splitlines(), *_git(*_UNTRACKED).splitlines()})


_UNTRACKED = ("ls-files", "--others", "--exclude-standard")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else "main"
    changed = _changed(base)
    tests = chosen(changed)
    if not tests:
        print(f"nothing that has tests differs from {base}")
    code = 0
    for part, mark in (
        ([test for test in tests if not needs_services(test)], ["-m", "not services and not long"]),
        ([test for test in tests if needs_services(test)], ["-m", "not long"]),
    ):
        if part:
            print("tests of what differs from", base, "are:", *part, flush=True)
            options = ["-q", "-n", "2", "-k", "not broken_rule and not contracts_in_the_manual", *mark]
            options += [f"--ignore={test}" for test in left_out(changed)]
            code |= subprocess.run([sys.executable, "-m", "pytest", *options, *part], cwd=ROOT, check=False).returncode
    sys.exit(code)


if __name__ == "__main__":
    main()
