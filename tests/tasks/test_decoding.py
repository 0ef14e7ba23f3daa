"""How often the bytes of a record are decoded."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.converters.interface import Decoded
from calving.model.ranges import Range
from calving.model.record_path import RecordPath, RouteRule, Routing, Tolerance
from calving.model.tables import TableSpec
from calving.records.fields import Projection
from calving.records.payloads import Payloads
from calving.tasks.decoding import Decoders
from calving.tasks.delivery import Delivery
from calving.tasks.pipeline import Pipeline
from calving.tasks.spec import TaskSpec
from calving.tasks.timings import Timings
from harness.blocks import Given

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

    def counted(self: Decoders, topic: str, use: str, values: Payloads, projection: Projection | None) -> Decoded:
        decoded.update(value for value in values if value is not None)
        return decode(self, topic, use, values, projection)

    decode = Decoders.decode
    monkeypatch.setattr(Decoders, "decode", counted)
    tables = {name: known(name, number, tmp_path) for number, name in enumerate(TABLES)}
    spec = TaskSpec(0, (), RecordPath({}, routing, tolerance=Tolerance("topic")), tables, frozenset())
    delivery = Delivery(spec, Timings())
    values = [f'{{"id":{i},"to":"{TABLES[i % 3]}","n{i % 3}":{i}}}'.encode() for i in range(30)]
    outcome = Pipeline(spec, delivery, Timings()).run(Given(Range("t", 0, 0, 30), 0, values))
    delivery.writers.discard()
    assert outcome.written == 30
    assert decoded == Counter(values)
