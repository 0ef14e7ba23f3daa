"""Column statistics of a data file, the same for every format: counts, and bounds if the table's properties ask for
them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from calving.records.fields import leaves
from calving.records.foreign import NO_ID, VARIANT, geo_type
from calving.records.wkb import read_wkb
from calving.writing.formats.boxes import Box, has_edges
from calving.writing.formats.interface import BOUNDED, BYTES, Bounds, Ending
from calving.writing.properties import WriteProperties

_WIDTH = 16
_DEFAULT = f"truncate({_WIDTH})"
_BOUNDS_BYTES = 128 * 1024
"""The bounds of a file that have more bytes together are cut to ``_WIDTH`` each: the file's event has them, and the
control log takes no event of any size.
"""
_CUT = (StringType, BinaryType, FixedType)
"""The types of columns whose bounds are cut, as Java cuts them."""
_SURROGATES, _AFTER_SURROGATES = 0xD800, 0xE000
"""Code points from the first up to the second stand for no character, and UTF-8 cannot encode them."""
_AS_NUMBERS = (
    (pa.types.is_timestamp, pa.int64()),
    (pa.types.is_time, pa.int64()),
    (pa.types.is_date, pa.int32()),
)


@dataclass(frozen=True, slots=True)
class _Leaf:
    field_id: int
    kind: PrimitiveType
    name: str
    repeated: bool
    """Whether the column is inside a list or a map, or is a variant. Such a column has counts, but no bounds."""


_Rows = tuple[int, int]
"""The first row of a file's rows, and the row after the last one."""
Measured = tuple[_Leaf, str]
"""A primitive column, and its mode."""


def measured(schema: Schema, properties: WriteProperties, sorted_by: Iterable[int] = ()) -> list[Measured]:
    """Every primitive column with its mode, as in Java's MetricsConfig. Columns of the sort order have bounds even if
    the default mode has none. Without a default mode, only the first ``metrics_columns`` columns have statistics.
    """
    columns = list(_leaves(schema.as_struct(), schema, repeated=False))
    modes = dict.fromkeys((leaf.field_id for leaf in columns), properties.metrics or _DEFAULT)
    if properties.metrics is None:
        outer_first = sorted(columns, key=lambda leaf: leaf.name.count("."))
        modes |= dict.fromkeys((leaf.field_id for leaf in outer_first[properties.metrics_columns :]), "none")
    modes |= {i: _DEFAULT for i in sorted_by if modes.get(i) in ("none", "counts")}
    modes[NO_ID] = "none"
    return [(leaf, properties.metrics_by_column.get(leaf.name, modes[leaf.field_id])) for leaf in columns]


def _leaves(kind: IcebergType, schema: Schema, field_id: int = 0, *, repeated: bool) -> Iterator[_Leaf]:
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _leaves(field.field_type, schema, field.field_id, repeated=repeated)
        case ListType():
            yield from _leaves(kind.element_type, schema, kind.element_id, repeated=True)
        case MapType():
            yield from _leaves(kind.key_type, schema, kind.key_id, repeated=True)
            yield from _leaves(kind.value_type, schema, kind.value_id, repeated=True)
        case PrimitiveType():
            is_variant = kind == VARIANT
            yield _Leaf(field_id, kind, schema.find_column_name(field_id) or "", repeated or is_variant)
            if is_variant:  # its metadata is counted, and its value is not
                yield _Leaf(NO_ID, kind, "", repeated)


@dataclass(slots=True)
class _Column:
    leaf: _Leaf
    mode: str
    by_format: int
    """The bounds of values of up to so many bytes come from the format."""
    values: int = 0
    nulls: int = 0
    nans: int = 0
    low: Any = None
    high: Any = None
    left: list[_Rows] = field(default_factory=list)
    """The rows whose bounds the format finds."""
    is_known: bool = True
    """Whether the bounds cover all values."""

    def add(self, rows: _Rows, batches: Sequence[pa.Array]) -> None:
        """Count the values of these rows. The format finds the bounds of all of them, or of none."""
        is_left = self._bounded and self._is_by_format(batches)
        if is_left:
            self.left.append(rows)
        for column in batches:
            self.values += len(column)
            self.nulls += column.null_count
            nans = (pc.sum(pc.is_nan(column)).as_py() or 0) if pa.types.is_floating(column.type) else 0
            self.nans += nans
            if self._bounded and not is_left and column.null_count + nans < len(column):
                self._measure(column.filter(pc.invert(pc.is_nan(column))) if nans else column)

    def _is_by_format(self, batches: Sequence[pa.Array]) -> bool:
        if not self.by_format or not isinstance(self.leaf.kind, BYTES):
            return bool(self.by_format)
        return all((pc.max(pc.binary_length(column)).as_py() or 0) <= self.by_format for column in batches)

    def _measure(self, column: pa.Array) -> None:
        number = next((wanted for accepts, wanted in _AS_NUMBERS if accepts(column.type)), None)
        bounds = pc.min_max(column if number is None else column.cast(number))
        self._widen(bounds["min"].as_py(), bounds["max"].as_py())

    def _widen(self, low: Any, high: Any) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)

    def take(self, rows: _Rows, bounds: Bounds | None) -> None:
        """Take the format's bounds of these rows. Without them, the bounds of rows that were left to the format are
        unknown, and so are the file's: no bound hides no row, a wrong one does.
        """
        if not self._bounded:
            return
        if bounds is not None:
            self._widen(*bounds)
        elif any(start < rows[1] and rows[0] < end for start, end in self.left):
            self.is_known = False

    @property
    def _bounded(self) -> bool:
        # Engines do not agree on the order of UUIDs.
        return (
            self.mode not in ("none", "counts") and not self.leaf.repeated and not isinstance(self.leaf.kind, UUIDType)
        )

    @property
    def _width(self) -> int | None:
        return int(self.mode[9:-1]) if self.mode.startswith("truncate(") else None

    def lower(self, most: int | None = None) -> bytes | None:
        """The lower bound. ``most``: a text or bytes are cut to so many characters or bytes, whatever the mode says."""
        low = self.low if self.is_known else None
        if isinstance(self.leaf.kind, _CUT):
            low = None if low is None else low[: _least(self._width, most)]
        elif low == 0 and isinstance(low, float):
            low = -0.0  # -0.0 is less than 0.0, but Arrow takes them as equal
        return None if low is None else to_bytes(self.leaf.kind, low)

    def upper(self, most: int | None = None) -> bytes | None:
        """The upper bound, as ``lower``."""
        high = self.high if self.is_known else None
        if high is not None and isinstance(self.leaf.kind, StringType):
            high = text_not_below(high, _least(self._width, most))
        elif high is not None and isinstance(self.leaf.kind, _CUT):
            high = bytes_not_below(high, _least(self._width, most))
        elif high == 0 and isinstance(high, float):
            high = 0.0
        return None if high is None else to_bytes(self.leaf.kind, high)


