"""Builds Arrow columns from typed values, and separates values that do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from calving.converters.interface import Decoded
from calving.model.dead_letters import Stage
from calving.model.record_path import Limits
from calving.records.arrays import Indices, arrow, compose, holds
from calving.records.cells import TOGETHER, Cells, FullBlockError, Together, cells_of
from calving.records.failures import pass_on
from calving.records.presence import Missing, divided, missing_from
from calving.records.schema_defaults import described
from calving.records.values import RecordError, Values

Convert = Callable[[Any], Any]
T = TypeVar("T")

DAY_MS = 86_400_000
MOST_DIGITS = 38
"""The most digits of a decimal in a table. Connect's Avro converter writes a precision of 64 if none is set: each value
that has at most this many digits fits.
"""
_ONE_BY_ONE = 32


def decimal_type(precision: int, scale: int) -> pa.Decimal128Type:
    """The type of a schema's decimals. A precision above 38 is 38, as for Iceberg; one below the scale is the scale.

    :raises ValueError: no table can have such decimals, as Oracle's NUMBER without a scale (``scale`` 127).
    """
    if scale > MOST_DIGITS:
        raise ValueError(f"a decimal with {scale} digits after the point: a table takes at most {MOST_DIGITS}")
    if scale < -MOST_DIGITS:
        raise ValueError(f"a decimal of scale {scale}: a table takes numbers of at most {MOST_DIGITS} digits")
    return pa.decimal128(min(max(precision, scale), MOST_DIGITS), scale)


class MisfitError(ValueError):
    """A value is not of its declared type. ``path`` names the field, without positions in arrays."""

    def __init__(self, path: tuple[str, ...], reason: str) -> None:
        super().__init__(f"field '{'.'.join(path)}': {reason}" if path else reason)
        self.path, self.reason = path, reason


@dataclass(frozen=True, slots=True)
class Reading:
    """How values of one schema become a column: the column's type, and the function that converts each value (None: no
    conversion).

    ``convert`` is never called with None. ``default``: the text of the default that the schema declares
    (``schema_defaults``).
    """

    type: pa.DataType
    convert: Convert | None = None
    nullable: bool = True
    default: str | None = None

    def field(self, name: str) -> pa.Field:
        return described(pa.field(name, self.type, self.nullable), self.default)


def struct(fields: Sequence[tuple[str, Reading]], nullable: bool = True) -> Reading:
    """The reading of structs from mappings. Missing fields are null."""
    check_names(name for name, _ in fields)
    kind = pa.struct([reading.field(name) for name, reading in fields])
    converted = [(name, reading.convert) for name, reading in fields if reading.convert is not None]
    if not converted:
        return Reading(kind, None, nullable)

    def convert(value: Any) -> Any:
        changed, name = {**value}, ""
        try:
            for name, of in converted:
                if (item := value.get(name)) is not None:
                    changed[name] = of(item)
        except ValueError as error:
            raise misfit(name, error) from error
        return changed

    return Reading(kind, convert, nullable)


def check_names(names: Iterable[str]) -> None:
    """:raises ValueError: a struct has two fields of one name."""
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"two fields have the name '{twice}'")


def misfit(name: str, error: ValueError | ArithmeticError) -> MisfitError:
    """The error of a field, with its name in front of those of the fields within it."""
    if isinstance(error, MisfitError):
        return MisfitError((name, *error.path), error.reason)
    return MisfitError((name,), str(error))


def array(element: Reading, cells: Cells, nullable: bool = True) -> Reading:
    """The reading of lists. ``cells`` counts those of their elements."""
    kind, each, inner = pa.list_(element.field("element")), cells_of(element.type), element.convert
    if inner is None and each == 1:
        return Reading(kind, None, nullable)

    def convert(items: Any) -> Any:
        cells.elements(len(items), each)
        return items if inner is None else [None if item is None else inner(item) for item in items]

    return Reading(kind, convert, nullable)


def map_type(key: pa.DataType, value: pa.Field) -> pa.DataType:
    return pa.map_(pa.field("key", key, nullable=False), value)


def mapping(
    key: Reading,
    value: Reading,
    cells: Cells,
    nullable: bool = True,
    pairs: Callable[[Any], Iterable[tuple[Any, Any]]] | None = None,
) -> Reading:
    """The reading of maps from mappings, or from values that ``pairs`` turns into pairs, of which the last one of a key
    counts. ``cells`` counts those of their entries.
    """
    each = cells_of(key.type) + cells_of(value.type)

    def convert(items: Any) -> Any:
        cells.elements(len(items), each)
        found = items.items() if pairs is None else pairs(items)
        entries = ((_converted(key, k), _converted(value, v)) for k, v in found)
        return [*entries] if pairs is None else last_of_keys(entries)

    return Reading(map_type(key.type, value.field("value")), convert, nullable)


def last_of_keys(entries: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The entries of a map: of several with one key the last counts, as in JSON. All NaN are one key.

    :raises ValueError: a key is null.
    """
    last: dict[str, tuple[Any, Any]] = {}
    for entry in entries:
        if entry[0] is None:
            raise ValueError("a map with a null for a key")
        last[repr(entry[0])] = entry
    return list(last.values())


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
    cells: Cells | None = None,
    together: Together | None = None,
    presence: Container[str] = (),
) -> None:
    """Add the values, loaded by ``load``, as one column of type ``kind``. Values that fail become bad. ``cells`` counts
    those of each value while it is loaded, and ``together`` the column. ``presence``: as of ``Projection``; values that
    lack different fields are different columns.

    :raises FullBlockError: the values take too many cells together.
    """
    loaded: list[Any] = []
    kept: list[int] = []
    own = cells_of(kind)
    cells = cells or Cells(Limits().cells)
    left = cells.most * TOGETHER
    for place, value in zip(places, values, strict=True):
        if left < 0:
            raise FullBlockError
        try:
            cells.start(own)
            loaded.append(load(value))
            left -= cells.used
        except Exception as error:  # of any library
            pass_on(error)
            decoded.bad.append(bad(place, stage, error))
        else:
            kept.append(place)
    if not kept:
        return
    decoded.values += _values(
        decoded=decoded,
        kind=kind,
        loaded=loaded,
        kept=kept,
        stage=stage,
        together=together,
        presence=presence,
    )


