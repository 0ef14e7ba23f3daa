"""Iceberg reserves the names of its metadata columns: the sink adds no column of such a name."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, LongType, NestedField, StringType

from calving.errors import ConfigError
from calving.iceberg.catalog import open_catalog
from calving.model.record_path import Evolution
from calving.model.tables import RowMutations
from calving.runtime.checks import refuse_missing_tables
from calving.settings.load import parse
from tests.mutations.changing import Changing, Message

NAMES = [
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
]
REASON = (
    "field '{}': its column cannot be added: Iceberg reserves this name, and Spark could not read the table; rename or"
    " drop the field, such as with the transform ReplaceField"
)
SOFT = RowMutations("op", delete_mode="soft")
SETTINGS = {
    "name": "s",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.tables.auto-create-enabled": "true",
    "iceberg.tables.default-id-columns": "id",
    "kafka.bootstrap.servers": "localhost:9092",
}
LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.table": "db.dead"}


def record(**fields: Any) -> Message:
    return None, {"id": 1, "v": "a", "op": "c", **fields}


def with_mark(catalog: Catalog, name: str) -> None:
    """A table whose deleted rows are marked in the column ``name``."""
    catalog.create_namespace("db")
    columns = (
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "v", StringType(), required=False),
        NestedField(3, name, BooleanType(), required=False),
    )
    catalog.create_table("db.t", Schema(*columns, identifier_field_ids=[1]))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_whose_field_would_become_such_a_column_is_bad(tmp_path: Path, name: str) -> None:
    sink = Changing(tmp_path, None, (), evolution=Evolution(create=True, evolve=True))
    outcome = sink.take(record(**{name: "x"}))
    assert sink.reasons(outcome) == [(0, "table db.t: " + REASON.format(name))]
    sink.take(record())
    outcome = sink.take(record(**{name: "x"}))
    assert sink.reasons(outcome) == [(2, "table db.t: " + REASON.format(name))]
    assert name not in sink.table.schema().column_names


def test_without_regard_to_case_a_name_in_another_case_is_reserved_too(tmp_path: Path) -> None:
    sink = Changing(tmp_path, None, (), evolution=Evolution(create=True, evolve=True, case_insensitive=True))
    assert [reason for _, reason in sink.reasons(sink.take(record(_FILE="x")))] == [
        "table db.t: " + REASON.format("_file")
    ]
    outcome = sink.take(record(), record(_Deleted="x"))
    assert [offset for offset, _ in sink.reasons(outcome)] == [2]


def test_a_field_within_an_object_may_have_such_a_name(tmp_path: Path) -> None:
    """Iceberg's metadata columns are at the top."""
    sink = Changing(tmp_path, None, (), evolution=Evolution(create=True, evolve=True))
    assert sink.reasons(sink.take(record(o={"_file": 1}))) == []
    assert sink.reasons(sink.take(record(o={"_pos": 1}))) == []
    assert {"o._file", "o._pos"} <= {*sink.table.schema().column_names}


def test_a_table_that_has_such_a_column_goes_on_to_get_its_values(tmp_path: Path) -> None:
    sink = Changing(tmp_path, None, ())
    with_mark(sink.catalog, "_deleted")
    assert sink.reasons(sink.take(record(_deleted=True))) == []
    assert sink.rows("_deleted") == [(True,)]


def test_a_declared_column_of_such_a_name_is_refused_before_the_table_is_created(tmp_path: Path) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"iceberg\.table\.db\.t\.columns: Iceberg reserves the name _pos"):
        list(refuse_missing_tables(catalog, parse({**SETTINGS, "iceberg.table.db.t.columns": "_pos long"})))
    with pytest.raises(ConfigError, match=r"iceberg\.table\.db\.t\.columns: Iceberg reserves the name _pos"):
        Changing(tmp_path, None, (), columns={"_pos": "long"}).take(record())


