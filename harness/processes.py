"""The processes of this machine, by descent (Linux)."""

from __future__ import annotations

from pathlib import Path

PARENT = 1
"""The place of the parent's id in what ``stat`` gives."""


def stat(pid: int) -> list[str]:
    """What /proc says of a process behind its name; nothing if it has ended."""
    return _read(pid, "stat").rpartition(")")[2].split()


def arguments(pid: int) -> list[str]:
    """Those it was started with, its program first; nothing if it has ended."""
    return _read(pid, "cmdline").split("\0")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def descendants(root: int) -> dict[int, list[str]]:
    """A process and all that descend from it, by their ids, with the ``stat`` of each."""
    found = {int(entry.name): stat(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    parents = {pid: int(fields[PARENT]) for pid, fields in found.items() if fields}

    def descends(pid: int) -> bool:
        return pid == root or (pid in parents and descends(parents[pid]))

    return {pid: found[pid] for pid in parents if descends(pid)}
