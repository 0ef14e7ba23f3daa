"""The Rust decoder decodes exactly as the Python one, or refuses the record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, MapType, NestedField, StringType, StructType

from calving.casting.table import TableConverter
from calving.converters import native
from calving.converters.json import JsonConverter, fields_of, native_json
from calving.converters.native import Decoder, json_decoder
from calving.model.record_path import Evolution, Limits
from calving.records.arrays import entries, maps, offsets_of
from calving.records.fields import Projection
from calving.records.jsontext import parse
from calving.records.values import Payloads, Values, texts
from tests.converters.odd_json import SCHEMA, record

pytest.importorskip("calving_native")
NUMBERS = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", StringType(), required=False))
COUNT = 400
NESTING = 20
NOTHING = pa.array([], pa.struct([]))


def table(schema: Schema = NUMBERS, *, evolve: bool = False, case_insensitive: bool = False) -> TableConverter:
    return TableConverter(
        "t", schema, Evolution(evolve=evolve, case_insensitive=case_insensitive), {}, Limits(nesting=NESTING)
    )


def reader(converter: TableConverter, unknown: Any = "ignore") -> Decoder:
    found = native_json(Projection((converter.target,), unknown), Limits(nesting=NESTING))
    assert found is not None
    return found


def decoder(converter: TableConverter, *, closed: bool) -> Decoder:
    target = converter.target
    fold = target.lookup(target.columns).folds
    return json_decoder(fields_of(target), closed=closed, fold=fold, nesting=NESTING, cells=Limits().cells)


def outcome(converter: TableConverter, values: Values) -> tuple[list[str], list[str], list[str]]:
    """Rows, reasons and changes. Numbers for dates and times, of which Python has no early and no late ones."""
    found = converter.convert(values)
    columns = found.rows.columns if found.rows is not None else []
    rows = zip(*(_plain(column).to_pylist() for column in columns), strict=True)
    return list(map(repr, rows)), [bad.reason for bad in found.bad], sorted(map(repr, found.changes))


def _plain(column: pa.Array) -> pa.Array:
    if pa.types.is_temporal(column.type):
        return column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    if isinstance(column, pa.MapArray):
        keys, items = map(_plain, entries(column))
        return maps(offsets_of(column), keys, items, pa.map_(keys.type, items.type), column.is_null())
    if isinstance(column, pa.StructArray):
        inner = [_plain(child) for child in column.flatten()]
        return pa.StructArray.from_arrays(inner, column.type.names, mask=column.is_null())
    return column


MAPPED = {2: ("i", "number"), 5: ("d", "I"), 51: ("w",), 1: ("b2",), 24: ("unknown",)}


@pytest.mark.parametrize(
    ("evolve", "fold", "names"), [(False, False, {}), (True, False, {}), (False, True, {}), (True, False, MAPPED)]
)
def test_a_record_that_is_taken_has_the_row_that_the_exact_way_gives_it(
    evolve: bool, fold: bool, names: dict[int, tuple[str, ...]]
) -> None:
    random, taken = Random(str((evolve, fold, names))), 0
    evolution, limits = Evolution(evolve=evolve, case_insensitive=fold), Limits(nesting=NESTING)
    fast = TableConverter("t", SCHEMA, evolution, names, limits)
    exact = TableConverter("t", SCHEMA, evolution, names, limits, exactly=True)
    reader = decoder(fast, closed=not evolve)
    for _ in range(COUNT):
        raw = record(random)
        raw = raw.upper() if fold and random.random() < 0.3 else raw
        data, refused, _ = reader.read([raw])
        data.validate(full=True)
        assert len(data) + len(refused) == 1
        if not refused:
            taken += 1
            expected = outcome(exact, Values([parse(raw, NESTING)], False))
            assert outcome(fast, Values(data, False)) == expected, raw
    assert taken > COUNT / 3


def test_among_others_a_record_is_taken_or_refused_as_alone() -> None:
    random = Random(7)
    records = [record(random) for _ in range(COUNT)]
    reader = decoder(table(SCHEMA), closed=True)
    data, refused, _ = reader.read(records)
    data.validate(full=True)
    alone = [reader.read([raw]) for raw in records]
    assert refused == [i for i, (_, found, _) in enumerate(alone) if found]
    assert repr(_plain(data).to_pylist()) == repr([v for part, _, _ in alone for v in _plain(part).to_pylist()])


@pytest.mark.parametrize("route", ["s", "o.y", "somewhere.else", "unknown"])
def test_the_text_of_a_route_field_is_that_of_the_exact_way(route: str) -> None:
    random, taken = Random(route), 0
    found = native_json(Projection(route=route), Limits(nesting=NESTING))
    assert found is not None
    for _ in range(COUNT // 4):
        raw = record(random)
        pieces, _ = found.pieces(Payloads([raw]))
        for data, _ in pieces:
            taken += 1
            assert list(texts(data, route)) == texts([parse(raw, NESTING)], route), raw
    assert taken > COUNT / 12


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40, 64, 150])
def test_a_byte_at_any_place_of_a_text_is_what_it_is_to_json(length: int) -> None:
    """Text is read many bytes at once, the rest of it one by one."""
    odd = [*(bytes([byte]) for byte in range(256)), "é".encode(), b"\\u00e9"]
    records = [
        b'{"s":"%s","id":7}' % (b"n" * place + each + b"n" * (length - place - 1))
        for place in range(length)
        for each in odd
    ]
    data, refused, _ = decoder(table(), closed=True).read(records)
    data.validate(full=True)
    expected = {i: found for i, raw in enumerate(records) if (found := _loaded(raw)) is not None}
    assert refused == [i for i in range(len(records)) if i not in expected]
    assert data.to_pylist() == list(expected.values())


def _loaded(raw: bytes) -> dict[str, Any] | None:
    try:
        return dict(json.loads(raw))
    except ValueError:
        return None


def test_tables_with_equal_columns_and_a_route_field_are_read_at_once() -> None:
    wider = Schema(*NUMBERS.fields, NestedField(3, "x", DoubleType(), required=False))
    targets = (table().target, table(wider).target)
    found = native_json(Projection(targets, "ignore", route="to"), Limits(nesting=NESTING))
    assert found is not None
    rows, _ = read(found, [b'{"id":1,"x":2.5,"to":"db.a"}'])
    assert rows.to_pylist() == [{"id": 1, "s": None, "x": 2.5, "to": "db.a"}]


def test_what_is_not_one_way_of_reading_is_left_to_others() -> None:
    other = Schema(NestedField(1, "id", StringType(), required=False))
    targets = (table().target, table(other).target)
    assert native_json(Projection(targets), Limits(nesting=NESTING)) is None
    assert native_json(Projection(targets[:1], route="id"), Limits(nesting=NESTING)) is None  # 007 is 7 to its column
    assert native_json(Projection(targets[:1] * 2, "add"), Limits(nesting=NESTING)) is None
    assert native_json(Projection(), Limits(nesting=NESTING)) is None


def read(reader: Decoder, values: Sequence[bytes]) -> tuple[Any, Sequence[int]]:
    """The rows, and the places of refused values."""
    pieces, refused = reader.pieces(Payloads(values))
    return (pieces[0][0] if pieces else NOTHING), refused


def decoded(values: Sequence[bytes], schema: Schema = NUMBERS) -> tuple[list[pa.DataType], list[int], list[int]]:
    """The types of what is decoded, the places of the exact ones, and of the bad ones."""
    found = JsonConverter({}, is_key=False).decode(values, Projection((table(schema).target,)))
    exact = [place for part in found.values if isinstance(part.data, list) for place in part.index]
    columns = [part.data.type for part in found.values if not isinstance(part.data, list)]
    return columns, exact, [bad.index for bad in found.bad]


def test_a_few_bad_records_leave_the_others_of_a_block_to_rust() -> None:
    good = [b'{"id":%d,"s":"x"}' % i for i in range(200)]
    good[20], good[50], good[199] = b'{"id":', b'{"id":1.0}', b'{"id":1,"id":2}'
    columns, exact, bad = decoded(good)
    assert columns == [pa.struct([("id", pa.int64()), ("s", pa.string())])]
    assert (exact, bad) == ([50, 199], [20])


def test_where_many_are_refused_rust_still_decodes_the_others() -> None:
    columns, exact, bad = decoded([b'{"id":1.0}', b'{"id":'] * 100 + [b'{"id":1}'])
    assert (len(columns), exact, bad) == (1, list(range(0, 200, 2)), list(range(1, 200, 2)))


def test_a_value_deeper_than_the_limit_is_refused_where_no_column_takes_it_too() -> None:
    flat, deep = b'{"u":' + b"[" * 18 + b"]" * 18 + b"}", b'{"u":' + b"[" * 20 + b"]" * 20 + b"}"
    _, refused = read(reader(table()), [flat] * 9 + [deep])
    assert refused == [9]


def test_a_field_without_a_column_is_refused_where_the_table_would_get_one() -> None:
    values = [b'{"id":1,"new":null}'] * 9 + [b'{"id":1,"new":0}']
    _, refused = read(reader(table(evolve=True), "add"), values)
    assert refused == [9]


def test_a_value_of_another_type_than_its_column_is_refused() -> None:
    kind = MapType(5, StringType(), 6, LongType())
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "m", kind, required=False))
    rows, refused = read(reader(table(schema)), [b'{"id":1,"m":{"a":1}}', b'{"id":2}', b'{"id":3,"m":7}'])
    assert refused == [2]
    assert rows.to_pylist() == [{"id": 1, "m": [("a", 1)]}, {"id": 2, "m": None}]


def test_a_column_is_found_by_its_mapped_names_and_ignoring_case_where_the_table_says_so() -> None:
    values = [b'{"id":1}', b'{"number":2}', b'{"No":3}', b'{"ID":4}', b'{"number":5,"No":6}']
    mapped = TableConverter("t", NUMBERS, Evolution(), {1: ("number", "No")})
    rows, refused = read(reader(mapped, "look"), values)
    assert (rows.field(0).to_pylist(), refused) == ([None, 2, 3, None], [4])
    rows, refused = read(reader(table(case_insensitive=True), "look"), values[:4])
    assert (rows.field(0).to_pylist(), refused) == ([1, None, None, 4], [])


def test_a_name_whose_lower_case_only_python_knows_is_refused() -> None:
    schema = Schema(NestedField(1, "größe", LongType(), required=False))
    values = ['{"größe":1}'.encode(), '{"GRÖSSE":2}'.encode(), '{"GRÖßE":2}'.encode()]
    rows, refused = read(reader(table(schema, case_insensitive=True), "look"), values)
    assert (rows.field(0).to_pylist(), refused) == ([1], [1, 2])


def test_a_null_inside_of_a_column_that_requires_a_value_is_refused() -> None:
    inner = StructType(NestedField(3, "x", LongType(), required=True))
    schema = Schema(NestedField(1, "o", inner, required=True))
    values = [b'{"o":{"x":1}}', b'{"o":{"x":null}}', b'{"o":{}}', b'{"o":null}']
    _, refused = read(reader(table(schema)), values)
    assert refused == [1, 2]  # whether the column has a value at all is for the table to judge


def test_a_table_with_a_zero_in_a_name_is_left_to_others() -> None:
    other = Schema(NestedField(1, "a\0b", LongType(), required=False))
    assert native_json(Projection((table(other).target,)), Limits(nesting=NESTING)) is None


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native.absence() is None
    monkeypatch.setenv("CALVING_NATIVE", "0")
    assert native.absence() == "switched off by CALVING_NATIVE = 0"
    assert native_json(Projection((table().target,)), Limits(nesting=NESTING)) is None


def test_another_version_of_it_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native._NATIVE, "__version__", "9.9.0")
    assert native.absence() == "calving-native 9.9.0 is of another version"


def test_another_build_of_this_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(native._NATIVE, "INTERFACE")
    assert "another build" in (native.absence() or "")


def test_what_is_no_bytes_is_an_error_not_a_crash() -> None:
    found = native._NATIVE.Decoder.of_json([(["id"], "long", [], -2, -1)], True, False, NESTING, 1_000)
    with pytest.raises(TypeError):
        found.decode([None], b"", b"")
    with pytest.raises(ValueError, match="a column of bytes without nulls is wanted"):
        found.decode(pa.array([b"{}", None]), b"", b"")
    with pytest.raises(ValueError, match="no column of kind map"):
        native._NATIVE.Decoder.of_json([(["m"], "map", [], -2, -1)], True, False, NESTING, 1_000)


def test_a_panic_in_rust_is_an_error() -> None:
    endless = native._NATIVE.Decoder.of_json(
        [(["x"], f"fixed({2**64 - 1})", [], -2, -1)], True, False, NESTING, 2**64 - 1
    )
    with pytest.raises(RuntimeError, match="the decoder broke: capacity overflow"):
        endless.decode([b'{"x":null}'] * 2, b"", b"")


def test_a_block_has_the_same_outcome_with_and_without_rust(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    values = [record(random) if i % 20 == 0 else json.dumps({"must": i, "s": str(i)}).encode() for i in range(600)]

    def everything() -> list[Any]:
        converter = table(SCHEMA, evolve=True)
        found = JsonConverter({}, is_key=False, limits=Limits(nesting=NESTING)).decode(
            values, Projection((converter.target,), "add")
        )
        rows = {}
        for part in found.values:
            for place, row in zip(part.index, range(len(part)), strict=True):
                rows[place] = outcome(converter, part.choose([row]))
        return [sorted(rows.items()), sorted((bad.index, bad.error, bad.reason) for bad in found.bad)]

    with_rust = everything()
    monkeypatch.setenv("CALVING_NATIVE", "0")
    assert everything() == with_rust