@pytest.mark.parametrize("name", NAMES)
def test_a_soft_delete_field_of_such_a_name_is_refused_if_it_would_be_added(tmp_path: Path, name: str) -> None:
    sentence = f"table db.t: soft-delete-field = {name}: Iceberg reserves this name"
    keys = {"iceberg.tables.cdc-field": "op", "iceberg.tables.delete-mode": "soft"}
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    with pytest.raises(ConfigError, match=sentence):
        list(refuse_missing_tables(catalog, parse({**SETTINGS, **keys, "iceberg.tables.soft-delete-field": name})))
    sink = Changing(tmp_path, RowMutations("op"))
    sink.take(record())
    with pytest.raises(ConfigError, match=sentence):
        sink.with_(mutations=RowMutations("op", delete_mode="soft", soft_delete_field=name)).take(record())


def test_deleted_rows_are_marked_in_a_column_that_spark_can_read(tmp_path: Path) -> None:
    sink = Changing(tmp_path, SOFT)
    sink.take(record(), record(op="d"))
    assert sink.rows("id", "_cdc_deleted") == [(1, True)]
    assert not {*NAMES} & {*sink.table.schema().column_names}


@pytest.mark.parametrize("explicit", [False, True])
def test_a_table_whose_deleted_rows_an_earlier_version_has_marked_keeps_its_column(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, explicit: bool
) -> None:
    sink = Changing(
        tmp_path, RowMutations("op", delete_mode="soft", soft_delete_field="_deleted") if explicit else SOFT
    )
    with_mark(sink.catalog, "_deleted")
    with caplog.at_level(logging.WARNING):
        sink.take(record(), record(op="d"))
        sink.take(record(), record(op="d"))
    assert sink.rows("id", "_deleted") == [(1, True)]
    assert "_cdc_deleted" not in sink.table.schema().column_names
    warnings = [text for text in caplog.messages if "ALTER TABLE db.t RENAME COLUMN _deleted TO _cdc_deleted" in text]
    assert len(warnings) == 2, "one for each start"


def test_after_the_column_is_renamed_the_sink_goes_on_with_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = Changing(tmp_path, SOFT)
    with_mark(sink.catalog, "_deleted")
    sink.take(record(), record(op="d"))
    with sink.table.update_schema() as update:
        update.rename_column("_deleted", "_cdc_deleted")
    caplog.clear()
    sink.take((None, {"id": 2, "op": "d"}))
    assert sink.rows("id", "_cdc_deleted") == [(1, True), (2, True)]
    assert "RENAME COLUMN" not in caplog.text


def test_a_text_of_the_former_name_is_no_mark_of_deleted_rows(tmp_path: Path) -> None:
    sink = Changing(tmp_path, SOFT)
    sink.catalog.create_namespace("db")
    columns = NestedField(1, "id", LongType(), required=True), NestedField(2, "_deleted", StringType(), required=False)
    sink.catalog.create_table("db.t", Schema(*columns))
    sink.take(record(_deleted="no"))
    assert sink.rows("id", "_deleted", "_cdc_deleted") == [(1, "no", False)]


# The dead-letter table


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        (
            {"iceberg.table.db.dead.partition-by": "day(ts)"},
            r"table db\.dead: partition-by 'day\(ts\)': the dead-letter table has no column 'ts', only topic, partition",
        ),
        (
            {"iceberg.table.db.dead.partition-by": "day(topic)"},
            r"table db\.dead: partition-by 'day\(topic\)' cannot be applied to string",
        ),
        (
            {"iceberg.table.db.dead.id-columns": "id"},
            r"table db\.dead: id-columns: every dead letter needs a value in the column 'id'; .* topic, partition, offset",
        ),
    ],
)
def test_a_dead_letter_table_that_could_not_be_created_is_refused_before_the_start(
    tmp_path: Path, keys: dict[str, str], sentence: str
) -> None:
    catalog = open_catalog("c", {"type": "embedded", "warehouse": str(tmp_path)})
    with pytest.raises(ConfigError, match=sentence):
        list(refuse_missing_tables(catalog, parse({**SETTINGS, **LETTERS, **keys})))
