"""The sink on MariaDB, which speaks MySQL's protocol, and on Azure's Azurite: `tox run -e programs`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from harness.topic import Topic
from tests.iceberg.racer import FILES_PER_ENTRY
from tests.iceberg.test_catalog_servers import Keys, rows, sink_on
from tests.iceberg.test_races import ENTRIES, create, live_files, racer
from tests.programs.servers import Azurite, MariaDb
from tests.tasks.conftest import encode
from tests.tls import Authority

pytestmark = pytest.mark.services


def on_mariadb(folder: Path) -> Iterator[Keys]:
    server = MariaDb()
    yield {"type": "jdbc", "uri": server.jdbc, "warehouse": f"file://{folder}"}
    server.stop()


def on_azurite(folder: Path) -> Iterator[Keys]:
    server = Azurite(folder / "azurite")
    yield {
        "type": "sql",
        "uri": f"sqlite:///{folder / 'catalog.db'}?timeout=30",
        "warehouse": "abfs://lake/warehouse",
        "adls.connection-string": server.connection,
    }
    server.stop()


@pytest.fixture(scope="module", params=[on_mariadb, on_azurite], ids=["mariadb", "azurite"])
def keys(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    yield from request.param(tmp_path_factory.mktemp("place"))


def test_what_is_created_appended_and_evolved_reads_back(
    keys: Keys, tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    cli = sink_on(keys, tmp_path, topic(), unique)
    cli.topic.send(*encode({"id": 1}, {"id": 2}))
    cli.run_here()
    cli.topic.send(*encode({"id": 3, "name": "x"}))
    cli.run_here()
    assert rows(cli) == [{"id": 1, "name": None}, {"id": 2, "name": None}, {"id": 3, "name": "x"}]


def test_two_coordinators_that_are_lied_to_add_every_file_once(keys: Keys, tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", keys)
    create(catalog)
    racers = [racer(keys, seed, 0.08, tmp_path) for seed in range(2)]
    assert [each.wait(150) for each in racers] == [0, 0]
    expected = {f"file:///race/{o}-{i}.parquet": 1 for o in range(ENTRIES) for i in range(FILES_PER_ENTRY)}
    assert live_files(catalog) == Counter(expected)


def test_the_ssl_modes_of_an_address_verify_as_in_java(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    pair = ours.issue("mariadb")
    server = MariaDb(f"--ssl-cert={pair.certificate}", f"--ssl-key={pair.key}")

    def reached(options: str) -> bool:
        keys = {"type": "jdbc", "uri": f"{server.jdbc}{options}", "warehouse": f"file://{tmp_path}"}
        try:
            open_catalog("iceberg", keys).list_namespaces()
        except (ConfigError, OperationalError):
            return False
        return True

    try:
        assert reached("&sslMode=DISABLED")
        assert reached("&sslMode=required")
        for mode in ("verify_ca", "VERIFY_IDENTITY"):
            assert reached(f"&sslMode={mode}&serverSslCert={ours.certificate}")
            assert not reached(f"&sslMode={mode}&serverSslCert={others.certificate}")
    finally:
        server.stop()
    server = MariaDb("--skip-ssl")
    try:
        assert reached("")
        assert not reached("&sslMode=REQUIRED")
    finally:
        server.stop()
