"""Servers that no wheel has: MariaDB of Debian's package ``mariadb-server``, and Azurite from npm, on loopback."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from calving.services.process import LOOPBACK, Process, free_port

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account and the key that every Azurite has; they are no secrets."""
_AZURITE = "3.37.0"
_CACHE = Path(__file__).parents[2] / ".cache" / "npm"


class MariaDb:
    """MariaDB with a database `lake`. It speaks MySQL's protocol. Its folder is a short one, for the socket."""

    def __init__(self, *options: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="calving-mariadb-"))
        data, port = self._folder / "data", free_port()
        setup = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--user=root", "--skip-test-db"]
        subprocess.run(setup, check=True, capture_output=True)
        (self._folder / "users.sql").write_text(
            "CREATE DATABASE lake;\n"
            f"CREATE USER 'calving'@'{LOOPBACK}' IDENTIFIED BY 'secret';\n"
            f"GRANT ALL ON lake.* TO 'calving'@'{LOOPBACK}';\n"
        )
        program = shutil.which("mariadbd", path="/usr/sbin:/usr/bin")
        assert program is not None, "apt-get install mariadb-server"
        command = [program, "--no-defaults", f"--datadir={data}", f"--port={port}", f"--bind-address={LOOPBACK}"]
        command += ["--user=root", f"--socket={self._folder / 'socket'}", f"--init-file={self._folder / 'users.sql'}"]
        command += ["--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", *options]
        self._process = Process(command, self._folder / "log")
        self._process.wait_for_port(port)
        self.jdbc = f"jdbc:mysql://{LOOPBACK}:{port}/lake?user=calving&password=secret"

    def stop(self) -> None:
        self._process.stop()
        shutil.rmtree(self._folder)


class Azurite:
    """Azure Blob Storage as Azurite, with a container `lake`."""

    def __init__(self, folder: Path) -> None:
        from azure.storage.blob import BlobServiceClient

        folder.mkdir(parents=True)
        place = _CACHE / f"azurite-{_AZURITE}"
        program = place / "node_modules" / ".bin" / "azurite-blob"
        if not program.exists():
            install = ["npm", "install", "--silent", "--prefix", str(place), f"azurite@{_AZURITE}"]
            subprocess.run(install, check=True, capture_output=True)
        port = free_port()
        command = [str(program), "--location", str(folder), "--blobHost", LOOPBACK, "--blobPort", str(port)]
        self._process = Process([*command, "--skipApiVersionCheck", "--silent"], folder / "log")
        self._process.wait_for_port(port)
        self.connection = (
            f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
            f"BlobEndpoint=http://{LOOPBACK}:{port}/{ACCOUNT};"
        )
        BlobServiceClient.from_connection_string(self.connection).create_container("lake")

    def stop(self) -> None:
        self._process.stop()
