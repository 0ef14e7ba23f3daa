"""Format version 3 in catalogs whose clients write the metadata: nothing of it is lost, and every row has an id."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, UpgradeFormatVersionUpdate

from calving.catalogs.foreign import metadata_of
from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.iceberg.lineage import new_snapshot
from harness.structure import check
from tests.iceberg.histories import SCHEMA, MutationTable
from tests.iceberg.reader import rows_of

Json = dict[str, Any]

DEFAULTS: dict[str, Any] = {
    "boolean": True,
    "int": 34,
    "long": -5,
    "float": 1.5,
    "double": 2.5,
    "decimal(4, 2)": "14.20",
    "date": "2007-12-03",
    "time": "10:15:30",
    "timestamp": "2007-12-03T10:15:30",
    "timestamptz": "2007-12-03T10:15:30+00:00",
    "timestamp_ns": "2007-12-03T10:15:30.123456789",
    "timestamptz_ns": "2007-12-03T10:15:30.123456789+00:00",
    "string": "bär",
    "uuid": "eb26bdb1-a1d8-4aa6-990e-da940875492c",
    "fixed[2]": "d1fa",
    "binary": "01ff",
}
WITHOUT = ("variant", "geometry", "geometry(EPSG:4326)", "geography", "geography(EPSG:4326, karney)", "unknown")
"""Types that have no default values."""


def every_column() -> list[Json]:
    """A column of each type, as the specification's examples have them."""
    columns: list[Json] = [{"id": 1, "name": "id", "required": True, "type": "long", "doc": "its key"}]
    for at, kind in enumerate([*DEFAULTS, *WITHOUT], 2):
        column: Json = {"id": at, "name": f"c{at}", "required": False, "type": kind}
        if kind in DEFAULTS:
            column |= {"initial-default": DEFAULTS[kind], "write-default": DEFAULTS[kind]}
        columns.append(column)
    within = {"id": 51, "name": "n", "required": False, "type": "int", "initial-default": 1, "write-default": 2}
    struct = {"type": "struct", "fields": [within]}
    items = {"type": "list", "element-id": 53, "element": "variant", "element-required": False}
    pairs = {"key-id": 55, "key": "string", "value-id": 56, "value": "geometry", "value-required": False}
    columns.append({"id": 50, "name": "s", "required": False, "type": struct})
    columns.append({"id": 52, "name": "l", "required": False, "type": items})
    columns.append({"id": 54, "name": "m", "required": False, "type": {"type": "map", **pairs}})
    return columns


def field(transform: str, *columns: int) -> Json:
    """Of a partition spec or a sort order."""
    return {"transform": transform} | ({"source-ids": [*columns]} if columns[1:] else {"source-id": columns[0]})


