"""How often the bytes of a record are decoded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.converters.interface import Converter, Decoded
from calving.model.dead_letters import Stage
from calving.model.offsets import Range
from calving.model.record_path import (
    ConverterSpec,
    Limits,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.model.tables import RowMutations, TableSpec
from calving.records.fields import Projection
from calving.records.values import Payloads, RecordError, Values
from calving.tasks.decode import Decoders
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Timings
from calving.tasks.spec import TaskSpec
from harness.blocks import Given
from tests.mutations.changing import Changing

TABLES = ("db.a", "db.b", "db.c")
BY_RULE = Routing(tuple(RouteRule(table, table) for table in TABLES), field="to")
BY_NAME = Routing(field="to", dynamic=True)


def known(name: str, number: int, folder: Path) -> TableSpec:
    """A table with a column of its own."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False), NestedField(2, f"n{number}", LongType(), required=False)
    )
    spec = UNPARTITIONED_PARTITION_SPEC.model_dump_json()
    return TableSpec(name, schema.model_dump_json(), spec, f"file://{folder}", {}, {})


@pytest.mark.parametrize("routing", [BY_RULE, BY_NAME], ids=["by rule", "by name"])
def test_a_record_with_a_route_field_is_decoded_once(
    routing: Routing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: Counter[bytes] = Counter()

    def counted(
        self: Decoders, topic: str, use: str, values: Payloads, projection: Projection | None
    ) -> Iterator[Decoded]:
        decoded.update(value for value in values if value is not None)
        return decode(self, topic, use, values, projection)

    decode = Decoders.decode
    monkeypatch.setattr(Decoders, "decode", counted)
    tables = {name: known(name, number, tmp_path) for number, name in enumerate(TABLES)}
    spec = TaskSpec(0, (), RecordPath({}, routing, tolerance=Tolerance("topic")), tables, {})
    pipeline = Pipeline(spec, Timings())
    values = [f'{{"id":{i},"to":"{TABLES[i % 3]}","n{i % 3}":{i}}}'.encode() for i in range(30)]
    accounts = pipeline.run(Given(Range("t", 0, 0, 30), 0, values))
    pipeline.writers.discard()
    assert accounts.written == 30
    assert decoded == Counter(values)


class Careless(Converter):
    """Returns the first value twice, the second one never, the last one also as bad, and one that it did not get."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        last = len(values) - 1
        places = [0, 0, *range(2, last + 1), last + 1]
        column = pa.array([{"a": place} for place in places])
        bad = RecordError(last, Stage.VALUE_CONVERTER, "ValueError", "odd")
        return Decoded([Values(column, True, places)], [bad])


def test_a_value_is_bad_that_a_converter_returns_several_times_or_never(tmp_path: Path) -> None:
    careless = TopicConverters(value=ConverterSpec("tests.tasks.test_decoding:Careless"))
    sink = Changing(tmp_path, None, (), converters=careless, limits=Limits(block_records=50))
    outcome = sink.take(*[(None, {"a": i}) for i in range(5)])
    assert sink.rows("a") == [(2,), (3,)]
    several, never = (f"its converter has returned {what} for it" for what in ("several results", "nothing"))
    assert sink.reasons(outcome) == [(0, several), (1, never), (4, several)]


def test_keys_are_divided_as_values_are() -> None:
    """Each of 8 keys fits; together they have twice the cells that may stand at the same time."""
    fields = [{"field": f"f{i}", "type": "int64", "optional": True} for i in range(50)]
    items = {"type": "struct", "fields": fields, "optional": True}
    key = {
        "schema": {"type": "struct", "fields": [{"field": "a", "type": "array", "items": items}]},
        "payload": {"a": [{}] * 19},
    }
    converters = {"": TopicConverters(key=ConverterSpec("json", {"schemas.enable": "true"}))}
    path = RecordPath({}, Routing((RouteRule("db.a"),)), converters=converters, limits=Limits(cells=1_000))
    decoders = Decoders(TaskSpec(0, (), path, {}, {}))
    parts = [*decoders.keys("t", Payloads.of([json.dumps(key).encode()] * 8))]
    assert [[[*values.index] for values in part.values] for part in parts] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]


LONG = {"id": "x" * 1_024}
TOO_LONG = [(1, "1034 bytes are more than iceberg.limits.record-bytes = 1024")]


def test_a_tombstone_whose_key_is_larger_than_the_limit_is_bad(tmp_path: Path) -> None:
    deletes = RowMutations(upsert=True, tombstones="delete")
    sink = Changing(tmp_path, deletes, limits=Limits(record_bytes=1_024))
    sink.take(({"id": "a"}, {"id": "a"}))
    outcome = sink.take((LONG, None), ({"id": "a"}, None))
    assert (sink.reasons(outcome), sink.rows("id")) == (TOO_LONG, [])


def test_a_record_whose_key_is_larger_than_the_limit_is_bad_if_a_transform_reads_keys(tmp_path: Path) -> None:
    hoist = TransformSpec("hoist", "org.apache.kafka.connect.transforms.HoistField$Key", {"field": "k"})
    sink = Changing(tmp_path, None, (), transforms=(hoist,), limits=Limits(record_bytes=1_024))
    outcome = sink.take(({"id": "a"}, {"v": 1}), (LONG, {"v": 2}), (None, {"v": 3}))
    assert (sink.reasons(outcome), sink.rows("v")) == (TOO_LONG, [(1,), (3,)])
