"""The chain tells the records that a step cannot take from the others, cheaply and exactly."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from calving.errors import ConfigError
from calving.model.record_path import PredicateSpec, TransformSpec
from calving.records.values import HEADERS, Records, objects
from calving.transforms import interface
from calving.transforms.chain import Chain
from calving.transforms.transformed import Transformed

BAD = -1


def records(value: pa.Array, typed: bool = False) -> Records:
    count = len(value)
    moments = pa.array([0] * count, pa.timestamp("ms", "UTC"))
    return Records(
        pa.array(range(count), pa.int32()),
        pa.repeat(pa.scalar("t"), count),
        0,
        pa.array(range(count), pa.int64()),
        moments,
        pa.nulls(count),
        value,
        pa.nulls(count, HEADERS),
        typed,
    )


def run(kind: str, found: Records, **options: str) -> Transformed:
    names = {name.replace("_", "."): text for name, text in options.items()}
    return Chain([TransformSpec("x", kind, names)]).apply(found)


calls = 0


def refusing(change: Callable[[list[Any]], None]) -> Callable[[Records, Mapping[str, str]], Records]:
    @functools.wraps(change)
    def apply(found: Records, _: Mapping[str, str]) -> Records:
        global calls
        calls += 1
        change(objects(found.value))
        return found

    return apply


@refusing
def recursing(values: list[Any]) -> None:
    if BAD in values:
        raise RecursionError("too deep")


@refusing
def configured(values: list[Any]) -> None:
    if BAD in values:
        raise ConfigError("the service behind it is not known")


@refusing
def failing(values: list[Any]) -> None:
    if BAD in values:
        raise KeyError("id")


@refusing
def pointing(values: list[Any]) -> None:
    places = [i for i, value in enumerate(values) if value == BAD]
    if places:
        raise interface.RefusedError(dict.fromkeys(places, "not this one"))


@refusing
def typing(_: list[Any]) -> None:
    raise interface.UnfitTypeError("numbers are not wanted")


def attempts(kind: str, values: list[int]) -> tuple[int, list[int]]:
    """How often the transform was called, and which records are bad."""
    global calls
    calls = 0
    done = run(f"tests.transforms.test_chain:{kind}", records(pa.array(values)))
    assert sorted([b.index for b in done.bad] + [i for part in done.records for i in part.index.to_pylist()]) == [
        *range(len(values))
    ]
    return calls, sorted(b.index for b in done.bad)


def test_any_exception_of_a_record_is_its_own_with_the_name_of_the_step() -> None:
    done = run("tests.transforms.test_chain:recursing", records(pa.array([1, BAD, 2])))
    (bad,) = done.bad
    assert (bad.index, bad.stage, bad.error) == (1, "TRANSFORMATION", "RecursionError")
    assert bad.reason == "transform 'x': too deep"


def test_an_exception_that_is_no_records_stops() -> None:
    with pytest.raises(ConfigError):
        run("tests.transforms.test_chain:configured", records(pa.array([1, BAD])))


def unreachable(_: Records, __: Mapping[str, str]) -> Records:
    raise ConnectionRefusedError("the service behind it is away")


def test_a_service_that_is_away_makes_no_record_bad() -> None:
    with pytest.raises(ConnectionRefusedError):
        run("tests.transforms.test_chain:unreachable", records(pa.array([1, 2])))


def test_one_refused_record_among_thousands_is_found_in_a_few_attempts() -> None:
    count, bad = attempts("failing", [0] * 5_000 + [BAD] + [0] * 2_999)
    assert (count < 50, bad) == (True, [5_000])


def test_records_that_are_all_refused_take_hardly_more_than_one_attempt_each() -> None:
    count, bad = attempts("failing", [BAD] * 8_000)
    assert (count < 9_200, len(bad)) == (True, 8_000)


def test_a_transform_that_points_at_them_is_asked_once_more() -> None:
    assert attempts("pointing", [BAD, 1, BAD, 2]) == (2, [0, 2])


def test_a_type_that_is_refused_is_asked_once() -> None:
    assert attempts("typing", [1, 2, 3]) == (1, [0, 1, 2])


def swapped(found: Records, _: Mapping[str, str]) -> Records:
    return found.take(pa.array([0, *range(len(found) - 1)], pa.int32()))


def doubled(found: Records, _: Mapping[str, str]) -> list[Records]:
    return [found, found.take(pa.array([1], pa.int32()))]


def renumbered(found: Records, _: Mapping[str, str]) -> Records:
    return replace(found, index=pa.array(range(7, 7 + len(found)), pa.int32()))


def nothing(found: Records, _: Mapping[str, str]) -> None:
    pass


class Partial(interface.Transform):
    """Returns the first record three times, and no other."""

    def __init__(self, options: Mapping[str, str]) -> None:
        pass

    def apply(self, found: Records) -> Records:
        return found.take(pa.array([0, 0, 0], pa.int32()))


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("swapped", [1], {0: "several rows"}),
        ("doubled", [0, 2], {1: "several rows"}),
        ("renumbered", [], dict.fromkeys(range(3), "records that it did not get")),
        ("nothing", [], dict.fromkeys(range(3), "NoneType, and not records")),
        ("Partial", [], {0: "several rows", 1: "nothing for the record", 2: "nothing for the record"}),
    ],
)
@pytest.mark.parametrize("places", [[0, 1, 2], [2, 0, 1], [3, 6, 1], [1000, 0, 10]])
def test_a_transform_returns_each_record_once_at_most(
    kind: str, good: list[int], bad: dict[int, str], places: list[int]
) -> None:
    given = replace(records(pa.array([{"a": 1}, {"a": 2}, {"a": 3}])), index=pa.array(places, pa.int32()))
    done = run(f"tests.transforms.test_chain:{kind}", given)
    assert [places.index(i) for part in done.records for i in part.index.to_pylist()] == good
    found = {places.index(each.index): each.reason for each in done.bad}
    assert found.keys() == bad.keys()
    assert all(bad[i] in reason and "transform 'x'" in reason for i, reason in found.items())
    assert dict(done.dropped) == ({"transform x": 1} if kind == "swapped" else {})


class Large(interface.Predicate):
    """Whether ``a`` is above 10; nobody knows if it is null, or text."""

    def __init__(self, options: Mapping[str, str]) -> None:
        pass

    def test(self, found: Records) -> pa.Array:
        return pa.array(
            [None if each["a"] is None else int(each["a"]) > 10 for each in objects(found.value)], pa.bool_()
        )


@pytest.mark.parametrize("negate", [False, True])
@pytest.mark.parametrize("odd", [None, "x"])
@pytest.mark.parametrize("others", [[], ["20"], ["5"], ["20", "5"], ["20"] * 40])
def test_a_record_of_which_a_predicate_says_nothing_is_bad_in_any_company(
    others: list[str], odd: str | None, negate: bool
) -> None:
    large = PredicateSpec("tests.transforms.test_chain:Large")
    spec = TransformSpec("x", "InsertField", {"static.field": "b", "static.value": "y"}, large, negate)
    done = Chain([spec]).apply(records(pa.array([{"a": a} for a in [*others, odd]])))
    assert [each.index for each in done.bad] == [len(others)]
    assert sorted(i for part in done.records for i in part.index.to_pylist()) == [*range(len(others))]
    seen = {each["a"]: "b" in each for part in done.records for each in objects(part.value)}
    assert seen == {a: (a == "20") is not negate for a in others}


def test_nulls_pass_a_step_that_refuses_the_type_of_the_others() -> None:
    value = pa.array([{"a": 5}, {"a": None}], pa.struct([("a", pa.int64())]))
    options = {"field": "a.b", "field.syntax.version": "V2"}
    done = Chain([TransformSpec("x", "ExtractField", options)]).apply(records(value))
    assert [b.index for b in done.bad] == [0]
    assert [objects(part.value) for part in done.records] == [[None]]


def test_four_hundred_levels_are_one_record() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    value = pa.array([deep])
    done = run("Flatten", records(value))
    assert len(done.bad) + sum(map(len, done.records)) == 1


def test_records_that_come_out_with_several_types_keep_their_places() -> None:
    texts = pa.array([json.dumps(v) for v in ({"a": [1]}, {"a": ["x"]}, {"a": [2]})])
    done = run("JsonToMapTransform", records(texts))
    found = {i: v for part in done.records for i, v in zip(part.index.to_pylist(), objects(part.value), strict=True)}
    assert found == {0: {"a": [1]}, 1: {"a": ["x"]}, 2: {"a": [2]}}


ROW = pa.struct([("x", pa.int64()), ("y", pa.string())])
DEEP = pa.struct([("n", ROW)])
LISTED = pa.struct([("t", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    ("kind", "chain", "left"),
    [
        (ROW, [("MaskField", {"fields": "x"})], ROW),
        (ROW, [("HoistField", {"field": "a"})], pa.struct([("a", ROW)])),
        (ROW, [("HoistField$Key", {"field": "a"})], None),
        (DEEP, [("HoistField", {"field": "a"})], pa.struct([("a", DEEP)])),
        (DEEP, [("MaskField", {"fields": "x"})], None),
        (DEEP, [("ExtractField", {"field": "n"})], ROW),
        (DEEP, [("ExtractField$Key", {"field": "n"})], None),
        (DEEP, [("ExtractField", {"field": "m"})], None),
        (DEEP, [("ExtractField", {"field": "n"}), ("MaskField", {"fields": "x"})], ROW),
        (DEEP, [("ExtractField", {"field": "n"}), ("ExtractField", {"field": "x"}), ("Flatten", {})], pa.int64()),
        (DEEP, [("MaskField", {"fields": "n"}), ("ExtractField", {"field": "n"})], None),
        (pa.struct([("a", DEEP)]), [("ExtractField", {"field": "a"})], DEEP),
        (pa.struct([("a", DEEP)]), [("Flatten", {})], pa.struct([("0", pa.int64()), ("1", pa.string())])),
        (pa.struct([("data", ROW), ("metadata", DEEP)]), [("DmsTransform", {})], None),
        (LISTED, [("ExtractField", {"field": "t"}), ("Flatten", {})], None),
        (LISTED, [("ExtractField", {"field": "t"}), ("DmsTransform", {})], None),
    ],
)
def test_a_chain_tells_the_type_it_leaves_where_no_step_shows_the_order_of_fields(
    kind: pa.DataType, chain: list[tuple[str, dict[str, str]]], left: pa.DataType | None
) -> None:
    specs = [TransformSpec(str(i), name, options) for i, (name, options) in enumerate(chain)]
    assert Chain(specs).leaves(kind) == left


def same(found: Records, _: Mapping[str, str]) -> Records:
    return found


@pytest.mark.parametrize(
    ("steps", "concerned", "others"),
    [
        ([], {"v", "s.x"}, {"a", "s"}),
        ([("ReplaceField$Value", {"renames": "A:v,b:c"})], {"a", "v"}, {"b", "c"}),
        ([("ReplaceField$Value", {"renames": "a:b"}), ("ReplaceField$Value", {"renames": "b:v"})], {"a"}, {"c"}),
        ([("ReplaceField$Key", {"renames": "a:v"}), ("FieldNames$Key", {"style": "snake"})], {"v"}, {"a"}),
        ([("Flatten$Value", {})], {"s", "x", "s.x", "v"}, {"a"}),
        ([("Flatten$Value", {"delimiter": "_"})], {"v", "s.x"}, {"s", "x"}),
        ([("FieldNames$Value", {"style": "snake"})], {"v", "unitprice"}, set()),
        ([("ExtractField$Value", {"field": "after"}), ("FieldNames$Value", {"style": "lower"})], {"a"}, {"after"}),
        ([("DebeziumTransform", {}), ("Cast$Value", {"spec": "a:int32"})], {"v"}, {"a", "before", "after"}),
        ([("FieldNames$Value", {"style": "snake"}), ("ValueToKey", {"fields": "order_id"})], {"v"}, {"orderid", "a"}),
        ([("ValueToKey", {"fields": "a"}), ("FieldNames$Value", {"style": "lower"})], {"v", "b"}, {"a"}),
        ([(f"{__name__}:same", {})], {"a", "b"}, set()),
    ],
)
def test_the_fields_of_which_columns_are_made_are_known_before_a_chain(
    steps: list[tuple[str, dict[str, str]]], concerned: set[str], others: set[str]
) -> None:
    chain = Chain([TransformSpec(f"t{i}", kind, options) for i, (kind, options) in enumerate(steps)])
    presence = chain.presence(frozenset({"v", "s.x"}))
    assert {name for name in concerned | others if name in presence} == concerned
    assert not chain.presence(frozenset())


def test_a_field_keeps_its_name_in_records_that_a_predicate_leaves_out() -> None:
    of_some = TransformSpec("x", "Flatten$Value", {}, PredicateSpec("RecordIsTombstone", {}))
    presence = Chain([of_some]).presence(frozenset({"s.x"}))
    assert {name for name in ("s", "x", "s.x") if name in presence} == {"s", "x", "s.x"}
