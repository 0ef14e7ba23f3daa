"""The cells of a record are bounded by its table's columns, whatever the record looks like."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, MapType, NestedField, StringType, StructType

from calving.casting.table import TableConverter
from calving.model.record_path import Evolution, Limits
from calving.records.arrays import JSON, Pairs, lists, maps
from calving.records.cells import FullBlockError
from calving.records.semantics import SCALED_NAME, semantic
from calving.records.values import Values

WIDE = StructType(*(NestedField(100 + i, f"f{i}", LongType(), required=False) for i in range(50)))
LIST = ListType(2, WIDE, element_required=False)
MAP = MapType(2, StringType(), 3, WIDE, value_required=False)
DEEP = ListType(2, StructType(NestedField(50, "inner", ListType(51, WIDE, False), required=False)), False)


def converter(kind: IcebergType, most: int = 1_000) -> TableConverter:
    schema = Schema(NestedField(1, "v", kind, required=False))
    return TableConverter("db.t", schema, Evolution(evolve=False), {}, Limits(cells=most))


def column(value: Any, kind: pa.DataType) -> pa.StructArray:
    return pa.array([{"v": None}, {"v": value}], pa.struct([("v", kind)]))


ONE_FIELD = pa.struct([("f1", pa.int64())])
JSON_TEXT = pa.StructArray.from_arrays([pa.array([None, "[" + "{}," * 20 + "{}]"], JSON)], ["v"])
FORMS: dict[str, tuple[IcebergType, Any]] = {
    "a list of objects": (LIST, [{}, {"v": [{}] * 21}]),
    "a list of nulls": (LIST, [{}, {"v": [None] * 21}]),
    "a column of lists": (LIST, column([{}] * 21, pa.list_(ONE_FIELD))),
    "a text of JSON": (LIST, JSON_TEXT),
    "an object": (MAP, [{}, {"v": {f"k{i}": {} for i in range(21)}}]),
    "pairs": (MAP, [{}, {"v": Pairs((f"k{i}", {}) for i in range(21))}]),
    "a column of maps": (MAP, column([(f"k{i}", {}) for i in range(21)], pa.map_(pa.string(), ONE_FIELD))),
    "a column of objects": (
        MAP,
        column({f"k{i}": {} for i in range(21)}, pa.struct([(f"k{i}", ONE_FIELD) for i in range(21)])),
    ),
    "lists in lists": (DEEP, [{}, {"v": [{"inner": [{}] * 7}] * 3}]),
    "a column of lists in lists": (
        DEEP,
        column([{"inner": [{}] * 7}] * 3, pa.list_(pa.struct([("inner", pa.list_(ONE_FIELD))]))),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_record_whose_elements_take_too_many_cells_is_bad_alone(form: str) -> None:
    kind, data = FORMS[form]
    found = converter(kind).convert(Values(data, False))
    assert [error.index for error in found.bad] == [1]
    assert "more than iceberg.limits.cells = 1000 places" in found.bad[0].reason
    assert found.rows is not None
    assert (found.rows.num_rows, [*found.index]) == (1, [0])


@pytest.mark.parametrize("form", FORMS)
def test_a_record_within_the_limit_is_a_row(form: str) -> None:
    kind, data = FORMS[form]
    found = converter(kind, 1_050).convert(Values(data, False))
    assert (found.bad, found.rows and found.rows.num_rows) == ([], 2)


def test_simple_elements_do_not_count() -> None:
    found = converter(ListType(2, LongType(), element_required=False), 10).convert(Values([{"v": [1] * 1_000}], False))
    assert not found.bad


def test_records_with_too_many_cells_together_are_divided() -> None:
    data: list[Any] = [{"v": [{}] * 20}, {"v": [{}] * 999}, *[{"v": [{}] * 20}] * 9]
    parts = [[*part] for part in converter(LIST).cells.parts(Values(data, False))]
    assert parts == [[0, 1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_rows_of_many_columns_are_divided() -> None:
    schema = Schema(*(NestedField(i, f"c{i}", LongType(), required=False) for i in range(1, 501)))
    wide = TableConverter("db.t", schema, Evolution(), {}, Limits(cells=1_000))
    assert [len(part) for part in wide.cells.parts(Values([{}] * 20, False))] == [8, 8, 4]


def test_no_values_are_one_part() -> None:
    assert [*converter(LIST).cells.parts(Values([], False))] == [range(0)]


SCALED: Any = semantic(pa.struct([("scale", pa.int32()), ("value", pa.binary())]), SCALED_NAME)
NAMED = pa.struct([("f1", pa.int64())])
"""One element is 11 characters as text."""


def deep_keys(levels: int) -> pa.Array:
    """Two maps, of which the second has a map as its key, which has a map as its key, and so on."""
    column: pa.Array = pa.array([None, "k"])
    for _ in range(levels):
        kind = pa.map_(column.type, pa.int64())
        keys = column.slice(1)
        column = maps(pa.array([0, 0, 1], pa.int32()), keys, pa.array([1], pa.int64()), kind, None)
    return pa.StructArray.from_arrays([column], ["v"])


def scaled(digits: int) -> pa.StructArray:
    """A decimal of so many digits in few bytes."""
    structs = pa.array([{"scale": 1 - digits, "value": b"\1"}], SCALED.storage_type)
    items = pa.ExtensionArray.from_storage(SCALED, structs)
    return pa.StructArray.from_arrays([lists(pa.array([0, 0, 1], pa.int32()), items, pa.list_(SCALED), None)], ["v"])


def json_column(text: str) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.array([None, text], JSON)], ["v"])


TEXTS: dict[str, tuple[IcebergType, Callable[[int], Any]]] = {
    "objects": (StringType(), lambda n: [{}, {"v": [{"f1": None}] * n}]),
    "a column": (StringType(), lambda n: column([{}] * n, pa.list_(NAMED))),
    "a text of JSON": (StringType(), lambda n: json_column(json.dumps([{"f1": None}] * n))),
    "elements": (ListType(2, StringType(), False), lambda n: column([{}] * n, pa.list_(NAMED))),
    "moments": (
        StringType(),
        lambda n: column([{}] * n, pa.list_(pa.struct([("f1", pa.timestamp("us"))]))),
    ),
    "keys": (
        MapType(2, StringType(), 3, LongType(), value_required=False),
        lambda n: column([({"f1": i}, 1) for i in range(n)], pa.map_(NAMED, pa.int64())),
    ),
    "keys of keys": (StringType(), lambda n: deep_keys(n // 8)),
    "decimals": (ListType(2, StringType(), False), lambda n: scaled(9 * n)),
}


@pytest.mark.parametrize("form", TEXTS)
def test_a_record_whose_nested_values_make_too_much_text_is_bad_alone(form: str) -> None:
    """20 elements make less than 800 characters, and 100 make more."""
    kind, data = TEXTS[form]
    assert not converter(kind, 100).convert(Values(data(20), False)).bad
    found = converter(kind, 100).convert(Values(data(100), False))
    assert [error.index for error in found.bad] == [1]
    assert "more than 8 times iceberg.limits.cells = 100" in found.bad[0].reason
    assert (found.rows and found.rows.num_rows, [*found.index]) == (1, [0])


def test_the_texts_of_a_record_count_together() -> None:
    columns = [NestedField(i, f"v{i}", StringType(), required=False) for i in (1, 2)]
    table = TableConverter("db.t", Schema(*columns), Evolution(evolve=False), {}, Limits(cells=100))
    value = [{"f1": None}] * 40
    assert [error.index for error in table.convert(Values([{"v1": value}, {"v1": value, "v2": value}], False)).bad] == [
        1
    ]


def test_records_with_too_much_text_together_are_to_be_divided() -> None:
    table, value = converter(StringType(), 100), {"v": [{"f1": None}] * 60}
    with pytest.raises(FullBlockError):
        table.convert(Values([value] * 10, False))
    assert not table.convert(Values([value] * 4, False)).bad


HOSTILE = """
import json, resource, sys
import pyarrow as pa
from pathlib import Path
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType, StructType
from calving.model.offsets import Range
from calving.model.record_path import (
    ConverterSpec, Evolution, Limits, RecordPath, RouteRule, Routing, Tolerance, TopicConverters,
)
from calving.model.tables import TableSpec
from calving.tasks.selection import Timings
from calving.tasks.pipeline import Pipeline
from calving.tasks.spec import TaskSpec
from harness.blocks import Given

