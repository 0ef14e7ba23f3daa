"""Services as child processes, which end with their owner."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calving.errors import ConfigError
from calving.host import WRITING_SECONDS, ClassArchive

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
    """A loopback port that is free now, and that no other call of this user gets while this process lives.

    So a service that starts slowly, or is killed, finds its port free: no connection takes a port of this range either.
    """
    choose = random.SystemRandom().choice  # processes with one seed would choose the same ports
    while True:
        port = choose(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, port))
            if _reserve(port):
                return port


_reserved: set[int] = set()
"""Ports that this process has given out: locks of one process do not exclude each other."""


def _reserve(port: int) -> bool:
    """Lock the byte at ``port`` for this process. False: another process, or an earlier call, has it."""
    if port in _reserved:
        return False
    with contextlib.suppress(OSError):
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        _reserved.add(port)
        return True
    return False


@functools.cache
def _locks() -> int:
    """A file whose bytes stand for ports. It is never closed: closing any descriptor of it would drop all locks."""
    path = Path(tempfile.gettempdir()) / f"calving-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)


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


def docker_answers() -> bool:
    """Whether services start in containers: the client library is installed, and a daemon of this machine answers."""
    return _daemon() is not None


@functools.cache
def _daemon() -> Mapping[str, Any] | None:
    """The daemon's information; None if services are processes."""
    if sys.platform != "linux" or os.environ.get("CALVING_SERVICES") == "local":
        return None
    try:
        import docker
        import testcontainers.core.container  # noqa: F401
    except ImportError:
        return None
    with contextlib.suppress(docker.errors.DockerException):
        client = docker.from_env(timeout=5)
        try:
            info: dict[str, Any] = client.info()
            local = str(client.api.base_url).startswith(("http+docker://", "http+unix://"))
            return info if local and "Docker Desktop" not in info["OperatingSystem"] else None
        finally:
            client.close()
    return None


def launch(command: Sequence[str], log: Path, image: str) -> Service:
    """Start ``command`` in a container of ``image`` if services start in containers, otherwise as a process.

    :raises ConfigError: the container cannot be made, for example because there is no image.
    """
    return Container(command, log, image) if docker_answers() else Process(command, log)


class Container(Service):
    """A service in a container, started at once. It shares the folder of the log. Ryuk removes the container if its
    owner dies first.
    """

    def __init__(self, command: Sequence[str], log: Path, image: str) -> None:
        import docker
        from testcontainers.core.container import DockerContainer

        self.log = log
        folder = str(log.parent.absolute())
        user = {} if _rootless() else {"user": f"{os.getuid()}:{os.getgid()}"}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made = DockerContainer(image).with_kwargs(
                entrypoint=[command[0]], network_mode="host", working_dir=folder, **user
            )
            made.with_command(list(command[1:])).with_volume_mapping(folder, folder, "rw,z")
            try:
                made.start()
            except (docker.errors.DockerException, OSError) as error:
                raise ConfigError(
                    f"image {image} could not be started: {error}; with CALVING_SERVICES=local services are processes"
                ) from error
        self._made: Any = made
        self._inner: Any = made.get_wrapped_container()

    @property
    def returncode(self) -> int | None:
        import docker

        try:
            self._inner.reload()
        except docker.errors.NotFound:
            return -signal.SIGKILL
        state = self._inner.attrs["State"]
        return None if state["Status"] in ("created", "running", "paused", "restarting") else int(state["ExitCode"])

    def signal(self, number: signal.Signals) -> None:
        import docker

        with contextlib.suppress(docker.errors.APIError):
            self._inner.kill(number.name)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self._remove()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        import docker

        with contextlib.suppress(docker.errors.APIError):
            self._inner.stop(timeout=int(seconds))
        self._remove()

    def _remove(self) -> None:
        import docker

        with contextlib.suppress(docker.errors.APIError):
            with self.log.open("ab") as log:
                log.write(self._inner.logs())
            self._made.stop()


def _rootless() -> bool:
    """Whether root in a container is the user outside."""
    return any("rootless" in option for option in (_daemon() or {}).get("SecurityOptions") or ())
