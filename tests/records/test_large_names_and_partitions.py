"""What one record may put into a table's metadata: partition values and column names of a bounded length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType

from calving.iceberg.rules import TableRules, TableSettings
from calving.model.record_path import Evolution, RouteRule, Routing
from calving.model.tables import RowMutations
from tests.fuzz.sink import Run, Sink, Target

ONE, CREATE = Routing((RouteRule("db.t"),)), Evolution(create=True, evolve=True)
LONGEST = 8192


@pytest.fixture(scope="module")
def sink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sink]:
    made = Sink(tmp_path_factory.mktemp("sink") / "warehouse")
    yield made
    made.close()


def lines(*records: Mapping[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def partitioned(transform: Transform[Any, Any], **properties: str) -> Target:
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
    spec = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=transform, name="part"))
    return Target("db.t", schema, spec, properties=properties)


@pytest.mark.parametrize("distribution", ["none", "hash"])
def test_a_record_with_a_large_partition_value_is_bad_alone(sink: Sink, distribution: str) -> None:
    there = partitioned(IdentityTransform(), **{"write.distribution-mode": distribution})
    texts = ["ü" * (LONGEST // 2), "x" + "ü" * (LONGEST // 2), None, "eu"]
    records = lines(*({"id": i, "p": text} for i, text in enumerate(texts)))
    found = sink.take(Run(ONE, slots=2), [there], records)
    assert found.error is None and len(list(found.rows["db.t"].elements())) == 3
    assert found.reasons == {1: "table db.t: column 'p': its partition value has 8193 bytes, more than 8192"}


def test_a_long_text_is_taken_where_its_partition_value_is_short(sink: Sink) -> None:
    found = sink.take(Run(ONE), [partitioned(TruncateTransform(LONGEST))], lines({"id": 1, "p": "x" * 100_000}))
    assert found.error is None and found.reasons == {}


def test_a_change_to_a_row_with_a_large_partition_value_is_bad_and_its_delete_is_not(sink: Sink) -> None:
    mutations = RowMutations(cdc_field="op")
    rules = TableRules(defaults=TableSettings(id_columns=("id", "p"), mutations=mutations))
    large = "x" * (LONGEST + 1)
    records = lines({"id": 1, "p": large, "op": "d"}, {"id": 2, "p": large, "op": "c"}, {"id": 3, "p": "a", "op": "c"})
    found = sink.take(Run(ONE, rules=rules), [partitioned(IdentityTransform())], records)
    assert found.error is None and list(found.reasons) == [1]
