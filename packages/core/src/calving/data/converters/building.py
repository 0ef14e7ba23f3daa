"""Typed values into Arrow columns, the ones that do not fit told from the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from calving.data.converters.interface import Decoded
from calving.data.records import Bad, Values, arrow

Convert = Callable[[Any], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """How values of one schema become a column: its type, and what has to be done to each value before (None: nothing).

    ``convert`` is never called with None.
    """

    type: pa.DataType
    convert: Convert | None = None
    nullable: bool = True

    def field(self, name: str) -> pa.Field:
        return pa.field(name, self.type, self.nullable)

    def column(self, values: Sequence[Any]) -> pa.Array:
        """:raises Exception: one of the values does not fit."""
        if self.convert is not None:
            values = [None if v is None else self.convert(v) for v in values]
        return arrow(values, self.type)


def struct(fields: Sequence[tuple[str, Reading]], nullable: bool = True) -> Reading:
    """A struct out of mappings; missing fields are null."""
    kind = pa.struct([reading.field(name) for name, reading in fields])
    converted = [(name, reading.convert) for name, reading in fields if reading.convert is not None]
    if not converted:
        return Reading(kind, None, nullable)

    def convert(value: Any) -> Any:
        changed = {n: c(item) for n, c in converted if c is not None and (item := value.get(n)) is not None}
        return {**value, **changed}

    return Reading(kind, convert, nullable)


def array(element: Reading, nullable: bool = True) -> Reading:
    kind = pa.list_(element.field("element"))
    inner = element.convert
    if inner is None:
        return Reading(kind, None, nullable)
    return Reading(kind, lambda items: [None if item is None else inner(item) for item in items], nullable)


def mapping(key: Reading, value: Reading, nullable: bool = True) -> Reading:
    """A map out of a mapping or of pairs."""
    kind = pa.map_(pa.field("key", key.type, nullable=False), value.field("value"))

    def convert(items: Any) -> Any:
        pairs = items.items() if hasattr(items, "items") else items
        return [(_converted(key, k), _converted(value, v)) for k, v in pairs]

    return Reading(kind, convert, nullable)


def _converted(reading: Reading, value: Any) -> Any:
    return value if value is None or reading.convert is None else reading.convert(value)


def collect(
    decoded: Decoded,
    reading: Reading,
    values: Sequence[T],
    places: Sequence[int],
    stage: str,
    load: Callable[[T], Any] | None = None,
) -> None:
    """Add the values, loaded by ``load``, as one column; those that fail become bad."""
    loaded: list[Any] = []
    kept: list[int] = []
    for place, value in zip(places, values, strict=True):
        try:
            loaded.append(value if load is None else load(value))
            kept.append(place)
        except Exception as error:  # whatever a decoder raises, this value is the reason
            decoded.bad.append(Bad(place, stage, type(error).__name__, str(error) or type(error).__name__))
    _add(decoded, reading, loaded, kept, stage)


def _add(decoded: Decoded, reading: Reading, values: Sequence[Any], places: Sequence[int], stage: str) -> None:
    if not values:
        return
    try:
        column = reading.column(values)
    except Exception as error:  # of any of the values
        if len(values) == 1:
            decoded.bad.append(Bad(places[0], stage, type(error).__name__, str(error).split("\n")[0]))
            return
        middle = len(values) // 2
        _add(decoded, reading, values[:middle], places[:middle], stage)
        _add(decoded, reading, values[middle:], places[middle:], stage)
    else:
        decoded.values.append(Values(column, True, places))