def _values(
    decoded: Decoded,
    kind: pa.DataType,
    loaded: list[Any],
    kept: list[int],
    stage: Stage,
    together: Together | None,
    presence: Container[str],
) -> list[Values]:
    """The loaded values as columns, as of ``collect``. ``kept``: their places."""
    try:
        column = _column(loaded, kind)
    except Exception as failure:  # any value may cause it
        pass_on(failure)
        unfit: dict[int, Exception] = {}
        _find_unfit(loaded, kind, 0, len(loaded), unfit)
        decoded.bad += [bad(kept[i], stage, error) for i, error in unfit.items()]
        kept = [place for i, place in enumerate(kept) if i not in unfit]
        if not kept:
            return []
        loaded = [value for i, value in enumerate(loaded) if i not in unfit]
        column = _column(loaded, kind)
    if together is not None:
        together.add(column)
    return [Values(part, True, compose(kept, rows)) for part, rows in _apart(column, loaded, presence)]


def _apart(column: pa.Array, values: Sequence[Any], presence: Container[str]) -> Sequence[tuple[pa.Array, Indices]]:
    """The column by the fields that its values lack, among those of ``presence``."""
    if not presence or not isinstance(column, pa.StructArray):
        return [(column, range(len(column)))]
    rows: dict[Missing, list[int]] = {}
    for row, value in enumerate(values):
        rows.setdefault(missing_from(value, column.type, presence) if value is not None else Missing(), []).append(row)
    return divided(column, rows)


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
        pass_on(error)
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
