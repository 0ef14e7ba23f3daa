"""Records between their bytes and a table's rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, cast, overload

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.dead_letters import Stage
from calving.model.tables import KeyFields
from calving.records import arrays
from calving.records.arrays import Indices, arrow, compose
from calving.records.contents import Content
from calving.records.jsontext import load_json, parse


class Payloads(Sequence[Any]):
    """The keys or the values of a block: an Arrow column with bytes or null for each record. Objects are made at their
    first use.
    """

    def __init__(self, payloads: pa.Array | Sequence[bytes | None]) -> None:
        self.column = payloads if isinstance(payloads, pa.Array) else pa.array(payloads, pa.binary())

    @staticmethod
    def of(values: Sequence[bytes | None]) -> Payloads:
        """Payloads of any sequence; payloads are returned unchanged."""
        return values if isinstance(values, Payloads) else Payloads(values)

    @cached_property
    def items(self) -> list[Any]:
        """The payloads as Python objects."""
        return self.column.to_pylist()

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> Payloads: ...
    def __getitem__(self, at: int | slice) -> Any:
        return Payloads(self.column[at]) if isinstance(at, slice) else self.column[at].as_py()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.items == list(other)

    __hash__ = None  # type: ignore[assignment]

    def take(self, chosen: Indices) -> Payloads:
        """The payloads at these ascending indices."""
        return self if len(chosen) == len(self) else Payloads(arrays.chosen(self.column, chosen))

    @property
    def nulls(self) -> list[int]:
        """Indices of the nulls."""
        return pc.indices_nonzero(self.column.is_null()).to_pylist() if self.column.null_count else []

    @cached_property
    def size(self) -> int:
        """Bytes of all payloads."""
        column = self.column
        if column.null_count or not len(column):
            return pc.sum(pc.binary_length(column)).as_py() or 0
        # Without nulls, the bytes between the first and the last offset are all of payloads.
        ends = pa.Array.from_buffers(pa.int32(), len(self) + 1, [None, column.buffers()[1]], offset=column.offset)
        return int(ends[-1].as_py() - ends[0].as_py())

    @property
    def longest(self) -> int:
        """Bytes of the largest payload; 0 if there is none."""
        return pc.max(pc.binary_length(self.column)).as_py() or 0


__all__ = [
    "HEADERS",
    "Content",
    "Decoded",
    "Objects",
    "RecordError",
    "Records",
    "Values",
    "arrow",
    "field",
    "load_json",
    "objects",
    "objects_in_parts",
    "texts",
    "texts_of_any_case",
]

Objects = list[Any]
"""Schemaless values that Arrow cannot read exactly, as ``jsontext.parse`` returns them."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


_LONGEST_REASON = 2_000
"""Characters."""


@dataclass(frozen=True, slots=True)
class RecordError:
    """A bad record: its place in the block, the stage that found it to be bad, and why.

    ``fatal``: the record stops the sink even if bad records are tolerated.
    """

    index: int
    stage: Stage
    error: str
    reason: str
    fatal: bool = False

    def __post_init__(self) -> None:
        if len(self.reason) > _LONGEST_REASON:  # it may name what a record's author has made long
            object.__setattr__(self, "reason", f"{self.reason[:_LONGEST_REASON]}...")
        if not self.reason.isascii():  # half of a pair of surrogates has no form in UTF-8
            object.__setattr__(self, "reason", self.reason.encode(errors="backslashreplace").decode())

    def within(self, outer: Indices) -> RecordError:
        """The same error, with its place in a larger block, as ``Values.within``."""
        return replace(self, index=outer[self.index])


class Values:
    """Decoded values of one shape: an Arrow column, or ``Objects``. ``index`` holds their places in the block.

    ``typed`` values come with a schema (Avro, Protobuf, a Connect envelope). Other values have only the types that
    their text shows. ``key_fields``: the fields of the keys of all their records, if keys name id columns.
    """

    __slots__ = ("content", "data", "index", "key_fields", "typed")

    def __init__(
        self,
        data: pa.Array | Objects,
        typed: bool,
        index: Indices | None = None,
        *,
        content: Content = "row",
        key_fields: KeyFields = (),
    ) -> None:
        """``index`` None: the values of the whole block, in order."""
        self.data, self.typed, self.content, self.key_fields = data, typed, content, key_fields
        self.index: Indices = range(len(data)) if index is None else index

    def __len__(self) -> int:
        return len(self.data)

    def choose(self, rows: Indices) -> Values:
        """The values at these ascending rows of this column."""
        if len(rows) == len(self):
            return self
        if isinstance(self.data, list):
            data: pa.Array | Objects = [self.data[row] for row in rows]
        else:
            data = arrays.chosen(self.data, rows)
        return self._like(data, compose(self.index, rows))

    def within(self, outer: Indices) -> Values:
        """The same values, whose places in this selection become those in the larger block: ``outer`` maps them."""
        return self._like(self.data, compose(outer, self.index))

    def with_key_fields(self, fields: KeyFields) -> Values:
        """The same values, of records whose keys have these fields."""
        return Values(self.data, self.typed, self.index, content=self.content, key_fields=fields)

    def with_data(self, data: pa.Array | Objects) -> Values:
        """Other values of the same records."""
        return self._like(data, self.index)

    def _like(self, data: pa.Array | Objects, index: Indices) -> Values:
        return Values(data, self.typed, index, content=self.content, key_fields=self.key_fields)