@dataclass(slots=True)
class _GeoColumn(_Column):
    """A column of geometries: its bounds are the corners of a box."""

    box: Box = field(default_factory=Box)

    def _measure(self, column: pa.Array) -> None:
        is_curved = (kind := geo_type(self.leaf.kind)) is not None and kind.edges is not None
        for value in column.drop_null().to_pylist() if self.is_known else ():
            try:
                geometry, _ = read_wkb(value)
            except ValueError:  # another engine has written it
                self.is_known = False
                return
            if is_curved and has_edges(geometry):
                self.is_known = False
                return
            self.box.add(geometry)

    def lower(self, most: int | None = None) -> bytes | None:
        corners = self.box.corners() if self.is_known else None
        return None if corners is None else corners[0]

    def upper(self, most: int | None = None) -> bytes | None:
        corners = self.box.corners() if self.is_known else None
        return None if corners is None else corners[1]


def _least(width: int | None, most: int | None) -> int | None:
    return min((each for each in (width, most) if each is not None), default=None)


def text_not_below(value: str, width: int | None) -> str | None:
    """An upper bound of at most ``width`` code points for all texts with the beginning of ``value``; None if there is
    none.
    """
    if width is None or len(value) <= width:
        return value
    for place in reversed(range(width)):
        code = ord(value[place]) + 1
        code = _AFTER_SURROGATES if code == _SURROGATES else code
        if code <= sys.maxunicode:
            return value[:place] + chr(code)
    return None


def bytes_not_below(value: bytes, width: int | None) -> bytes | None:
    """Like ``text_not_below``, for bytes."""
    if width is None or len(value) <= width:
        return value
    kept = value[:width].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a file by column id, and its number of rows. Columns of floats and doubles have counts of
    NaN.
    """

    records: int
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]


class Metrics:
    """The statistics of one file, collected while it is written."""

    def __init__(self, columns: Iterable[Measured], by_format: int) -> None:
        """``by_format``: the ``measures_up_to`` of the file's format."""
        self._columns = [
            (_Column if geo_type(leaf.kind) is None else _GeoColumn)(
                leaf, mode, by_format if isinstance(leaf.kind, BOUNDED) else 0
            )
            for leaf, mode in columns
        ]
        self.records = 0

    def add(self, rows: pa.Table) -> None:
        """Count the rows of one call of ``FileWriter.write``."""
        span = self.records, self.records + rows.num_rows
        self.records += rows.num_rows
        batches = [leaves(batch.columns) for batch in rows.to_batches()]
        for column, *values in zip(self._columns, *batches, strict=True):
            if column.mode != "none":
                column.add(span, values)

    def end(self, ending: Ending) -> Statistics:
        """Take the bounds that the format has found. The statistics of the whole file."""
        by_id = {column.leaf.field_id: column for column in self._columns}
        start = 0
        for part in ending.parts:
            end = start + part.rows
            for field_id, bounds in part.bounds.items():
                by_id[field_id].take((start, end), bounds)
            start = end
        for column in self._columns:
            column.take((start, self.records), None)
        counted = [(column.leaf.field_id, column) for column in self._columns if column.mode != "none"]
        low, high = self._bounds()
        if sum(map(len, (*low.values(), *high.values()))) > _BOUNDS_BYTES:
            low, high = self._bounds(_WIDTH)
        return Statistics(
            records=self.records,
            value_counts={i: column.values for i, column in counted},
            null_value_counts={i: column.nulls for i, column in counted},
            nan_value_counts={i: c.nans for i, c in counted if str(c.leaf.kind) in ("float", "double")},
            lower_bounds=low,
            upper_bounds=high,
        )

    def _bounds(self, most: int | None = None) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """The lower and the upper bounds by column id, as ``_Column.lower``."""
        ids = [column.leaf.field_id for column in self._columns]
        low = zip(ids, (column.lower(most) for column in self._columns), strict=True)
        high = zip(ids, (column.upper(most) for column in self._columns), strict=True)
        return {i: b for i, b in low if b is not None}, {i: b for i, b in high if b is not None}