_, folder, form, columns, cells, elements, records = sys.argv
names = [f"f{i}" + "x" * 500 * (form == "text") for i in range(int(columns))]
wide = StructType(*(NestedField(100 + i, name, LongType(), required=False) for i, name in enumerate(names)))
kind = StringType() if form == "text" else ListType(2, wide, element_required=False)
table = Schema(NestedField(1, "v", kind, required=False))
spec = TableSpec("db.t", table.model_dump_json(), UNPARTITIONED_PARTITION_SPEC.model_dump_json(), "file://" + folder, {}, {})
declared = {"type": "struct", "fields": [{"field": "v", "type": "array", "optional": True, "items": {
    "type": "struct", "optional": True, "fields": [{"field": n, "type": "int64", "optional": True} for n in names]}}]}
options = {"schemas.enable": "true"} if form != "plain" else {}
converters = {"": TopicConverters(value=ConverterSpec("json", options))}
path = RecordPath({}, Routing((RouteRule("db.t"),)), Evolution(evolve=False), converters, (), Tolerance("topic"),
                  limits=Limits(cells=int(cells)))
task = TaskSpec(0, (), path, {"db.t": spec}, {})

def run(elements, records):
    payload = b'{"v":[' + b",".join([b"{}"] * elements) + b"]}"
    value = b'{"schema":%s,"payload":%s}' % (json.dumps(declared).encode(), payload) if options else payload
    pipeline = Pipeline(task, Timings())
    accounts = pipeline.run(
        Given(Range("t", 0, 0, records), 0, [value] * records))
    pipeline.writers.discard()
    return accounts

