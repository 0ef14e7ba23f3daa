"""Prints the table. With another checkout of the repository as argument, the counts of its sources alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.house.static import ROOT, Sources

BACKENDS = ("kafka", "redis", "zookeeper")


def _counted(sources: Sources) -> Iterator[tuple[str, object]]:
    yield "lines of Python in packages", sources.lines()
    yield "modules in packages", sources.modules()
    yield "modules of the core", sources.modules("packages/core/")
    yield (
        "lines of the backends " + ", ".join(BACKENDS),
        ", ".join(str(sources.lines(f"packages/backend-{name}/")) for name in BACKENDS),
    )
    yield "public class names that stand twice", len(sources.repeated_classes)
    yield "calls with 7 or more positional arguments", len(sources.long_calls)
    for name in ("found", "result", "value", "data", "item"):
        yield f"functions with a local `{name}`", sources.locals_named(name)
    yield "functions over 12 branches", len(sources.branching)
    yield "depth of imports", sources.import_depth


def _walked() -> Iterator[tuple[str, object]]:
    """Each walk in a process of its own: a profile starts with nothing but what the walk before it has warmed."""
    for kind in ("json", "upsert"):
        command = [sys.executable, "-m", "tools.house.rooms", kind]
        walk: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        decoder = "Rust" if walk["native"] else "without Rust"
        for part, name in (("block", f"record to file, {decoder}"), ("commit", "settle")):
            counts = walk[part]
            yield f"{kind}, {name}: modules, entries, calls", "{modules}, {entries}, {calls}".format(**counts)


def main() -> None:
    other = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    rows = list(_counted(Sources(other or ROOT)))
    for name, figure in [*rows, *(() if other else _walked())]:
        print(f"{name:<66} {figure}", flush=True)


if __name__ == "__main__":
    main()
