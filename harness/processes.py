"""The processes of this machine, by descent (Linux)."""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
"""Of the clock in ``stat``, a second."""
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


def tree_cpu(root: int) -> float:
    """CPU seconds so far of a process, of all that descend from it, and of those of their children that have ended."""
    return sum(sum(map(int, fields[11:15])) for fields in descendants(root).values()) / TICKS


class Waiting(threading.Thread):
    """Watches how many processes of this machine wait for a CPU, until ``stop``."""

    def __init__(self, every: float = 0.5) -> None:
        super().__init__(daemon=True)
        self._every, self._end = every, threading.Event()
        self._samples: list[tuple[float, float]] = []

    def run(self) -> None:
        while not self._end.wait(self._every):
            running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0]) - 1  # without this one
            self._samples.append((time.time(), running / (os.cpu_count() or 1)))

    def stop(self) -> None:
        self._end.set()

    def slowdown(self, begin: float, end: float) -> float:
        """How many times as long as on an idle machine work took then: the processes for each CPU, and at least 1."""
        return max(1.0, statistics.fmean([share for at, share in self._samples if begin <= at <= end] or [1.0]))
