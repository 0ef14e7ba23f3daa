"""The contract of converters, as tests."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from calving.converters.interface import Converter, converter, stage
from calving.model.record_path import ConverterSpec
from calving.records.shapes import by_shape
from calving.records.values import Values, objects

_MANY = 300
"""The number of values in a block. It is large enough for converters that read many values in another way than a
few.
"""


class ConverterContract:
    """The contract of converters: the result for a value depends only on this value and the options, not on other
    values or their order.

    The fixture ``spec`` is the converter as settings name it. ``values`` are bytes of its format, as different as
    possible. ``nulls`` are bytes that decode to null.
    """

    @pytest.fixture
    def spec(self) -> ConverterSpec:
        raise NotImplementedError("a converter's tests define the fixture 'spec'")

    @pytest.fixture
    def values(self) -> Sequence[bytes]:
        raise NotImplementedError("a converter's tests define the fixture 'values'")

    @pytest.fixture
    def nulls(self) -> Sequence[bytes]:
        return ()

    def test_a_value_of_the_format_is_decoded(self, spec: ConverterSpec, values: Sequence[bytes]) -> None:
        decoded = _make(spec).decode(values, None)
        assert decoded.bad == []
        assert sorted(place for part in decoded.values for place in part.index) == list(range(len(values)))

    def test_every_value_is_decoded_or_bad_and_that_once(self, spec: ConverterSpec, values: Sequence[bytes]) -> None:
        block = _block(values, Random(1))
        decoded = _make(spec).decode(block, None)
        places = [place for part in decoded.values for place in part.index]
        assert sorted([*places, *(error.index for error in decoded.bad)]) == list(range(len(block)))

    def test_a_column_has_a_row_for_each_of_its_values(self, spec: ConverterSpec, values: Sequence[bytes]) -> None:
        for part in _make(spec).decode(_block(values, Random(2)), None).values:
            assert len(part.data) == len(part.index)
            assert list(part.index) == sorted(part.index)

    @pytest.mark.parametrize("seed", range(3))
    def test_a_value_becomes_the_same_alone_as_among_others(
        self, spec: ConverterSpec, values: Sequence[bytes], seed: int
    ) -> None:
        block = _block(values, Random(seed))
        alone = {value: _outcomes(_make(spec), [value])[0] for value in set(block)}
        assert _outcomes(_make(spec), block) == [alone[value] for value in block]

    @pytest.mark.parametrize("seed", range(3))
    def test_the_order_of_values_and_those_before_do_not_matter(
        self, spec: ConverterSpec, values: Sequence[bytes], seed: int
    ) -> None:
        chance, kept = Random(seed), _make(spec)
        block = _block(values, chance)
        outcome_of = dict(zip(block, _outcomes(kept, block), strict=True))
        for _ in range(3):
            chance.shuffle(block)
            assert _outcomes(kept, block) == [outcome_of[value] for value in block]
        good = list(values) * (_MANY // len(values) + 1)
        assert _outcomes(kept, good) == [outcome_of[value] for value in good]

    @pytest.mark.parametrize("seed", range(10))
    def test_no_bytes_raise_anything(self, spec: ConverterSpec, values: Sequence[bytes], seed: int) -> None:
        chance = Random(seed)
        garbage = [_broken(chance.choice(values), chance) for _ in range(100)]
        _make(spec).decode(garbage, None)
        for value in garbage:
            _make(spec).decode([value], None)

    @pytest.mark.parametrize("is_key", [False, True])
    def test_what_is_bad_has_its_stage_and_a_reason(
        self, spec: ConverterSpec, values: Sequence[bytes], is_key: bool
    ) -> None:
        for error in _make(spec, is_key=is_key).decode(_block(values, Random(3)), None).bad:
            assert error.stage == stage(is_key)
            assert error.error and error.reason

    def test_a_value_that_decodes_to_null_is_null_in_its_column(
        self, spec: ConverterSpec, values: Sequence[bytes], nulls: Sequence[bytes]
    ) -> None:
        block = [*values, *nulls]
        decoded = _make(spec).decode(block, None)
        row_of = {place: row for part in decoded.values for place, row in zip(part.index, _rows(part), strict=True)}
        assert [row_of[place] for place in range(len(values), len(block))] == [None] * len(nulls)

    def test_of_no_values_there_is_nothing(self, spec: ConverterSpec) -> None:
        decoded = _make(spec).decode([], None)
        assert (sum(map(len, decoded.values)), decoded.bad) == (0, [])


def _make(spec: ConverterSpec, *, is_key: bool = False) -> Converter:
    return converter(spec.name, spec.options, is_key=is_key)


def _block(values: Sequence[bytes], chance: Random) -> list[bytes]:
    """A block of values of the format, and some broken values."""
    garbage = [_broken(chance.choice(values), chance) for _ in range(30)]
    block = [*values, *garbage, *chance.choices(values, k=_MANY)]
    chance.shuffle(block)
    return block


def _broken(value: bytes, chance: Random) -> bytes:
    """The value with random damage, so that it is hardly of the format any more."""
    place = chance.randint(0, len(value))
    match chance.randrange(6):
        case 0:
            return value[:place]
        case 1:
            return value[:place] + chance.randbytes(1) + value[place + 1 :]
        case 2:
            return value[:place] + chance.randbytes(3) + value[place:]
        case 3:
            return value + value
        case 4:
            return chance.randbytes(chance.randint(0, 40))
    return chance.choice((b"", b"\0", b"\xff" * 40, b"{", b"[" * 5_000))


def _outcomes(made: Converter, values: Sequence[bytes]) -> list[str]:
    """The text of each value with its type, or the reason why the value is bad. In these texts -0.0 differs from 0.0,
    and NaN equals NaN.
    """
    decoded = made.decode(values, None)
    outcome_of = {error.index: f"bad: {error.reason}" for error in decoded.bad}
    for part in decoded.values:
        outcome_of |= dict(zip(part.index, map(str, _told(part)), strict=True))
    return [outcome_of[place] for place in range(len(values))]


def _told(part: Values) -> list[str]:
    if isinstance(part.data, pa.Array) and part.typed:
        return [f"{part.data.type} {_text(part.data[row : row + 1])}" for row in range(len(part))]
    # For values without a schema, take the type of each value alone: its type among other values does not matter.
    shaped = [by_shape([row], decimals=False)[0][1] for row in _rows(part)]
    return [f"{column.type} {_text(column)}" for column in shaped]


def _rows(part: Values) -> list[Any]:
    return part.data if isinstance(part.data, list) else objects(part.data)


def _text(cell: pa.Array) -> str:
    try:
        return repr(objects(cell))
    except (OverflowError, ValueError):  # Python has no date beyond the year 9999
        return str(cell)
