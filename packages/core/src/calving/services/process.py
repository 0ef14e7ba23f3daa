"""Services as child processes, which end with their owner."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from calving.class_archive import WRITING_SECONDS, ClassArchive
from calving.errors import ConfigError

LOOPBACK = "127.0.0.1"
_START_SECONDS = 300
"""A busy machine starts Java slowly; a service that ends is noticed at once."""
_PORTS = range(10_000, 32_000)
"""Below the ports that Linux, macOS and Windows give to outgoing connections."""
STOP_SECONDS = 15.0
_PR_SET_PDEATHSIG = 1


class Service(ABC):
    """A started service, which writes a log."""

    log: Path

    @property
    @abstractmethod
    def returncode(self) -> int | None:
        """The service's exit code; None while it runs."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send a signal. If the service has ended, nothing happens."""

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL to the service and its children, and wait until the service has ended."""

    @abstractmethod
    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Send SIGTERM, and later SIGKILL. Safe to call twice."""

    def wait_for_port(self, port: int) -> None:
        """Wait until something listens on ``port``.

        :raises ConfigError: the service ended, or did not listen within 300 seconds; the text ends with its log.
        """
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and self.returncode is None:
            with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
                return
            time.sleep(0.1)
        how = "did not listen in time" if self.returncode is None else f"ended with code {self.returncode}"
        self.stop()
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise ConfigError(f"the service on port {port} {how}; the end of its log {self.log}:\n{tail}")


class Server:
    """A service whose data is kept in a folder. It may be killed and started again."""

    process: Service | None = None
    archive: ClassArchive | None = None
    """That of a JVM, if it has one."""

    def kill(self) -> None:
        """Kill the service, as if the machine lost power; but data passed to the operating system stays."""
        if self.process is not None:
            self.process.kill()
        self._end_archive(None)

    def stop(self) -> None:
        if self.process is not None:
            writes = self.archive is not None and self.archive.will_be_written
            self.process.stop(WRITING_SECONDS if writes else STOP_SECONDS)
            self._end_archive(self.process.returncode)

    def _end_archive(self, code: int | None) -> None:
        if self.archive is not None:
            self.archive.end(code)


class Process(Service):
    """A service as a process, started at once. On Linux the kernel kills the process if its parent dies first."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                process_group=0,  # no session: Linux schedules by session, and starves one of many beside a busy one
                preexec_fn=die_with_parent,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._child.send_signal(number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()

    def wait(self, seconds: float) -> int:
        """Wait for the exit code.

        :raises subprocess.TimeoutExpired: the process is still running.
        """
        return self._child.wait(seconds)

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        if self.returncode is None:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(seconds)
        self.kill()


def free_port() -> int:
    """A loopback port that is free now. A service that is killed finds its port free again, because no connection takes
    a port of this range.
    """
    choose = random.SystemRandom().choice  # processes with one seed would choose the same ports
    while True:
        port = choose(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            return port


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make SIGTERM unwind the stack like Ctrl-C, so that context managers stop the services that they started."""

    def on_term(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, on_term)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def die_with_parent() -> None:
    """On Linux the kernel kills this process when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
