"""A service in a container that looks like a local process: the same command, folder and ports on loopback.

The container shares the host's network, and the service's folder under the user's own id. So a test can change the
files of a stopped service in the same way as those of a process. This needs a daemon on this Linux machine. Any other
daemon (Docker Desktop, or a remote one) is not used. With ``CALVING_SERVICES`` = ``local`` no daemon is used.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calving.errors import ConfigError
from calving.services.process import STOP_SECONDS, Process, Service


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
