"""The crates that the wheel of calving-native contains: ``python -m tests.packaging.crates`` writes their list."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NATIVE = Path(__file__).parents[2] / "packages" / "native"
LIST = NATIVE / "THIRD-PARTY.md"
ALLOWED = {"Apache-2.0", "MIT", "BSD-3-Clause", "Zlib", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception", "Unlicense"}
_HEAD = """# Crates in the wheel of calving-native

| crate | version | licence |
| --- | --- | --- |
"""
_TARGET = "x86_64-unknown-linux-gnu"


def cargo() -> str | None:
    """The program, if it is here."""
    return shutil.which("cargo") or shutil.which("cargo", path=Path.home() / ".cargo" / "bin")


def listing() -> str:
    """The list, of what cargo says."""
    return _HEAD + "".join(f"| {name} | {version} | {licence} |\n" for name, version, licence in crates())


def crates() -> list[tuple[str, str, str]]:
    """Name, version and licence of each crate that is linked."""
    command = [cargo() or "cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", _TARGET]
    done = subprocess.run(command, cwd=NATIVE, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    packages = {package["id"]: package for package in told["packages"]}
    nodes = {node["id"]: node for node in told["resolve"]["nodes"]}
    found = sorted(set(_linked(told["resolve"]["root"], nodes)) - {told["resolve"]["root"]})
    return sorted((packages[i]["name"], packages[i]["version"], packages[i]["license"]) for i in found)


def _linked(package: str, nodes: dict[str, Any]) -> Iterator[str]:
    pending, seen = [package], {package}
    while pending:
        here = pending.pop()
        yield here
        for dependency in nodes[here]["deps"]:
            kinds = {kind["kind"] for kind in dependency["dep_kinds"]}
            if None in kinds and dependency["pkg"] not in seen:  # others only build it
                seen.add(dependency["pkg"])
                pending.append(dependency["pkg"])


if __name__ == "__main__":
    LIST.write_text(listing())
