"""CPU seconds and memory of a whole process tree, by looking at /proc (Linux)."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.processes import stat

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_LOOK_SECONDS = 0.05
_ASK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """``peak_bytes``: largest sum of resident sets, shared pages counted once per process."""

    returncode: int
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int


def run(command: Sequence[str], log: Path, env: Mapping[str, str], done: Callable[[], bool] | None = None) -> Usage:
    """Run ``command`` in a session of its own and measure everything that it starts, until it ends. With ``done`` it is
    told to, once that is so.
    """
    started = time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **env}, start_new_session=True)
        meter = _Meter(child.pid)
        while done is not None and child.poll() is None:
            if done():
                child.terminate()
                break
            time.sleep(_ASK_SECONDS)
        code = child.wait()
        wall = time.monotonic() - started
        meter.stop()
    return Usage(code, wall, sum(meter.cpu.values()), meter.peak)


class _Meter(threading.Thread):
    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self._session = session
        self._end = threading.Event()
        self.cpu: dict[int, float] = {}
        self.peak = 0
        self.start()

    def run(self) -> None:
        while not self._end.wait(_LOOK_SECONDS):
            resident = 0
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit():
                    resident += self._look(int(entry.name))
            self.peak = max(self.peak, resident)

    def stop(self) -> None:
        self._end.set()
        self.join()

    def _look(self, pid: int) -> int:
        fields = stat(pid)
        if not fields or int(fields[3]) != self._session:
            return 0
        # Reaped children would be counted twice: only what the process itself has used.
        self.cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        return int(fields[21]) * _PAGE
