"""Apache Iceberg's own REST catalog server (its test fixture), on loopback, over SQLite."""

from __future__ import annotations

from pathlib import Path

from calving.host import java
from calving.services.maven import Artifact, jars
from calving.services.process import LOOPBACK, Process, free_port

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
_CORE_TESTS = (Artifact("org.apache.iceberg", "iceberg-core", _ICEBERG, "tests"),)


class RestCatalog:
    """Started at once."""

    def __init__(self, folder: Path) -> None:
        """:raises ConfigError: it did not come up."""
        folder.mkdir(parents=True, exist_ok=True)
        # One request per classifier: Ivy keeps a single artifact of a module in one resolution.
        paths = (jars("rest-catalog", _ARTIFACTS), jars("iceberg-core-tests", _CORE_TESTS))
        port = free_port()
        env = {
            "CATALOG_WAREHOUSE": f"file://{folder}",
            "CATALOG_URI": f"jdbc:sqlite:{folder / 'catalog.db'}",
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_REST_PORT": str(port),
        }
        classpath = ":".join(f"{path}/*" for path in paths)
        options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Drest.port={port}"]
        command = [java(), *options, "-cp", classpath, "org.apache.iceberg.rest.RESTCatalogServer"]
        self.uri = f"http://{LOOPBACK}:{port}"
        self._process = Process(command, folder / "rest-catalog.log", env)
        self._process.wait_for_port(port, 60)

    def stop(self) -> None:
        self._process.stop()
