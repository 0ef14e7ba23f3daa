"""The sink on catalogs and stores of others, each a real server: what it creates, appends and changes reads back."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pyarrow as pa
import pytest

from calving.cli.inspect import validate
from calving.iceberg.abilities import abilities
from calving.iceberg.catalog import open_catalog
from calving.settings.load import load
from harness.servers import KEY, SECRET, FakeGcs, Moto, Postgres, SeaweedFs, clients
from harness.topic import Topic
from tests.cli.commands import Cli
from tests.iceberg.histories import SCHEMA, MutationTable
from tests.iceberg.racer import FILES_PER_ENTRY
from tests.iceberg.test_races import ENTRIES, create, live_files, racer
from tests.tasks.conftest import encode

pytestmark = pytest.mark.services
Keys = dict[str, str]

SIGNED = {
    "rest.sigv4-enabled": "true",
    "rest.signing-name": "s3tables",
    "rest.signing-region": "us-east-1",
    "client.access-key-id": KEY,
    "client.secret-access-key": SECRET,
    "client.region": "us-east-1",
}


@dataclass
class Place:
    keys: Keys
    says: str
    """A line of `validate`."""


def on_postgres(folder: Path) -> Iterator[Place]:
    server = Postgres()
    yield Place(
        {"type": "jdbc", "uri": server.jdbc, "warehouse": f"file://{folder}"},
        "catalog: commits: a commit replaces the row of the metadata that it read",
    )
    server.stop()


def on_seaweedfs(folder: Path) -> Iterator[Place]:
    server = SeaweedFs(folder / "seaweedfs")
    boto3.client("s3tables", **clients(server.s3["s3.endpoint"])).create_table_bucket(name="lake")
    yield Place(
        {"type": "rest", "uri": server.uri, "warehouse": "s3://lake", **SIGNED, **server.s3},
        "catalog: commits: the catalog refuses those whose requirements do not hold",
    )
    server.stop()


def on_seaweedfs_with_sql(folder: Path) -> Iterator[Place]:
    server = SeaweedFs(folder / "seaweedfs")
    boto3.client("s3", **clients(server.s3["s3.endpoint"])).create_bucket(Bucket="lake")
    yield Place(
        {"type": "sql", "uri": f"sqlite:///{folder / 'catalog.db'}", "warehouse": "s3://lake/warehouse", **server.s3},
        "catalog: format versions: 1 to 3",
    )
    server.stop()


def on_google(folder: Path) -> Iterator[Place]:
    server = FakeGcs(folder / "gcs", "lake")
    token = {"gcs.oauth2.token": "any", "gcs.oauth2.token-expires-at": str(int(time.time() + 3600) * 1000)}
    yield Place(
        {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": "gs://lake/warehouse",
            "gcs.service.host": server.uri,
            **token,
        },
        "catalog: format versions: 1 to 3",
    )
    server.stop()


def on_glue(folder: Path) -> Iterator[Place]:
    server = Moto(folder / "moto")
    boto3.client("s3", **clients(server.uri)).create_bucket(Bucket="lake")
    own = {"endpoint": server.uri, "access-key-id": KEY, "secret-access-key": SECRET, "region": "us-east-1"}
    yield Place(
        {
            "type": "glue",
            "warehouse": "s3://lake/warehouse",
            **{f"{part}.{name}": value for part in ("glue", "s3") for name, value in own.items()},
        },
        "catalog: commits: Glue compares the version of the table that a commit read",
    )
    server.stop()


PLACES = {
    "postgres": on_postgres,
    "seaweedfs": on_seaweedfs,
    "seaweedfs-sql": on_seaweedfs_with_sql,
    "gcs": on_google,
    "glue": on_glue,
}


@pytest.fixture(scope="module", params=[*PLACES, "hive"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "hive":
        yield Place(
            request.getfixturevalue("hive_keys"), "catalog: commits: the metastore locks a table for each commit"
        )
        return
    yield from PLACES[request.param](tmp_path_factory.mktemp(request.param))


def sink_on(keys: Keys, folder: Path, topic: Topic, name: str) -> Cli:
    cli = Cli(folder, topic, name)
    cli.catalog_keys = keys
    own = {key: value for key, value in cli.keys.items() if not key.startswith("iceberg.catalog.")}
    evolving = {"iceberg.tables": f"db.{name}", "iceberg.tables.evolve-schema-enabled": True}
    cli.keys = {**own, **evolving, **{f"iceberg.catalog.{key}": value for key, value in keys.items()}}
    return cli


def rows(cli: Cli) -> list[dict[str, object]]:
    found = open_catalog("iceberg", cli.catalog_keys).load_table(f"db.{cli.name}").scan().to_arrow()
    return sorted(found.to_pylist(), key=lambda row: str(row["id"]))


def test_what_is_created_appended_and_evolved_reads_back(
    place: Place, tmp_path: Path, topic: Callable[..., Topic], unique: str
) -> None:
    cli = sink_on(place.keys, tmp_path, topic(), unique)
    cli.topic.send(*encode({"id": 1}, {"id": 2}))
    cli.run_here()
    assert place.says in list(validate(load(cli.config)))
    cli.topic.send(*encode({"id": 3, "name": "x"}))
    cli.run_here()
    assert rows(cli) == [{"id": 1, "name": None}, {"id": 2, "name": None}, {"id": 3, "name": "x"}]


# The table buckets of SeaweedFS take no Puffin files.
@pytest.mark.parametrize("place", ["postgres", "hive", "seaweedfs-sql", "gcs", "glue"], indirect=True)
def test_rows_of_a_table_of_version_3_are_replaced_and_deleted(place: Place, unique: str) -> None:
    catalog, name = open_catalog("iceberg", place.keys), f"db.{unique}"
    catalog.create_namespace_if_not_exists("db")
    catalog.create_table(name, SCHEMA, properties={"format-version": "3"})
    table = MutationTable(catalog, name)
    table.commit(table.step([{"id": 1}, {"id": 2}, {"id": 3}]))
    table.commit(table.step([{"id": 2, "name": "new"}], [{"id": 3}]))
    found = table.table
    assert (found.metadata.format_version, found.metadata.snapshots[-1].first_row_id) == (3, 3)
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_catalog_that_is_asked_for_branches_has_as_many_tables_and_branches_as_before(
    place: Place, unique: str
) -> None:
    catalog, rows = open_catalog("iceberg", place.keys), pa.table({"id": [1]})
    catalog.create_namespace_if_not_exists("db")
    table = catalog.create_table(f"db.{unique}", rows.schema)
    table.append(rows)
    before = catalog.list_tables("db")
    assert "branches: the catalog makes and removes them" in list(abilities(catalog, table, "audit"))
    assert set(catalog.load_table(table.name()).metadata.refs) == {"main"}
    assert catalog.list_tables("db") == before


@pytest.mark.parametrize("place", ["postgres", "hive", "seaweedfs", "glue"], indirect=True)
def test_two_coordinators_that_are_lied_to_add_every_file_once(place: Place, tmp_path: Path) -> None:
    catalog = open_catalog("iceberg", place.keys)
    create(catalog)
    racers = [racer(place.keys, seed, 0.08, tmp_path) for seed in range(2)]
    assert [each.wait(150) for each in racers] == [0, 0]
    expected = {f"file:///race/{o}-{i}.parquet": 1 for o in range(ENTRIES) for i in range(FILES_PER_ENTRY)}
    assert live_files(catalog) == Counter(expected)
