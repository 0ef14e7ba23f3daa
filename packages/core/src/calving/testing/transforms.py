"""The contract of transforms and predicates, as tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from calving.model.record_path import PredicateSpec, TransformSpec
from calving.records import arrays, shapes
from calving.records.shapes import by_shape
from calving.records.values import HEADERS, Records, objects
from calving.transforms.chain import Chain
from calving.transforms.interface import Predicate
from calving.transforms.registry import predicate

_DROPPED = "dropped"


def blocks(*values: object) -> list[Records]:
    """Records of JSON values, those of one shape in one block, as transforms get them; None is a tombstone."""
    return [block(column) for _, column in by_shape(values, decimals=False)]


def block(values: pa.Array, *, typed: bool = False) -> Records:
    """Records of these values; ``typed``: the values have a schema, and this is its type. Every second has a key."""
    count = range(len(values))
    return Records(
        index=pa.array(count, pa.int32()),
        topic=pa.array(["a-topic" if i % 3 else "another" for i in count]),
        partition=3,
        offset=pa.array([100 + i for i in count], pa.int64()),
        timestamp=pa.array([1_704_196_800_123 + 1_000 * i for i in count], pa.timestamp("ms", "UTC")),
        key=pa.array([f"key {i}" if i % 2 else None for i in count], pa.string()),
        value=values,
        headers=pa.array([[{"key": "h", "value": b"%d" % i}] * (i % 3) for i in count], HEADERS),
        typed=typed,
    )


class _OverRecords:
    @pytest.fixture
    def records(self) -> Sequence[Records]:
        objects = [{"id": i, "text": f"text {i}", "more": {"x": i / 2}} for i in range(12)]
        lists = [{"tags": ["a", None, str(i)], "flag": i % 2 == 0} for i in range(4)]
        return blocks(*objects, *lists, *(f"bare {i}" for i in range(4)), *([None] * 4))


class TransformContract(_OverRecords):
    """A transform is elementwise: the result for a record is a function of that record, its type and the options.

    ``spec`` is the transform as settings name it. ``records`` are blocks of what it is made for: ``blocks`` makes them
    of JSON values, ``block`` of a column.
    """

    @pytest.fixture
    def spec(self) -> TransformSpec:
        raise NotImplementedError("a transform's tests define the fixture 'spec'")

    def test_every_record_comes_out_or_is_dropped_or_is_refused_and_that_once(
        self, spec: TransformSpec, records: Sequence[Records]
    ) -> None:
        chain = Chain([spec])
        for given in records:
            done = chain.apply(given)
            places = [place for part in done.records for place in part.index.to_pylist()]
            told = [*places, *(error.index for error in done.bad)]
            assert len(told) == len(set(told))
            assert set(told) <= set(given.index.to_pylist())
            assert len(told) + done.dropped.total() == len(given)

    def test_a_record_keeps_its_offset(self, spec: TransformSpec, records: Sequence[Records]) -> None:
        chain = Chain([spec])
        for given in records:
            offsets = dict(zip(given.index.to_pylist(), given.offset.to_pylist(), strict=True))
            for part in chain.apply(given).records:
                assert part.partition == given.partition
                assert part.offset.to_pylist() == [offsets[place] for place in part.index.to_pylist()]

    def test_a_record_becomes_the_same_alone_as_among_others(
        self, spec: TransformSpec, records: Sequence[Records]
    ) -> None:
        chain = Chain([spec])
        for given in _with_tombstones(records):
            alone = [_outcomes(chain, given.slice(row, row + 1))[place] for row, place in _rows(given)]
            assert list(_outcomes(chain, given).values()) == alone

    def test_a_null_becomes_the_same_whatever_type_others_give_it(
        self, spec: TransformSpec, records: Sequence[Records]
    ) -> None:
        """A transform to which the type of a null matters says so in ``null_types``."""
        chain = Chain([spec])
        for given in (_with_nulls(each) for each in records if not each.typed):
            for rows, column in shapes.alone(given.value, chain.null_types):
                part = _taken(given, rows).with_value(column)
                together = _outcomes(chain, part)
                for row, place in _rows(part):
                    ((_, single),) = shapes.alone(column.slice(row, 1), None)
                    assert _outcomes(chain, part.slice(row, row + 1).with_value(single))[place] == together[place]

    @pytest.mark.parametrize("seed", range(2))
    def test_the_order_of_records_does_not_matter(
        self, spec: TransformSpec, records: Sequence[Records], seed: int
    ) -> None:
        chain = Chain([spec])
        for given in _with_tombstones(records):
            order = Random(seed).sample(range(len(given)), len(given))
            assert _outcomes(chain, _taken(given, order)) == _outcomes(chain, given)

    def test_a_tombstone_changes_nothing_of_the_others(self, spec: TransformSpec, records: Sequence[Records]) -> None:
        chain = Chain([spec])
        for given in records:
            others = [row for row in range(len(given)) if row % 2]
            before, after = _outcomes(chain, given), _outcomes(chain, _half_null(given))
            assert [after[row] for row in others] == [before[row] for row in others]

    def test_it_looks_only_at_the_columns_that_it_names(self, spec: TransformSpec, records: Sequence[Records]) -> None:
        chain = Chain([spec])
        for given in records:
            outcomes, without = (_outcomes(chain, r) for r in (given, _without(given, chain.needs)))
            assert [_main(outcome) for outcome in without.values()] == [_main(outcome) for outcome in outcomes.values()]


class PredicateContract(_OverRecords):
    """A predicate is elementwise, as a transform is. ``spec`` is the predicate as settings name it."""

    @pytest.fixture
    def spec(self) -> PredicateSpec:
        raise NotImplementedError("a predicate's tests define the fixture 'spec'")

    @pytest.fixture
    def made(self, spec: PredicateSpec) -> Predicate:
        return predicate("x", spec)

    def test_every_record_is_chosen_or_not(self, made: Predicate, records: Sequence[Records]) -> None:
        for given in _with_tombstones(records):
            mask = made.test(given)
            assert (mask.type, len(mask), mask.null_count) == (pa.bool_(), len(given), 0)

    def test_a_record_is_chosen_alone_as_among_others(self, made: Predicate, records: Sequence[Records]) -> None:
        for given in _with_tombstones(records):
            alone = [made.test(given.slice(row, row + 1))[0].as_py() for row in range(len(given))]
            assert made.test(given).to_pylist() == alone

    @pytest.mark.parametrize("seed", range(3))
    def test_the_order_of_records_does_not_matter(self, made: Predicate, records: Sequence[Records], seed: int) -> None:
        for given in _with_tombstones(records):
            order = Random(seed).sample(range(len(given)), len(given))
            kept = made.test(given).to_pylist()
            assert made.test(_taken(given, order)).to_pylist() == [kept[row] for row in order]

    def test_it_looks_only_at_the_columns_that_it_names(self, made: Predicate, records: Sequence[Records]) -> None:
        for given in records:
            assert made.test(_without(given, made.needs)).equals(made.test(given))


def _rows(given: Records) -> list[tuple[int, int]]:
    return list(enumerate(given.index.to_pylist()))


def _with_tombstones(records: Sequence[Records]) -> list[Records]:
    return [*records, *map(_half_null, records)]


def _half_null(given: Records) -> Records:
    """Every second record a tombstone, the first among them."""
    rows = pa.array([row if row % 2 else None for row in range(len(given))], pa.int32())
    return given.with_value(arrays.take(given.value, rows))


def _with_nulls(given: Records) -> Records:
    """Records with a null in another field each, as far as they are objects. Objects inside stay: they share no column
    with nulls.
    """
    column = given.value
    if not isinstance(column, pa.StructArray) or not column.type.num_fields:
        return given
    count = column.type.num_fields + 1
    children = []
    for i, child in enumerate(arrays.children_of(column)):
        if pa.types.is_struct(child.type):
            children.append(child)
            continue
        kept = pa.array([row if row % count != i else None for row in range(len(column))], pa.int32())
        children.append(arrays.take(child, kept))
    nulls = column.is_null() if column.null_count else None
    return given.with_value(arrays.struct(children, column.type, nulls, len(column)))


def _taken(given: Records, order: Sequence[int]) -> Records:
    return given.take(pa.array(order, pa.int32()))


def _without(given: Records, needs: frozenset[Any]) -> Records:
    """The records with null in all columns that are not needed, as the sink passes them."""
    kinds = {"key": pa.null(), "offset": pa.int64(), "timestamp": pa.timestamp("ms", "UTC"), "headers": HEADERS}
    columns: dict[str, Any] = {n: pa.nulls(len(given), kind) for n, kind in kinds.items() if n not in needs}
    return replace(given, **columns)


def _outcomes(chain: Chain, given: Records) -> dict[int, Any]:
    """By place, ascending: topic, value, and what else a record has; or that it is dropped, or why it is refused."""
    done = chain.apply(given)
    outcome_of: dict[int, Any] = dict.fromkeys(sorted(given.index.to_pylist()), _DROPPED)
    outcome_of |= {error.index: f"refused: {error.reason}" for error in done.bad}
    for part in done.records:
        kind = str(part.value.type) if part.typed else None
        rest = (part.key, part.timestamp, part.headers)
        for row, place in _rows(part):
            value = _text(part.value.slice(row, 1))
            told = None if value == "[None]" else kind
            outcome_of[place] = (part.topic[row].as_py(), told, value), [_text(column.slice(row, 1)) for column in rest]
    return outcome_of


def _main(outcome: Any) -> Any:
    """Topic and value alone."""
    return outcome if isinstance(outcome, str) else outcome[0]


def _text(cell: pa.Array) -> str:
    try:
        return repr(objects(cell))
    except (OverflowError, ValueError):  # Python has no date beyond the year 9999
        return str(cell)
