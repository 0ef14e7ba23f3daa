"""What one record may put into a table's metadata: partition values and column names of a bounded length."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType

from calving.iceberg.rules import TableRules, TableSettings
from calving.model.record_path import Evolution, RouteRule, Routing
from calving.model.tables import RowMutations
from calving.records.inferred import InferredType
from tests.fuzz.sink import Run, Sink, Target

ONE, CREATE = Routing((RouteRule("db.t"),)), Evolution(create=True, evolve=True)
EVOLVE = Evolution(evolve=True)
LARGE = "x" * 8193
TO_HARD_DELETE = TableRules(defaults=TableSettings(id_columns=("id",), mutations=RowMutations(cdc_field="op")))
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


def columns(sink: Sink) -> list[str]:
    return sink.table("db.t").schema().column_names


@pytest.mark.parametrize("rules", [TableRules(), TO_HARD_DELETE], ids=["appended", "changed"])
@pytest.mark.parametrize("distribution", ["none", "hash"])
def test_a_record_that_only_the_writer_refuses_adds_no_column(sink: Sink, rules: TableRules, distribution: str) -> None:
    there = partitioned(IdentityTransform(), **{"write.distribution-mode": distribution})
    records = lines({"id": 1, "p": LARGE, "bad": 1}, {"id": 2, "p": "a", "good": 1}, {"id": 3, "p": LARGE})
    found = sink.take(Run(ONE, EVOLVE, rules=rules, slots=2), [there], records)
    assert found.error is None and found.dead == {0: "WRITING", 2: "WRITING"}
    assert columns(sink) == ["id", "p", "good"]


def test_a_record_that_only_the_writer_refuses_widens_no_column(sink: Sink) -> None:
    kinds: list[IcebergType] = [IntegerType(), IntegerType()]
    fields = (
        NestedField(i, name, kind, required=False) for i, name, kind in zip((1, 2), ("id", "p"), kinds, strict=True)
    )
    part = PartitionField(source_id=2, field_id=1000, transform=TruncateTransform(10), name="part")
    there = Target("db.t", Schema(*fields), PartitionSpec(part))
    found = sink.take(Run(ONE, EVOLVE), [there], lines({"id": 1, "p": -(2**63)}, {"id": 2**40, "p": 1}))
    assert found.error is None and found.dead == {0: "WRITING"}
    assert [str(field.field_type) for field in sink.table("db.t").schema().fields] == ["long", "int"]


def test_a_record_that_only_the_writer_refuses_leaves_a_column_required(sink: Sink) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "p", StringType(), required=False))
    there = Target("db.t", schema, partitioned(IdentityTransform()).spec)
    found = sink.take(Run(ONE, EVOLVE), [there], lines({"p": LARGE}, {"id": 2, "p": "a"}))
    assert found.error is None and found.dead == {0: "WRITING"}
    assert sink.table("db.t").schema().find_field("id").required


def test_a_record_that_only_one_of_its_tables_refuses_changes_none_of_them(sink: Sink) -> None:
    both = Routing((RouteRule("db.t"), RouteRule("db.u"), RouteRule("db.new")))
    other = Target("db.u", Schema(NestedField(1, "id", LongType(), required=False)))
    found = sink.take(Run(both, CREATE), [partitioned(IdentityTransform()), other], lines({"id": 1, "p": LARGE}))
    assert found.error is None and found.dead == {0: "WRITING"}
    assert sink.table("db.u").schema().column_names == ["id"]
    assert sorted(found.tables) == ["db.t", "db.u"]


def created(properties: Mapping[str, str] | None = None, **settings: Any) -> TableRules:
    return TableRules(create_properties=properties or {}, tables={"db.t": TableSettings(**settings)})


P: Mapping[str, InferredType] = {"p": "string"}
TS: Mapping[str, InferredType] = {"ts": "timestamptz"}
REFUSED = [
    (created(partition_by=("p",)), {"p": LARGE}, "column 'p': its partition value has 8193 bytes, more than 8192"),
    (created(partition_by=("p",), columns=P), {"p": LARGE}, "column 'p': its partition value has 8193 bytes"),
    (created(partition_by=("truncate(n, 10)",)), {"n": -(2**63)}, "column 'n': Iceberg cannot hold the truncate[10]"),
    (
        created({"write.format.default": "orc"}, columns=TS),
        {"ts": "1969-12-31T23:59:59.5Z"},
        "column 'ts': ORC files cannot hold a timestamp before 1970",
    ),
]


@pytest.mark.parametrize(("rules", "bad", "why"), REFUSED, ids=["text", "declared", "truncate", "format"])
def test_a_record_that_only_the_writer_refuses_creates_no_table(
    sink: Sink, rules: TableRules, bad: Mapping[str, Any], why: str
) -> None:
    found = sink.take(Run(ONE, CREATE, rules=rules), [], lines({**bad, "bad": 1}))
    assert found.error is None and list(found.dead) == [0] and found.tables == {}
    assert found.reasons[0].startswith(f"table db.t: {why}")


@pytest.mark.parametrize(("rules", "bad", "why"), REFUSED, ids=["text", "declared", "truncate", "format"])
def test_a_new_table_has_no_column_of_a_record_that_only_the_writer_refuses(
    sink: Sink, rules: TableRules, bad: Mapping[str, Any], why: str
) -> None:
    good = {name: 1 if name == "n" else "2020-01-01T00:00:00Z" for name in bad}
    found = sink.take(Run(ONE, CREATE, rules=rules), [], lines({**bad, "bad": 1}, {**good, "good": 1}))
    assert found.error is None and found.dead == {0: "WRITING"}
    assert found.reasons[0].startswith(f"table db.t: {why}")
    assert sorted(columns(sink)) == sorted([*bad, "good"])


def test_a_delete_creates_a_table_whatever_partition_its_row_was_in(sink: Sink) -> None:
    settings = TableSettings(("p",), ("id",), mutations=RowMutations(cdc_field="op"))
    rules = TableRules(tables={"db.t": settings})
    found = sink.take(Run(ONE, CREATE, rules=rules), [], lines({"id": 1, "p": LARGE, "op": "d"}))
    assert found.error is None and found.dead == {} and list(found.tables) == ["db.t"]
