"""Builds Arrow columns from typed values, and separates values that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from calving.converters.interface import Decoded
from calving.model.dead_letters import Stage
from calving.records.arrays import arrow, holds
from calving.records.values import RecordError, Values

Convert = Callable[[Any], Any]
T = TypeVar("T")

DAY_MS = 86_400_000
MOST_DIGITS = 38
"""The most digits of a decimal in a table. Connect's Avro converter writes a precision of 64 if none is set: each value
that has at most this many digits fits.
"""
_ONE_BY_ONE = 32


class MisfitError(ValueError):
    """A value is not of its declared type. ``path`` names the field, without positions in arrays."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"field '{'.'.join(path)}': {reason}" if path else reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class Reading:
    """How values of one schema become a column: the column's type, and the function that converts each value (None: no
    conversion).

    ``convert`` is never called with None.
    """

    type: pa.DataType
    convert: Convert | None = None
    nullable: bool = True

    def field(self, name: str) -> pa.Field:
        return pa.field(name, self.type, self.nullable)


def struct(fields: Sequence[tuple[str, Reading]], nullable: bool = True) -> Reading:
    """The reading of structs from mappings. Missing fields are null."""
    kind = pa.struct([reading.field(name) for name, reading in fields])
    converted = [(name, reading.convert) for name, reading in fields if reading.convert is not None]
    if not converted:
        return Reading(kind, None, nullable)

    def convert(value: Any) -> Any:
        try:
            changed = {n: c(item) for n, c in converted if (item := value.get(n)) is not None}
        except ValueError as error:
            raise _misfit(value, converted) or error from error
        return {**value, **changed}

    return Reading(kind, convert, nullable)


def _misfit(value: Mapping[str, Any], fields: Sequence[tuple[str, Convert]]) -> MisfitError | None:
    """The error of the first field that cannot be converted, with its name."""
    for name, convert in fields:
        try:
            convert(item) if (item := value.get(name)) is not None else None
        except MisfitError as error:
            return MisfitError((name, *error.path), error.reason)
        except ValueError as error:
            return MisfitError((name,), str(error))
    return None


def array(element: Reading, nullable: bool = True) -> Reading:
    kind = pa.list_(element.field("element"))
    inner = element.convert
    if inner is None:
        return Reading(kind, None, nullable)
    return Reading(kind, lambda items: [None if item is None else inner(item) for item in items], nullable)


def map_type(key: pa.DataType, value: pa.Field) -> pa.DataType:
    return pa.map_(pa.field("key", key, nullable=False), value)


def mapping(
    key: Reading, value: Reading, nullable: bool = True, pairs: Callable[[Any], Iterable[tuple[Any, Any]]] | None = None
) -> Reading:
    """The reading of maps from mappings, or from values that ``pairs`` turns into pairs."""
    split = pairs if pairs is not None else dict.items

    def convert(items: Any) -> Any:
        return [(_converted(key, k), _converted(value, v)) for k, v in split(items)]

    return Reading(map_type(key.type, value.field("value")), convert, nullable)


def _converted(reading: Reading, value: Any) -> Any:
    return value if value is None or reading.convert is None else reading.convert(value)


def time_of_day(a_day: int) -> Callable[[int], int]:
    """A function that returns a time within a day of ``a_day`` units, and raises ValueError for any other time."""

    def check(value: int) -> int:
        if not 0 <= value < a_day:
            raise ValueError(f"{value} is not a time of day: it is not from 0 to {a_day - 1}")
        return value

    return check


def collect(
    decoded: Decoded,
    kind: pa.DataType,
    values: Sequence[T],
    places: Sequence[int],
    stage: Stage,
    load: Callable[[T], Any],
) -> None:
    """Add the values, loaded by ``load``, as one column of type ``kind``. Values that fail become bad."""
    loaded: list[Any] = []
    kept: list[int] = []
    for place, value in zip(places, values, strict=True):
        try:
            loaded.append(load(value))
        except Exception as error:  # whatever a decoder raises, this value causes it
            decoded.bad.append(bad(place, stage, error))
        else:
            kept.append(place)
    if not kept:
        return
    try:
        column = _column(loaded, kind)
    except Exception:  # any value may cause it
        unfit: dict[int, Exception] = {}
        _find_unfit(loaded, kind, 0, len(loaded), unfit)
        decoded.bad += [bad(kept[i], stage, error) for i, error in unfit.items()]
        kept = [place for i, place in enumerate(kept) if i not in unfit]
        if not kept:
            return
        column = _column([value for i, value in enumerate(loaded) if i not in unfit], kind)
    decoded.values.append(Values(column, True, kept))


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as a column. Arrow's own function is faster, but does not support extension types inside other
    types.
    """
    return arrow(values, kind) if holds(kind, _is_extension) else pa.array(values, kind)


def _is_extension(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.BaseExtensionType)


def _find_unfit(values: Sequence[Any], kind: pa.DataType, start: int, end: int, unfit: dict[int, Exception]) -> None:
    """Find the values that cannot be in a column of this type, by halving until each bad value is tried alone."""
    try:
        _column(values[start:end], kind)
    except Exception as error:
        if end - start == 1:
            unfit[start] = error
            return
        step = 1 if end - start <= _ONE_BY_ONE else (end - start + 1) // 2
        for at in range(start, end, step):
            _find_unfit(values, kind, at, min(at + step, end), unfit)


def bad(place: int, stage: Stage, error: Exception, what: str = "") -> RecordError:
    """The bad record at ``place``, with its decoder's error."""
    name = type(error).__name__
    if isinstance(error, EOFError):  # fastavro's text contains the address of the object that it reads from
        return RecordError(place, stage, name, f"{what}the value ends too soon")
    return RecordError(place, stage, name, what + (str(error).split("\n")[0] or name))
