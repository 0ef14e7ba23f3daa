"""Values become rows of the tables that do not hold them yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calving.model.offsets import Range, Span, TopicPartition, encode_coverage
from calving.model.record_path import RecordPath, RouteRule, Routing, Tolerance
from calving.model.tables import TableSpec
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Accounts, Timings
from calving.tasks.spec import TaskSpec
from harness.blocks import Given

BOTH = Routing((RouteRule("db.a", "x"), RouteRule("db.b", "x")), field="to")
TOPIC = Tolerance("topic")
KINDS = {"db.a": LongType(), "db.b": StringType()}
VALUES = [b'{"id":%d,"to":"x"}' % i for i in range(10)]


def run(
    folder: Path,
    values: list[bytes],
    held: dict[str, Iterable[int]],
    routing: Routing = BOTH,
    tolerance: Tolerance = TOPIC,
) -> tuple[Accounts, dict[str, int]]:
    """The accounts of the records, and the rows of each table's files. ``held``: the offsets that tables hold."""
    tables = {}
    for rule in routing.rules:
        schema = Schema(NestedField(1, "id", KINDS[rule.table], required=False)).model_dump_json()
        spans = tuple(Span(offset, offset + 1) for offset in held.get(rule.table, ()))
        coverage = encode_coverage({TopicPartition("t", 0): spans} if spans else {})
        spec = UNPARTITIONED_PARTITION_SPEC.model_dump_json()
        tables[rule.table] = TableSpec(rule.table, schema, spec, f"file://{folder}", {}, {}, held_json=coverage)
    path = RecordPath({}, routing, tolerance=tolerance)
    pipeline = Pipeline(TaskSpec(0, (), path, tables, {}), Timings())
    accounts = pipeline.run(Given(Range("t", 0, 0, len(values)), 0, values))
    files = pipeline.writers.close().files
    return accounts, {table: sum(file.record_count for file in files.get(table, ())) for table in tables}


def test_a_record_goes_to_the_tables_that_lack_it(tmp_path: Path) -> None:
    accounts, rows = run(tmp_path, VALUES, {"db.a": range(6), "db.b": range(4, 10)})
    assert rows == {"db.a": 4, "db.b": 4}
    assert (accounts.written, accounts.bad) == (8, [])


def test_a_record_that_all_its_tables_hold_is_filtered(tmp_path: Path) -> None:
    accounts, _ = run(tmp_path, VALUES, {"db.a": range(6), "db.b": range(4, 10)})
    assert accounts.filtered == {"held by its tables": 2}


def test_a_held_record_that_is_no_json_is_bad_again(tmp_path: Path) -> None:
    accounts, rows = run(tmp_path, [*VALUES, b"{"], {"db.a": range(11)}, Routing((RouteRule("db.a"),)))
    assert ([bad.index for bad in accounts.bad], accounts.filtered) == ([10], {"held by its tables": 10})
    assert rows == {"db.a": 0}


def test_a_held_record_that_its_table_refuses_is_bad_again_for_a_dead_letter_table(tmp_path: Path) -> None:
    misfit = b'{"id":"x"}'
    accounts, rows = run(
        tmp_path, [*VALUES, misfit], {"db.a": range(11)}, Routing((RouteRule("db.a"),)), Tolerance("table", "db.dead")
    )
    assert ([bad.index for bad in accounts.bad], accounts.filtered) == ([10], {"held by its tables": 10})
    assert rows == {"db.a": 0}


def test_a_record_that_its_holder_refuses_goes_to_no_other_table(tmp_path: Path) -> None:
    misfit = b'{"id":"x","to":"x"}'
    accounts, rows = run(tmp_path, [misfit, *VALUES], {"db.a": range(11)}, tolerance=Tolerance("table", "db.dead"))
    assert ([bad.index for bad in accounts.bad], rows) == ([0], {"db.a": 0, "db.b": 10})