run(1, 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
outcome = run(int(elements), int(records))
print(json.dumps([outcome.written, len(outcome.bad), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024]))
"""


def grown(folder: Any, native: str, *hostile: object) -> tuple[int, int, int]:
    """Records that are written, and bad ones, of a process that ran ``HOSTILE``, and the megabytes that it took."""
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(folder), *map(str, hostile)],
        env={"CALVING_NATIVE": native, "PATH": "", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    written, bad, megabytes = json.loads(done.stdout)
    return written, bad, megabytes


@pytest.mark.parametrize(("native", "form"), [("1", "plain"), ("0", "envelope")])
@pytest.mark.parametrize(
    ("columns", "cells", "elements", "records", "written", "most_mb"),
    [(1_000, 5_000_000, 250_000, 1, 0, 150), (100, 500_000, 4_000, 30, 30, 300)],  # 2 GB; 30 times 3 MB
    ids=["a record beyond the limit", "many records within the limit"],
)
def test_short_elements_of_wide_structs_take_a_bounded_part_of_a_processs_memory(
    tmp_path: Any,
    form: str,
    native: str,
    columns: int,
    cells: int,
    elements: int,
    records: int,
    written: int,
    most_mb: int,
) -> None:
    """What Rust and Arrow allocate counts, too. Columns stand several times while they are converted."""
    found = grown(tmp_path, native, form, columns, cells, elements, records)
    assert found[:2] == (written, records - written)
    assert found[2] < most_mb


@pytest.mark.parametrize(
    ("cells", "elements", "records", "written", "most_mb"),
    [(5_000_000, 20_000, 1, 0, 200), (100_000, 75, 60, 60, 110)],  # 200 MB of text; 60 times 0.8 MB
    ids=["a record beyond the limit", "many records within the limit"],
)
def test_texts_of_nested_values_take_a_bounded_part_of_a_processs_memory(
    tmp_path: Any, cells: int, elements: int, records: int, written: int, most_mb: int
) -> None:
    found = grown(tmp_path, "1", "text", 20, cells, elements, records)
    assert found[:2] == (written, records - written)
    assert found[2] < most_mb
