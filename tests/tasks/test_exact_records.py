"""Only the records that the decoders in Rust refuse are decoded one by one, whatever stands beside the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partialmethod
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from calving.converters.avro import AvroConverter
from calving.converters.envelope import EnvelopeConverter
from calving.converters.interface import Decoded
from calving.model.offsets import Range
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.model.tables import TableSpec
from calving.records.jsontext import parse_all
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Accounts, Timings
from calving.tasks.spec import TaskSpec
from harness.blocks import Given

pytest.importorskip("calving_native")
COUNT = 1_000
TABLE = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", StringType(), required=False))
AVRO = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}
CONNECT = {"type": "struct", "fields": [{"field": "id", "type": "int64"}, {"field": "s", "type": "string"}]}
BAD = b'\xff{"'


def of_avro(row: dict[str, Any]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, AVRO, row)
    return out.getvalue()


Form = tuple[ConverterSpec, Callable[[dict[str, Any]], bytes]]
FORMS: dict[str, Form] = {
    "json": (ConverterSpec("json"), lambda row: json.dumps(row).encode()),
    "envelope": (
        ConverterSpec("json", {"schemas.enable": "true"}),
        lambda row: json.dumps({"schema": CONNECT, "payload": row}).encode(),
    ),
    "avro": (ConverterSpec("avro", {"schema": json.dumps(AVRO)}), of_avro),
}


def run(
    folder: Path,
    converter: ConverterSpec,
    routing: Routing,
    values: Sequence[bytes | None],
    *transforms: TransformSpec,
) -> Accounts:
    specs = {
        rule.table: TableSpec(
            rule.table,
            TABLE.model_dump_json(),
            UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
            f"file://{folder}/{rule.table}",
            {},
            {},
        )
        for rule in routing.rules
    }
    converters = {"": TopicConverters(value=converter)}
    path = RecordPath({}, routing, Evolution(), converters, transforms, Tolerance("topic"))
    spec = TaskSpec(0, (), path, specs, {})
    pipeline = Pipeline(spec, Timings())
    accounts = pipeline.run(Given(Range("t", 0, 0, len(values)), 0, values))
    pipeline.writers.discard()
    return accounts


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The values that are decoded without Rust."""
    seen: list[bytes] = []

    def parsing(values: Sequence[bytes], nesting: int) -> Any:
        seen.extend(values)
        return parse_all(values, nesting)

    def decoding(self: Any, values: Sequence[bytes], together: Any, decode: Callable[..., Decoded]) -> Decoded:
        seen.extend(values)
        return decode(self, values, together)

    monkeypatch.setattr("calving.converters.json.parse_all", parsing)
    for converter in (AvroConverter, EnvelopeConverter):
        monkeypatch.setattr(converter, "_decode", partialmethod(decoding, decode=converter._decode))
    return seen


@pytest.mark.parametrize("form", FORMS)
def test_tombstones_and_bad_records_are_all_that_is_not_decoded_together(
    form: str, tmp_path: Path, one_by_one: list[bytes]
) -> None:
    converter, encode = FORMS[form]
    values: list[bytes | None] = [encode({"id": i, "s": f"é{i}"}) for i in range(COUNT)]
    values[::5] = [None] * (COUNT // 5)
    values[1::97] = [BAD] * len(values[1::97])
    outcome = run(tmp_path, converter, Routing((RouteRule("db.t"),)), values)
    bad = values.count(BAD)
    assert one_by_one == [BAD] * bad
    assert (outcome.filtered["tombstone"], len(outcome.bad)) == (values.count(None), bad)
    assert outcome.written == COUNT - values.count(None) - bad


@pytest.mark.parametrize("form", FORMS)
def test_records_that_a_field_routes_are_decoded_together(form: str, tmp_path: Path, one_by_one: list[bytes]) -> None:
    converter, encode = FORMS[form]
    values = [encode({"id": i, "s": "ab"[i % 2]}) for i in range(COUNT)]
    values[7] = BAD
    routing = Routing((RouteRule("db.a", "a"), RouteRule("db.b", "b")), field="s")
    outcome = run(tmp_path, converter, routing, values)
    assert one_by_one == [BAD]
    assert outcome.written == COUNT - 1


@pytest.mark.parametrize("form", FORMS)
def test_records_that_transforms_change_are_decoded_together(
    form: str, tmp_path: Path, one_by_one: list[bytes]
) -> None:
    converter, encode = FORMS[form]
    values: list[bytes | None] = [encode({"id": i, "s": f"x{i}"}) for i in range(COUNT)]
    values[500], values[600] = BAD, None
    masks = TransformSpec("m", "MaskField", {"fields": "s", "replacement": "y"})
    outcome = run(tmp_path, converter, Routing((RouteRule("db.t"),)), values, masks)
    assert one_by_one == [BAD]
    assert outcome.written + outcome.filtered.total() == COUNT - 1