@dataclass(slots=True)
class Decoded:
    """Decoded values, grouped by shape, and bad values, which are not of the format. Each value is in exactly one
    group.
    """

    values: list[Values] = dataclasses.field(default_factory=list)
    bad: list[RecordError] = dataclasses.field(default_factory=list)

    def within(self, outer: Indices) -> Decoded:
        """The same values, with indices in a larger block. ``outer`` holds the indices of these values in that
        block.
        """
        return Decoded([values.within(outer) for values in self.values], [bad.within(outer) for bad in self.bad])


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one source partition, as columns of equal length: the input and output of transforms.

    ``index`` (int32) holds the records' places in the block that was read. Through all transforms a record keeps its
    place, and with it its source offset. ``topic`` (string), ``timestamp`` (milliseconds UTC) and ``headers``
    (``HEADERS``) may be changed. ``value`` is null for a tombstone. ``content`` says what the values are. A record may
    have a before image beside its row, with the same place; whatever becomes of the row becomes of the image.
    """

    index: pa.Array
    topic: pa.Array
    partition: int
    offset: pa.Array
    timestamp: pa.Array
    key: pa.Array
    value: pa.Array
    headers: pa.Array
    typed: bool
    content: Content = "row"

    def __len__(self) -> int:
        return len(self.index)

    def take(self, chosen: pa.Array) -> Records:
        """The records at these places, or those for which this mask is true."""
        pick = pc.filter if pa.types.is_boolean(chosen.type) else pc.take
        return self._each(lambda column: pick(column, chosen))

    def slice(self, start: int, end: int) -> Records:
        """The records from place ``start`` up to, not including, ``end``."""
        return self._each(lambda column: column.slice(start, end - start))

    def _each(self, change: Callable[[pa.Array], pa.Array]) -> Records:
        return replace(
            self,
            index=change(self.index),
            topic=change(self.topic),
            offset=change(self.offset),
            timestamp=change(self.timestamp),
            key=change(self.key),
            value=change(self.value),
            headers=change(self.headers),
        )

    def with_value(self, value: pa.Array) -> Records:
        return replace(self, value=value)


def objects(column: pa.Array) -> list[Any]:
    """A column as Python values: JSON text is parsed, and a map becomes ``Pairs``."""
    return arrays.objects(column, _read)


def objects_in_parts(column: pa.Array) -> Iterator[tuple[int, list[Any]]]:
    """As ``objects``, but a part at a time, each with its first row: Python's values take many times as much memory as
    the column.
    """
    pending = [(0, column)]
    while pending:
        start, part = pending.pop()
        if len(part) == 1 or part.nbytes <= _AT_ONCE:
            yield start, objects(part)
        else:
            half = len(part) // 2
            pending += [(start + half, part.slice(half)), (start, part.slice(0, half))]


_AT_ONCE = 8 * 1024 * 1024
"""Bytes of a column that become Python's values at once, unless a single value has more."""


def _read(text: str) -> Any:
    return parse(text.encode(), 1_000)


def field(column: pa.Array, path: str) -> pa.Array | None:
    """A dotted field of a struct column; None if the type has no such field."""
    for name in path.split("."):
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column


def texts(data: pa.Array | Objects, path: str) -> Sequence[str | None]:
    """The text of a dotted field of every value; None if the field is missing or null."""
    if isinstance(data, list):
        return [_text(_dig(value, path)) for value in data]
    column = field(data, path)
    if column is None:
        return [None] * len(data)
    if pa.types.is_string(column.type):
        return column.to_pylist()
    return [_text(value) for value in objects(column)]


def texts_of_any_case(data: pa.Array | Objects, path: str) -> Sequence[str | None]:
    """As ``texts``, of the field that has this dotted name in any case. If a value has several such fields, its last
    one counts that is not null.
    """
    names = path.lower().split(".")
    if isinstance(data, list):
        return [_text(_last(value, names)) for value in data]
    last: pa.Array = pa.nulls(len(data), pa.string())
    for spelling in _spellings(data.type, names):
        last = pc.coalesce(pa.array(texts(data, spelling), pa.string()), last)
    return cast("list[str | None]", last.to_pylist())


def _last(value: Any, names: Sequence[str]) -> Any:
    if not names:
        return value
    inside = reversed(list(value.items())) if isinstance(value, Mapping) else ()
    lasts = (_last(item, names[1:]) for name, item in inside if name.lower() == names[0])
    return next((last for last in lasts if last is not None), None)


def _spellings(kind: pa.DataType, names: Sequence[str]) -> list[str]:
    """The dotted fields of the type that have this name in any case, in the type's order."""
    here = [each for each in kind if each.name.lower() == names[0]] if pa.types.is_struct(kind) else []
    if len(names) == 1:
        return [each.name for each in here]
    return [f"{each.name}.{inner}" for each in here for inner in _spellings(each.type, names[1:])]


def _dig(value: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, default=lambda item: float(item) if isinstance(item, Decimal) else str(item))
