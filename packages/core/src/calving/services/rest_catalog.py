"""Apache Iceberg's own REST catalog server (its test fixture), on loopback, over SQLite."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from calving.host import java
from calving.services.maven import Artifact, jars
from calving.services.process import LOOPBACK, Process, Server, free_port

_ICEBERG = "1.11.0"
# Not 1.12.0: its test jars are not published. jetty-compression starts at 12.1.1.
_ARTIFACTS = (
    Artifact("org.apache.iceberg", "iceberg-core", _ICEBERG),
    Artifact("org.apache.iceberg", "iceberg-open-api", _ICEBERG, "test-fixtures"),
    Artifact("org.apache.hadoop", "hadoop-client-api", "3.4.1"),
    Artifact("org.apache.hadoop", "hadoop-client-runtime", "3.4.1"),
    Artifact("org.eclipse.jetty.ee10", "jetty-ee10-servlet", "12.1.5"),
    Artifact("org.eclipse.jetty.compression", "jetty-compression-server", "12.1.5"),
    Artifact("org.eclipse.jetty.compression", "jetty-compression-gzip", "12.1.5"),
    Artifact("org.xerial", "sqlite-jdbc", "3.50.3.0"),
    Artifact("org.slf4j", "slf4j-simple", "2.0.16"),
    Artifact("org.assertj", "assertj-core", "3.27.3"),
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.11.4"),
)
_S3 = (
    Artifact("org.apache.iceberg", "iceberg-aws", _ICEBERG, transitive=False),
    Artifact("org.apache.iceberg", "iceberg-aws-bundle", _ICEBERG, transitive=False),
    Artifact("dev.failsafe", "failsafe", "3.3.2"),
)
_CORE_TESTS = (Artifact("org.apache.iceberg", "iceberg-core", _ICEBERG, "tests"),)


class RestCatalog(Server):
    """A REST catalog server, started at once."""

    def __init__(
        self,
        folder: Path,
        warehouse: str | None = None,
        s3: Mapping[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        """``warehouse``: by default the folder. ``s3``: pyiceberg's ``s3.*`` properties, with which the server reaches
        a warehouse in S3. ``port``: by default a free one.

        :raises ConfigError: the server did not start.
        """
        folder.mkdir(parents=True, exist_ok=True)
        # One request per classifier: Ivy keeps a single artifact of a module in one resolution.
        paths = [jars("rest-catalog", _ARTIFACTS), jars("iceberg-core-tests", _CORE_TESTS)]
        paths += [jars("iceberg-aws", _S3)] if s3 is not None else []
        self._port = port or free_port()
        self._log, self.database = folder / "rest-catalog.log", folder / "catalog.db"
        self._env = {
            "CATALOG_WAREHOUSE": warehouse or f"file://{folder}",
            "CATALOG_URI": f"jdbc:sqlite:{self.database}",
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_REST_PORT": str(self._port),
            **_file_io(s3),
        }
        classpath = ":".join(f"{path}/*" for path in paths)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Drest.port={self._port}"]
        self._command = [java(), *options, "-cp", classpath, "org.apache.iceberg.rest.RESTCatalogServer"]
        self.uri = f"http://{LOOPBACK}:{self._port}"
        self.start()

    def start(self) -> None:
        """Start the server with the same port and database as before."""
        self.process = Process(self._command, self._log, self._env)
        self.process.wait_for_port(self._port)


def _file_io(s3: Mapping[str, str] | None) -> dict[str, str]:
    if s3 is None:
        return {"CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO"}
    return {
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": s3["s3.endpoint"],
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_S3_ACCESS__KEY__ID": s3["s3.access-key-id"],
        "CATALOG_S3_SECRET__ACCESS__KEY": s3["s3.secret-access-key"],
        "CATALOG_CLIENT_REGION": s3["s3.region"],
    }
