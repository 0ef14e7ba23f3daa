"""Worker processes that are forked from one that has imported everything already. Such a start takes a tenth of the CPU time.

``python -m harness.nursery FD`` is that process. It forks a child for each request that it reads from the socket FD, and ends with
the process at the other end; its children end with it. They may ask it, too, for the one process that each start of a sink needs.
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
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from calving.lean import without_pandas
from calving.services.process import Process, die_with_parent
from calving.source import members
from harness.former import path_of

_IMPORTED = ("harness.worker", "calving.tasks.task", "fastavro", "pyiceberg.catalog.sql")
"""What workers import sooner or later."""
_LONGEST = 1 << 17
"""Bytes of a packet."""
_ANSWER_SECONDS = 60.0
_SENDING = threading.Lock()


class Forked(Process):
    """``python -m module arguments`` as a process, forked from a nursery of this process and started at once."""

    def __init__(
        self, module: str, arguments: Sequence[str], log: Path, env: Mapping[str, str], former: Path | None = None
    ) -> None:
        """``former``: a tree of another version, whose packages and harness are imported instead of these."""
        self.log = log
        with log.open("ab") as out:
            child = _requested(partial(_sent, former), module, arguments, env, out.fileno())
        self._child = cast(subprocess.Popen[bytes], child)


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
        if self._code is None and self._has_ended(seconds):
            told = os.read(self._status, 4)
            # Without an answer the nursery has ended, and the kernel has killed its children.
            self._code = int.from_bytes(told, "big", signed=True) if told else -signal.SIGKILL
            os.close(self._status)
        return self._code

    def _has_ended(self, seconds: float | None) -> bool:
        looking = select.poll()  # tests with many clients have more files open than `select.select` takes
        looking.register(self._status, select.POLLIN)
        return bool(looking.poll(None if seconds is None else seconds * 1000))


def answered(question: str, send: Callable[[bytes, Sequence[int]], None] | None = None) -> str:
    """What ``calving.source.members`` answers, by a process that is forked. For ``_answered`` of that module: a process
    that is started takes 0.17 s of CPU, at each start of a sink, and one that is forked 0.02 s.
    """
    answers, theirs = os.pipe()
    with os.fdopen(answers) as said:
        try:
            child = _requested(send or partial(_sent, None), "harness.asking", [question], {}, theirs)
        finally:
            os.close(theirs)
        try:
            code = child.wait(_ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            raise
        if code:
            raise subprocess.CalledProcessError(code, "harness.asking")
        return said.read()


def _requested(
    send: Callable[[bytes, Sequence[int]], None],
    module: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    out: int,
) -> _Child:
    request = {"module": module, "arguments": list(arguments), "env": {**os.environ, **env}, "cwd": str(Path.cwd())}
    status, theirs = os.pipe()
    send(json.dumps(request).encode(), [out, theirs])
    os.close(theirs)
    return _Child(status)


def _sent(former: Path | None, content: bytes, fds: Sequence[int]) -> None:
    with _SENDING:
        nursery = _nursery(former)
        socket.send_fds(nursery, [len(content).to_bytes(4, "big")], fds)
        nursery.sendall(content)


def _sent_by_a_child(siblings: socket.socket, content: bytes, fds: Sequence[int]) -> None:
    socket.send_fds(siblings, [content], fds)


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
    # The lowest number that is free: `select.select` takes none above 1024, and tests may have more files open.
    requests = socket.socket(fileno=os.dup(int(sys.argv[1])))
    os.close(int(sys.argv[1]))
    # Several children may send at once, so each of their requests is one packet.
    siblings, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    children: dict[int, int] = {}
    waker, woken = socket.socketpair()
    for each in (waker, woken):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([requests, siblings, waker], [], [])
        if waker in ready:
            waker.recv(4096)
            _tell(children)
        for source in ready:
            if source is waker:
                continue
            if (received := _received(source, is_packet=source is siblings)) is None:
                return
            request, log, status = received
            if (child := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (requests, siblings, waker, woken):
                    each.close()
                for other in (*children.values(), status):
                    os.close(other)
                members._answered = partial(answered, send=partial(_sent_by_a_child, theirs))
                _become(request, log)
                return
            os.close(log)
            with contextlib.suppress(OSError):  # the child does it, too: whoever knows it may kill its group at once
                os.setpgid(child, child)
            with contextlib.suppress(BrokenPipeError):  # a worker that asks may have been killed
                os.write(status, child.to_bytes(4, "big"))
            children[child] = status


def _received(source: socket.socket, *, is_packet: bool) -> tuple[dict[str, object], int, int] | None:
    """A request, and where its output and its end go; None once nobody is there to ask."""
    first, fds, _, _ = socket.recv_fds(source, _LONGEST if is_packet else 4, 2)
    if not first:
        return None
    log, status = fds
    return json.loads(first if is_packet else _exactly(source, int.from_bytes(first, "big"))), log, status


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
