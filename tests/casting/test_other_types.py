"""Values that their columns cannot hold, as texts beside these (``on-other-type = text-column``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, StringType, StructType

from calving.converters.native import SWITCH
from calving.model.record_path import ConverterSpec, Evolution, Limits, TopicConverters
from calving.model.tables import RowMutations
from tests.converters.test_envelope import envelope
from tests.mutations.changing import NAME, Changing, Message

GROWING = Evolution(create=True, evolve=True, texts_beside=True)


@pytest.fixture(params=["1", "0"], ids=["native", "exact"], autouse=True)
def _native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(SWITCH, request.param)
    yield


def put(key: int, **row: Any) -> Message:
    return None, {"id": key, **row}


def sink_of(folder: Path, evolution: Evolution = GROWING, **more: Any) -> Changing:
    return Changing(folder, more.pop("mutations", None), (), evolution=evolution, **more)


def sink_with(folder: Path, *columns: NestedField, **more: Any) -> Changing:
    sink = sink_of(folder, **more)
    sink.catalog.create_namespace("db")
    sink.catalog.create_table(NAME, Schema(column(1, "id", LongType()), *columns))
    return sink


def column(number: int, name: str, kind: IcebergType, *, required: bool = False) -> NestedField:
    return NestedField(number, name, kind, required=required)


def test_a_text_in_a_column_of_numbers_comes_into_a_column_beside_it(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    sink.take(put(1, v=1, w=1))
    outcome = sink.take(put(2, v=2, w=2), put(3, v="three", w=3), put(4, v=4, w=4))
    assert outcome.dead_letters == ()
    assert sink.rows("id", "v", "v_text", "w") == [
        (1, 1, None, 1),
        (2, 2, None, 2),
        (3, None, "three", 3),
        (4, 4, None, 4),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (1.5, "1.5"), (2**70, str(2**70)), ({"b": 1, "a": [None]}, '{"b":1,"a":[null]}'), ([], "[]")],
    ids=str,
)
def test_every_value_has_the_text_that_a_text_column_has(tmp_path: Path, value: Any, text: str) -> None:
    sink = sink_with(tmp_path, column(2, "v", LongType()), column(3, "t", StringType()))
    sink.take(put(1, v=value, t=value))
    assert sink.rows("v", "v_text", "t") == [(None, text, text)]


def test_a_struct_with_an_unfit_field_becomes_a_text_as_a_whole(tmp_path: Path) -> None:
    of = StructType(column(10, "x", LongType()), column(11, "y", LongType()))
    sink = sink_with(
        tmp_path, column(2, "s", of), column(3, "s_text", StringType()), evolution=Evolution(texts_beside=True)
    )
    sink.take(put(1, s={"y": "no", "x": 1}), put(2, s={"x": 1, "y": 2}))
    assert sink.rows("id", "s", "s_text") == [(1, None, '{"y":"no","x":1}'), (2, {"x": 1, "y": 2}, None)]


def test_several_columns_of_a_record_are_moved(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, column(2, "v", LongType()), column(3, "w", LongType()))
    sink.take(put(1, v="a", w="b"), put(2, v=1, w="c"))
    assert sink.rows("id", "v", "v_text", "w", "w_text") == [(1, None, "a", None, "b"), (2, 1, None, None, "c")]


def test_without_evolution_the_column_has_to_be_there(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, column(2, "v", LongType()), evolution=Evolution(texts_beside=True))
    outcome = sink.take(put(1, v="a"), put(2, v=2))
    assert sink.reasons(outcome) == [(0, f"table {NAME}: field 'v': 'a' is not a long: not an integer")]
    assert sink.rows("id", "v") == [(2, 2)]


BAD: dict[str, tuple[list[NestedField], dict[str, Any]]] = {
    "the column beside it has another type": ([column(3, "v_text", LongType())], {"v": "a"}),
    "the record has a field of that name": ([column(3, "v_text", StringType())], {"v": "a", "v_text": "b"}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_record_is_bad_if(tmp_path: Path, case: str) -> None:
    columns, row = BAD[case]
    sink = sink_with(tmp_path, column(2, "v", LongType()), *columns)
    outcome = sink.take(put(1, **row), put(2, v=2))
    assert sink.reasons(outcome) == [(0, f"table {NAME}: field 'v': 'a' is not a long: not an integer")]
    assert sink.rows("id") == [(2,)]


def test_a_required_column_becomes_optional_where_columns_evolve(tmp_path: Path) -> None:
    sink = sink_with(tmp_path, column(2, "v", LongType(), required=True))
    sink.take(put(1, v="a"), put(2, v=2))
    assert sink.rows("id", "v", "v_text") == [(1, None, "a"), (2, 2, None)]


def test_keys_stay_where_they_are(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, mutations=RowMutations(upsert=True)).with_(id_columns=("id",))
    sink.take(put(1, v=1))
    outcome = sink.take((None, {"id": "x", "v": 1}), put(1, v="a"))
    assert sink.reasons(outcome) == [(1, f"table {NAME}: field 'id': 'x' is not a long: not an integer")]
    assert sink.rows("id", "v", "v_text") == [(1, None, "a")]
    sink.take(put(1, v=3))
    assert sink.rows("id", "v", "v_text") == [(1, 3, None)]


def test_a_type_that_changes_in_connect_s_schema_changes_no_other_column(tmp_path: Path) -> None:
    converters = TopicConverters(ConverterSpec("json"), ConverterSpec("json", {"schemas.enable": "true"}))
    sink = sink_of(tmp_path, converters=converters)
    of: list[dict[str, Any]] = [{"field": "id", "type": "int32"}, {"field": "v", "type": "int64", "optional": True}]
    text = [
        of[0],
        {"field": "v", "type": "string", "optional": True},
        {"field": "n", "type": "int32", "optional": True},
    ]
    sink.take((None, envelope(of, {"id": 1, "v": 1})))
    sink.take((None, envelope(text, {"id": 2, "v": "a", "n": 5})), (None, envelope(text, {"id": 3, "v": "7", "n": 6})))
    assert sink.rows("id", "v", "v_text", "n") == [(1, 1, None, None), (2, None, "a", 5), (3, 7, None, 6)]
    assert str(sink.table.schema().find_type("n")) == "int"


@pytest.mark.parametrize("block", [1, 2, 7])
def test_a_record_becomes_the_same_among_others(tmp_path: Path, block: int) -> None:
    sink = sink_with(tmp_path, column(2, "v", LongType()), limits=Limits(block_records=block))
    values: list[Any] = [1, "a", None, {"k": 1}, 2**70, "5", [1], 8]
    sink.take(*(put(i, v=value) for i, value in enumerate(values)))
    assert sink.rows("id", "v", "v_text") == [
        (0, 1, None), (1, None, "a"), (2, None, None), (3, None, '{"k":1}'),
        (4, None, str(2**70)), (5, 5, None), (6, None, "[1]"), (7, 8, None),
    ]  # fmt: skip