def specified() -> Json:
    """Metadata with every part that the specification names for version 3, but for encryption."""
    first, second = 3051729675574597004, 3055729675574597004
    ordered = {"direction": "desc", "null-order": "nulls-last"}
    blob = {"type": "apache-datasketches-theta-v1", "snapshot-id": second, "sequence-number": 34, "fields": [1]}
    return {
        "format-version": 3,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "s3://b/t",
        "last-sequence-number": 34,
        "last-updated-ms": 1602638573590,
        "last-column-id": 56,
        "current-schema-id": 1,
        "schemas": [
            {"type": "struct", "schema-id": 0, "identifier-field-ids": [], "fields": every_column()[:1]},
            {"type": "struct", "schema-id": 1, "identifier-field-ids": [1], "fields": every_column()},
        ],
        "default-spec-id": 0,
        "partition-specs": [
            {"spec-id": 0, "fields": [{"name": "b", "field-id": 1000} | field("bucket[4]", 1)]},
            {"spec-id": 1, "fields": [{"name": "v", "field-id": 1001} | field("void", 1)]},
            {"spec-id": 2, "fields": [{"name": "w", "field-id": 1002} | field("new[2]", 1, 2)]},
            {"spec-id": 3, "fields": [{"name": "x", "field-id": 1003} | field("later", 1)]},
        ],
        "last-partition-id": 1003,
        "default-sort-order-id": 3,
        "sort-orders": [
            {"order-id": 3, "fields": [ordered | field("bucket[4]", 1)]},
            {"order-id": 4, "fields": [ordered | field("new", 1, 2)]},
        ],
        "properties": {"owner": "x", "note": "new[2] of [1, 2]"},
        "current-snapshot-id": second,
        "snapshots": [
            {
                "snapshot-id": first,
                "timestamp-ms": 1515100955770,
                "sequence-number": 33,
                "summary": {"operation": "append", "x": "y"},
                "manifest-list": "s3://a/b/1.avro",
                "schema-id": 0,
                "first-row-id": 0,
                "added-rows": 50,
            },
            {
                "snapshot-id": second,
                "parent-snapshot-id": first,
                "timestamp-ms": 1555100955770,
                "sequence-number": 34,
                "summary": {"operation": "overwrite"},
                "manifest-list": "s3://a/b/2.avro",
                "schema-id": 1,
                "first-row-id": 50,
                "added-rows": 50,
            },
        ],
        "snapshot-log": [{"snapshot-id": first, "timestamp-ms": 1515100955770}],
        "metadata-log": [{"metadata-file": "s3://b/t/1.json", "timestamp-ms": 1515100955770}],
        "refs": {
            "main": {
                "snapshot-id": second,
                "type": "branch",
                "min-snapshots-to-keep": 3,
                "max-snapshot-age-ms": 5,
                "max-ref-age-ms": 7,
            },
            "test": {"snapshot-id": first, "type": "tag", "max-ref-age-ms": 10_000_000},
        },
        "statistics": [
            {
                "snapshot-id": second,
                "statistics-path": "s3://a/b/stats.puffin",
                "file-size-in-bytes": 413,
                "file-footer-size-in-bytes": 42,
                "key-metadata": "AAAA",
                "blob-metadata": [{**blob, "properties": {"ndv": "3"}}, {**blob, "type": "of-trino"}],
            }
        ],
        "partition-statistics": [
            {"snapshot-id": second, "statistics-path": "s3://a/b/p.parquet", "file-size-in-bytes": 43}
        ],
        "next-row-id": 100,
    }


def written(text: str) -> Json:
    """What a catalog of pyiceberg's writes for metadata that it has read."""
    found: Json = json.loads(metadata_of(text).model_dump_json())
    return found


def file_of(table: Table) -> str:
    return Path(table.metadata_location.removeprefix("file://").removeprefix("file:")).read_text()


def test_what_is_written_equals_what_was_read(catalog: Catalog) -> None:
    assert written(json.dumps(specified())) == specified()


@pytest.mark.services
def test_what_java_has_written_is_written_again(rest_uri: str) -> None:
    namespace, name = namespace_of(rest_uri), f"t{uuid4().hex}"
    order = {"order-id": 1, "fields": [{"direction": "desc", "null-order": "nulls-last"} | field("bucket[4]", 1)]}
    spec = {"spec-id": 0, "fields": [{"name": "b", "field-id": 1000} | field("bucket[4]", 1)]}
    schema = {"type": "struct", "schema-id": 0, "fields": every_column(), "identifier-field-ids": [1]}
    properties = {"format-version": "3", "owner": "x"}
    body = {"name": name, "schema": schema, "partition-spec": spec, "write-order": order, "properties": properties}
    tables = f"{rest_uri}/v1/namespaces/{namespace}/tables"
    ask(tables, body)
    catalog = open_catalog("iceberg", {"type": "rest", "uri": rest_uri})
    append_nothing(catalog.load_table((namespace, name)))
    snapshot = catalog.load_table((namespace, name)).metadata.snapshots[-1].snapshot_id
    blob = {
        "type": "of-trino",
        "snapshot-id": snapshot,
        "sequence-number": 1,
        "fields": [1],
        "properties": {"ndv": "3"},
    }
    of_snapshot = {"snapshot-id": snapshot, "statistics-path": "s3://a/b", "file-size-in-bytes": 4}
    statistics = {**of_snapshot, "file-footer-size-in-bytes": 2, "blob-metadata": [blob]}
    branch = {"type": "branch", "max-snapshot-age-ms": 5, "min-snapshots-to-keep": 2, "max-ref-age-ms": 9}
    updates = [
        {"action": "set-snapshot-ref", "ref-name": "side", "snapshot-id": snapshot, **branch},
        {"action": "set-snapshot-ref", "ref-name": "old", "snapshot-id": snapshot, "type": "tag"},
        {"action": "set-statistics", "snapshot-id": snapshot, "statistics": statistics},
        {"action": "set-partition-statistics", "partition-statistics": of_snapshot},
    ]
    ask(f"{tables}/{name}", {"requirements": [], "updates": updates})
    text = file_of(catalog.load_table((namespace, name)))
    for upper in ("D1FA", "01FF"):  # bytes in hexadecimal digits, which may be of either case
        text = text.replace(upper, upper.lower())
    assert written(text) == json.loads(text)


