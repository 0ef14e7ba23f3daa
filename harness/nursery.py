"""Worker processes that are forked from one that has imported everything already. Such a start takes a tenth of the CPU time.

``python -m harness.nursery FD`` is that process. It forks a child for each request that it reads from the socket FD, and ends with
the process at the other end; its children end with it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from calving.lean import without_pandas
from calving.services.process import Process, die_with_parent
from harness.former import path_of

_IMPORTED = ("harness.worker", "calving.tasks.task", "fastavro", "pyiceberg.catalog.sql")
"""What workers import sooner or later."""


class Forked(Process):
    """``python -m module arguments`` as a process, forked from a nursery of this process and started at once."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str], former: Path | None = None
    ) -> None:
        """``former``: a tree of another version, whose packages and harness are imported instead of these."""
        self.log = log
        request = {"module": module, "arguments": list(arguments), "env": {**os.environ, **env}, "cwd": str(Path.cwd())}
        status, theirs = os.pipe()
        with log.open("ab") as out:
            content = json.dumps(request).encode()
            nursery = _nursery(former)
            socket.send_fds(nursery, [len(content).to_bytes(4, "big")], [out.fileno(), theirs])
            nursery.sendall(content)
        os.close(theirs)
        self._child = cast(subprocess.Popen[bytes], _Child(status))


class _Child:
    """What a ``Process`` uses of a ``Popen``, of a process whose parent tells how it ended."""

    def __init__(self, status: int) -> None:
        self._status = status
        self.pid = int.from_bytes(os.read(status, 4), "big")
        assert self.pid, "the nursery has ended"
        self._code: int | None = None

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if (code := self._ended(timeout)) is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def _ended(self, seconds: float | None) -> int | None:
        if self._code is None and select.select([self._status], [], [], seconds)[0]:
            told = os.read(self._status, 4)
            # Without an answer the nursery has ended, and the kernel has killed its children.
            self._code = int.from_bytes(told, "big", signed=True) if told else -signal.SIGKILL
            os.close(self._status)
        return self._code


@functools.cache
def _nursery(former: Path | None) -> socket.socket:
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-m", "harness.nursery", str(theirs.fileno())]
        env = {**os.environ, "COLUMNS": "200", **(path_of(former) if former is not None else {})}
        # Consoles that modules make have this width.
        tree = former or Path(__file__).parents[1]
        subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=tree, stdin=subprocess.DEVNULL, env=env)
    return ours


def main() -> None:
    without_pandas()  # as the command does, before pyiceberg is imported
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # otherwise each child would copy all pages in its first collection
    requests = socket.socket(fileno=int(sys.argv[1]))
    children: dict[int, int] = {}
    waker, woken = socket.socketpair()
    for each in (waker, woken):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([requests, waker], [], [])
        if waker in ready:
            waker.recv(4096)
            _tell(children)
        if requests in ready:
            header, fds, _, _ = socket.recv_fds(requests, 4, 2)
            if not header:
                return
            request = json.loads(_exactly(requests, int.from_bytes(header, "big")))
            log, status = fds
            if (child := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (requests, waker, woken):
                    each.close()
                for other in (*children.values(), status):
                    os.close(other)
                _become(request, log)
                return
            os.close(log)
            with contextlib.suppress(OSError):  # the child does it, too: whoever knows it may kill its group at once
                os.setpgid(child, child)
            os.write(status, child.to_bytes(4, "big"))
            children[child] = status


def _exactly(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += source.recv(count - len(found))
    return found


def _tell(children: dict[int, int]) -> None:
    """Tell of children that have ended, with their exit codes."""
    for child in list(children):
        ended, how = os.waitpid(child, os.WNOHANG)
        if ended:
            status = children.pop(child)
            with contextlib.suppress(BrokenPipeError):
                os.write(status, os.waitstatus_to_exitcode(how).to_bytes(4, "big", signed=True))
            os.close(status)


def _become(request: dict[str, object], log: int) -> None:
    os.setpgid(0, 0)  # not a session, as in calving.services.process
    die_with_parent()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(cast(dict[str, str], request["env"]))
    os.chdir(cast(str, request["cwd"]))
    time.tzset()
    sys.argv = [sys.argv[0], *cast(list[str], request["arguments"])]
    sys.modules.pop(cast(str, request["module"]), None)
    runpy.run_module(cast(str, request["module"]), run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
