"""What one record asks of a table stops no other table: the record is bad, whatever comes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField

from calving.errors import AccessDeniedError
from calving.iceberg.rules import TableSettings
from calving.model.record_path import Evolution, Limits, RouteRule, Routing
from calving.model.tables import SOFT_DELETE_FIELD, RowMutations
from tests.iceberg.refusing import NOT_ALLOWED, deny, refuse_columns
from tests.mutations.changing import Changing

DYNAMIC = Routing(field="to", dynamic=True)
GOOD = {"to": "db.good", "id": 1, "ts": "2024-05-06T12:00:00Z", "v": 1}
Make = Callable[..., Changing]


@pytest.fixture
def sink(tmp_path: Path) -> Make:
    def make(**settings: Any) -> Changing:
        defaults = {
            "mutations": None,
            "id_columns": (),
            "routing": DYNAMIC,
            "evolution": Evolution(create=True, evolve=True),
            "name": "db.good",
            "slots": 2,
        }
        return Changing(tmp_path, **defaults | settings)

    return make


def reason_of(sink: Changing, poison: dict[str, Any], *, good: dict[str, Any] = GOOD) -> str:
    """Why the poison is bad. It comes between two good records, which are written."""
    outcome = sink.take((None, good), (None, poison), (None, {**good, "id": 2}))
    ((offset, reason),) = sink.reasons(outcome)
    assert offset == 1
    assert len(sink.rows("id")) == 2
    return reason


@pytest.mark.parametrize(
    ("term", "poison", "sentence"),
    [
        ("day(ts)", {"id": 1}, "partition-by 'day(ts)': there is no column 'ts': no record of this batch has a value"),
        ("day(ts)", {"ts": True}, "partition-by 'day(ts)' cannot be applied to a boolean: declare another type"),
        ("day(ts)", {"ts": {"a": 1}}, "partition-by 'day(ts)' cannot be applied to a struct<a: long>"),
        ("day(ts)", {"ts": [1]}, "partition-by 'day(ts)' cannot be applied to a list<long>"),
        ("bucket(v, 4)", {"v": 1.5}, "partition-by 'bucket(v, 4)' cannot be applied to a double"),
        ("v", {"v": {"a": 1}}, "partition-by 'v' cannot be applied to a struct<a: long>"),
        ("truncate(v, 2)", {"v": False}, "partition-by 'truncate(v, 2)' cannot be applied to a boolean"),
    ],
)
def test_a_record_that_lacks_what_a_new_table_is_partitioned_by_is_bad(
    sink: Make, term: str, poison: dict[str, Any], sentence: str
) -> None:
    made = sink(partition_by=(term,))
    reason = reason_of(made, {"to": "db.new", **poison})
    assert reason.startswith(f"table db.new: {sentence}")
    assert 'iceberg.table.db.new.columns = "' in reason
    assert not made.catalog.table_exists("db.new")


@pytest.mark.parametrize("poison", [{"v": 1.5}, {"v": [1]}])
def test_a_wrong_type_in_the_column_of_a_term_is_bad_beside_a_right_one_of_the_same_new_table(
    sink: Make, poison: dict[str, Any]
) -> None:
    made = sink(partition_by=("bucket(v, 4)",), routing=Routing((RouteRule("db.good"),)))
    reason_of(made, poison)
    assert str(made.table.schema().find_type("v")) == "long"


def test_an_object_is_bad_where_a_struct_with_the_column_of_a_term_should_be(sink: Make) -> None:
    made = sink(partition_by=("day(meta.at)",))
    good = {"to": "db.good", "id": 1, "meta": {"at": "2024-05-06T12:00:00Z"}}
    sentence = "partition-by 'day(meta.at)': the record has no object around 'meta.at', but a string"
    assert sentence in reason_of(made, {"to": "db.new", "meta": "x"}, good=good)
    ((_, reason),) = made.reasons(made.take((None, good), (None, {"to": "db.good", "meta": "x"})))
    assert "field 'meta': 'x' is not an object" in reason


def test_a_type_that_all_tables_declare_brings_no_column_into_a_new_one(sink: Make) -> None:
    good: dict[str, Any] = {**GOOD, "lsn": 1, "meta": {"at": GOOD["ts"]}}
    made = sink(
        mutations=RowMutations(upsert=True, order_field="lsn"),
        id_columns=("id",),
        partition_by=("day(meta.at)",),
        types={"lsn": "long", "meta.at": "timestamptz"},
    )
    odd: list[tuple[dict[str, Any], str]] = [
        ({"lsn": None}, "no value for the order-field 'lsn'"),
        ({"meta": "x"}, "no object around"),
    ]
    for poison, sentence in odd:
        outcome = made.take((None, {**good, "to": "db.new", **poison}), (None, good))
        assert [sentence in reason for _, reason in made.reasons(outcome)] == [True]


def test_a_record_without_the_column_of_a_term_goes_into_a_table_that_others_of_its_batch_create(sink: Make) -> None:
    made = sink(partition_by=("day(ts)",))
    assert not made.take((None, {"to": "db.good", "id": 1, "w": 7}), (None, {**GOOD, "id": 2})).dead_letters
    made.take((None, {"to": "db.good", "id": 3}))
    assert made.rows("id", "w") == [(1, 7), (2, None), (3, None)]


def test_a_table_of_another_version_or_without_id_columns_takes_no_records_and_stops_no_other(sink: Make) -> None:
    made = sink(mutations=RowMutations(upsert=True), id_columns=("id",), tables={"db.good": TableSettings()})
    made.catalog.create_namespace("db")
    made.catalog.create_table("db.other", Schema(NestedField(1, "x", LongType(), required=False)))
    assert "table db.other: it has no column id, which is its id column" in reason_of(made, {"to": "db.other", "x": 1})


def test_a_table_that_no_file_can_be_written_for_stops_no_other(sink: Make) -> None:
    made = sink()
    made.catalog.create_namespace("db")
    schema = Schema(NestedField(1, "f", FixedType(2), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "f"))
    made.catalog.create_table("db.other", schema, partition_spec=spec)
    assert "Java cannot read a table that is partitioned by the identity" in reason_of(made, {"to": "db.other"})


@pytest.mark.parametrize("method", ["load_table", "create_table"])
def test_a_table_to_which_the_catalog_denies_access_stops_no_other(
    sink: Make, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink()
    deny(monkeypatch, made.catalog, method, "db.secret")
    reason = reason_of(made, {**GOOD, "to": "db.secret"})
    assert reason.startswith("table db.secret: it ") and "not yours" in reason


STATIC = Routing((RouteRule("db.good"),))


@pytest.mark.parametrize("routing", [DYNAMIC, STATIC], ids=["dynamic", "static"])
def test_a_column_that_the_catalog_refuses_makes_only_the_records_bad_that_bring_it(
    sink: Make, monkeypatch: pytest.MonkeyPatch, routing: Routing
) -> None:
    made = sink(routing=routing)
    made.take((None, GOOD))
    refuse_columns(monkeypatch, made.catalog, BadRequestError, "odd", "meta.odd")
    new = {"a": 1, "odd": 2, "b": 3, "meta": None}
    brought = [{key: value} for key, value in new.items()]
    outcome = made.take(*((None, {**GOOD, "id": n, **more}) for n, more in enumerate(brought, 2)))
    (bad,) = made.reasons(outcome)
    assert bad[0] == 2
    assert bad[1].startswith("table db.good: field 'odd': its column cannot be added: ")
    assert NOT_ALLOWED in bad[1]
    assert made.rows("id", "a", "b") == [(1, None, None), (2, 1, None), (4, None, 3), (5, None, None)]


def test_a_change_of_a_column_that_the_catalog_denies_makes_records_bad_that_need_it(
    sink: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink(columns={"small": "int", "single": "float"})
    made.take((None, {**GOOD, "small": 1, "single": 0.5}))
    refuse_columns(monkeypatch, made.catalog, ForbiddenError)
    odd: list[dict[str, Any]] = [{"small": 2**40}, {"single": 1e300}, {"new": 1}, {"small": 2, "single": 1.5}]
    records = [{**GOOD, "id": n, **more} for n, more in enumerate(odd, 2)] + [{**GOOD, "to": "db.other", "new": 1}]
    reasons = dict(made.reasons(made.take(*((None, record) for record in records))))
    assert [*reasons] == [1, 2, 3]
    for offset, said in enumerate(
        ["small': its column cannot be w", "single': its column cannot be w", "new': its"], 1
    ):
        assert f"table db.good: field '{said}" in reasons[offset] and NOT_ALLOWED in reasons[offset]
    assert made.rows("id") == [(1,), (5,)]
    assert made.catalog.load_table("db.other").scan().to_arrow().num_rows == 1


def test_a_missing_permission_to_change_a_table_of_the_settings_stops_the_sink_with_what_to_do(
    sink: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink(routing=STATIC)
    made.take((None, GOOD))
    refuse_columns(monkeypatch, made.catalog, ForbiddenError)
    with pytest.raises(AccessDeniedError, match=r"table db\.good: its schema was not changed \(add new\): .* login"):
        made.take((None, {**GOOD, "new": 1}))


def test_a_refused_mark_for_deleted_rows_stops_no_other_table(sink: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink(mutations=RowMutations(upsert=True, delete_mode="soft"), id_columns=("id",))
    made.catalog.create_namespace("db")
    made.catalog.create_table("db.good", Schema(NestedField(1, "id", LongType(), required=True)))
    refuse_columns(monkeypatch, made.catalog, BadRequestError, SOFT_DELETE_FIELD)
    outcome = made.take((None, GOOD), (None, {**GOOD, "to": "db.other"}))
    ((offset, reason),) = made.reasons(outcome)
    assert offset == 0 and NOT_ALLOWED in reason
    assert made.catalog.load_table("db.other").scan().to_arrow().num_rows == 1


def test_a_denied_table_alone_in_a_batch_stops_no_sink_that_has_loaded_another(
    sink: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink()
    made.take((None, GOOD))
    deny(monkeypatch, made.catalog, "load_table", "db.secret")
    made.witness = "db.good"
    ((_, reason),) = made.reasons(made.take((None, {**GOOD, "to": "db.secret"})))
    assert reason.startswith("table db.secret: it cannot be loaded: ") and "not yours" in reason


@pytest.mark.parametrize("method", ["load_table", "create_table"])
def test_a_catalog_that_denies_every_table_stops_the_sink(
    sink: Make, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = sink()
    deny(monkeypatch, made.catalog, method)
    with pytest.raises(AccessDeniedError, match="not yours"):
        made.take((None, GOOD), (None, {**GOOD, "to": "db.other"}))


def test_a_login_that_was_withdrawn_later_makes_no_record_bad(sink: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sink()
    made.take((None, GOOD))
    deny(monkeypatch, made.catalog, "load_table")
    made.witness = "db.good"
    with pytest.raises(AccessDeniedError, match="not yours"):
        made.take((None, GOOD))


@pytest.mark.parametrize("there", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("x" * 256, "it is longer than 255 bytes"),
        ("é" * 128, "it is longer than 255 bytes"),
        ("a\n", "it has control characters"),
        ("a\x85", "it has control characters"),
    ],
)
@pytest.mark.parametrize("within", [False, True], ids=["top", "inner"])
def test_a_name_that_no_column_should_have_is_bad(sink: Make, name: str, why: str, there: bool, within: bool) -> None:
    made = sink()
    if there:
        made.take((None, GOOD), (None, {**GOOD, "id": 2}))
    poison = {"to": "db.good" if there else "db.new", "inner": {name: 1}} if within else {"to": "db.good", name: 1}
    ((_, reason),) = made.reasons(made.take((None, poison), (None, GOOD)))
    assert why in reason and "rename or drop the field" in reason and len(reason) < 200 and reason.isprintable()


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "naïve 名"])
def test_names_of_up_to_255_bytes_make_columns(sink: Make, name: str) -> None:
    made = sink()
    assert not made.take((None, {**GOOD, name: 1})).dead_letters
    assert name in made.table.schema().column_names


LIMITS = Limits(block_records=3, columns=12, new_columns=5)


def test_a_record_that_alone_asks_for_too_many_columns_is_bad_and_gets_none(sink: Make) -> None:
    made = sink(limits=LIMITS)
    made.take((None, GOOD), (None, {**GOOD, "id": 2}))
    outcome = made.take((None, {**GOOD, "a": 1}), (None, {**GOOD, **{f"n{i}": 1 for i in range(6)}}), (None, GOOD))
    ((offset, reason),) = made.reasons(outcome)
    assert offset == 3
    assert reason.endswith("it would add 6 columns, more than iceberg.limits.new-columns = 5")
    assert {*made.table.schema().column_names} == {*GOOD, "a"}


def test_inner_columns_count_too(sink: Make) -> None:
    made = sink(limits=LIMITS)
    made.take((None, {**GOOD, "o": {"a": 1}, "l": [{"a": 1}]}))
    asked = {**GOOD, "l": [{"b": 1}, {"c": 1, "b": 1}]}
    six = {**asked, "o": {"b": 1, "c": 2}, "x": 1, "y": 1}
    assert "it would add 6 columns" in made.reasons(made.take((None, six)))[0][1]
    assert not made.take((None, {**asked, "o": {"b": 1}})).dead_letters  # there is room for three


def test_a_full_table_takes_the_records_that_need_no_further_column(sink: Make) -> None:
    made = sink(limits=LIMITS)
    made.take((None, GOOD))
    many = [(None, {**GOOD, "id": 10 + n, f"n{n:02}": n}) for n in range(20)]
    common = (None, {**GOOD, "zip": 1})  # most records have it
    outcome = made.take(*many, common, common, (None, GOOD))
    assert {*made.table.schema().column_names} == {*GOOD, "zip", *(f"n{n:02}" for n in range(7))}
    reasons = made.reasons(outcome)
    assert [offset for offset, _ in reasons] == [*range(8, 21)]
    assert "the table has 12 columns, and this one would exceed iceberg.limits.columns = 12" in reasons[0][1]
    assert len(made.rows("id")) == 11


def test_nested_columns_are_added_as_far_as_there_is_room(sink: Make) -> None:
    made = sink(limits=LIMITS)
    made.take((None, GOOD))
    outcome = made.take(*((None, {**GOOD, "o": {f"n{n}": {"x": 1}}}) for n in range(6)))
    assert len(made.table.schema().column_names) == 11  # a struct of three structs; one more would make 13
    assert [offset for offset, _ in made.reasons(outcome)] == [4, 5, 6]


def test_records_that_together_have_too_many_columns_create_a_table_with_those_that_most_have(sink: Make) -> None:
    made = sink(limits=LIMITS, partition_by=("day(ts)",))
    many = [(None, {**GOOD, **{f"a{n}{i}": 1 for i in range(4)}}) for n in range(3)]
    outcome = made.take(*many, (None, {**GOOD, "zip": 1}), (None, {**GOOD, "zip": 1}))
    assert len(made.table.schema().column_names) == 12
    assert {*GOOD, "zip"} <= {*made.table.schema().column_names}
    assert [offset for offset, _ in made.reasons(outcome)] == [1, 2]


def test_a_full_table_still_gets_the_column_that_marks_deleted_rows(sink: Make) -> None:
    made = sink(limits=LIMITS, routing=Routing((RouteRule("db.good"),)))
    made.take((None, {f"c{n:02}": 1 for n in range(11)} | {"id": 1}))
    soft = made.with_(mutations=RowMutations(upsert=True, delete_mode="soft"), id_columns=("id",))
    assert not soft.take((None, {"id": 1})).dead_letters