@pytest.mark.services
def test_java_reads_every_part_of_what_was_written(catalog: Catalog, rest_uri: str) -> None:
    table = mutation_table(catalog)
    table.commit(table.step([{"id": 1}, {"id": 2}]))
    table.commit(table.step([{"id": 2, "name": "b"}], [{"id": 1}]))
    loaded = table.table
    loaded.manage_snapshots().create_tag(loaded.metadata.snapshots[0].snapshot_id, "first").commit()
    text, name = file_of(table.table), f"t{uuid4().hex}"
    body = {"name": name, "metadata-location": table.table.metadata_location}
    java = ask(f"{rest_uri}/v1/namespaces/{namespace_of(rest_uri)}/register", body)["metadata"]
    assert java == json.loads(text) | {"snapshot-log": java["snapshot-log"]}


def test_long_metadata_is_written_in_a_moment(catalog: Catalog) -> None:
    """A search whose time grows with the square of the length would take minutes."""
    table, text = mutation_table(catalog), "x" * 200_000
    used = time.process_time()
    table.table.transaction().set_properties({"text": text}).commit_transaction()
    assert time.process_time() - used < 5
    assert table.table.properties["text"] == text


def test_a_new_table_begins_with_row_id_0(catalog: Catalog) -> None:
    assert json.loads(file_of(mutation_table(catalog).table))["next-row-id"] == 0


def test_rows_that_change_keep_their_ids_apart(catalog: Catalog) -> None:
    table = mutation_table(catalog)
    for number in range(5):
        table.commit(table.step([{"id": number}, {"id": number + 1, "name": f"n{number}"}]))
    check(table.table)
    assert rows_of(table.table) == [*((number, None, None) for number in range(5)), (5, "n4", None)]


def test_a_table_is_upgraded_between_two_commits(catalog: Catalog) -> None:
    table = mutation_table(catalog, version=2)
    table.commit(table.step([{"id": 1}, {"id": 2}]))
    loaded = table.table
    guard = AssertTableUUID(uuid=loaded.metadata.table_uuid)
    loaded._do_commit((UpgradeFormatVersionUpdate(format_version=3),), (guard,))
    assert json.loads(file_of(table.table))["next-row-id"] == 0
    table.commit(table.step([{"id": 2, "name": "b"}]))
    check(table.table)
    assert rows_of(table.table) == [(1, None, None), (2, "b", None)]
    assert json.loads(file_of(table.table))["next-row-id"] == 3  # the rows of version 2 have got theirs, too


def test_a_commit_that_another_branch_was_faster_than_is_refused(catalog: Catalog) -> None:
    """Two snapshots of one sequence number would hide deletes from rows."""
    table = mutation_table(catalog)
    table.commit(table.step([{"id": 1}]))
    loaded = table.table
    loaded.manage_snapshots().create_branch(loaded.metadata.snapshots[0].snapshot_id, "side").commit()
    stale = table.table
    append_nothing(table.table, "side")
    with pytest.raises(CommitFailedException, match="sequence number 2 was made for a table that has 2 already"):
        append_nothing(stale)


def test_the_metadata_of_an_encrypted_table_is_not_written(catalog: Catalog) -> None:
    table = mutation_table(catalog).table
    with pytest.raises(ConfigError, match="the table is encrypted"):
        table.transaction().set_properties({"encryption.key-id": "k"}).commit_transaction()


def mutation_table(catalog: Catalog, version: int = 3) -> MutationTable:
    catalog.create_namespace_if_not_exists("db")
    name = f"db.t{uuid4().hex}"
    catalog.create_table(name, SCHEMA, properties={"format-version": str(version)})
    return MutationTable(catalog, name)


def append_nothing(table: Table, branch: str = "main") -> None:
    updates, requirements = new_snapshot(table, {}, branch).prepare()
    table._do_commit(updates, requirements)


def namespace_of(rest_uri: str) -> str:
    name = f"n{uuid4().hex}"
    ask(f"{rest_uri}/v1/namespaces", {"namespace": [name]})
    return name


def ask(url: str, body: Json) -> Json:
    answer = requests.post(url, json=body, timeout=30)
    assert answer.ok, answer.text
    found: Json = answer.json()
    return found
