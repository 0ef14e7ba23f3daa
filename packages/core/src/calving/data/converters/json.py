"""Schemaless JSON.

The fast way hands a whole block to Arrow's JSON reader, with types that were learnt from the data and from the columns
that the values go to, and never looks at a single record. It refuses rather than guesses; a block that it refuses is
split until what is left goes the exact way, value by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from calving.data.converters.interface import Converter, Decoded, Wish, stage
from calving.data.records import JSON_KINDS, Bad, Values, load_json

_EXACT_AT_MOST = 64
"""Values that go the exact way without another try of the fast one."""
_SAMPLE = 20
_FIELDS_AT_MOST = 2_000
_CONSTANT = re.compile(rb"[:,\[]\s*-?(NaN|Inf)")
_ROW = re.compile(r" in row ([0-9]+)$")
_REFUSALS_AT_MOST = 24
"""Refusals in one block after which the rest of it goes the exact way."""
_PIECE, _WARY_BLOCKS = 2_000, 16
"""Values that are read at once, in so many blocks after a refusal."""
_PATIENCE = 4
"""Blocks that go the exact way at once after one whose values mostly had to."""

_TEMPORAL = (DateType, TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_WHOLE = (IntegerType, LongType, StringType, *_TEMPORAL)


class _RefusedError(Exception):
    """The fast way does not take this block."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


class JsonConverter(Converter):
    projects = True

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        self._shape = _Shape()
        self._wish: Wish | None = None
        self._schema: pa.Schema | None = None
        self._exact_blocks = self._wary = 0
        self.fast = True

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        if wish is not self._wish:
            self._wish, self._schema = wish, None
        block = _Block(values)
        if self.fast and self._exact_blocks == 0:
            if not self._shape.kinds:
                self._learn(values)
            # A refused piece is read twice: where there were refusals lately, pieces are small.
            step = _PIECE if self._wary else max(1, len(values))
            for start in range(0, len(values), step):
                self._decode(block, start, min(start + step, len(values)))
            self._wary = _WARY_BLOCKS if block.refusals else max(0, self._wary - 1)
            block.close()
            if len(block.exact) * 2 > len(values) > _EXACT_AT_MOST:
                self._exact_blocks = _PATIENCE
        else:
            self._exact_blocks = max(0, self._exact_blocks - 1)
            block.exact += range(len(values))
        self._decode_exactly(block)
        return block.decoded

    def _decode(self, block: _Block, start: int, end: int) -> None:
        """Values ``start`` to ``end`` by Arrow as far as it takes them."""
        while start < end:
            values = block.values[start:end]
            if block.refusals > _REFUSALS_AT_MOST:
                block.exact += range(start, end)
                return
            try:
                data = self._read(values)
            except _RefusedError as refused:
                if self._learn(values):
                    continue
                block.refusals += 1
                if refused.row is not None and refused.row < len(values):
                    # Arrow names the row: what stands before it is read at once, and this one on its own.
                    self._decode(block, start, start + refused.row)
                    block.exact.append(start + refused.row)
                    start += refused.row + 1
                    continue
                if len(values) <= _EXACT_AT_MOST:
                    block.exact += range(start, end)
                    return
                middle = start + len(values) // 2
                self._decode(block, start, middle)
                start = middle
            else:
                block.read.append((data, start))
                return

    def _decode_exactly(self, block: _Block) -> None:
        found: list[Any] = []
        places: list[int] = []
        for i in block.exact:
            try:
                value = load_json(block.values[i].decode())
            except (ValueError, RecursionError) as error:
                block.decoded.bad.append(Bad(i, self._stage, type(error).__name__, f"not JSON: {error}"))
                continue
            found.append(value)
            places.append(i)
        if found:
            if self._shape.learn(found):
                self._schema = None
            block.decoded.values.append(Values(found, False, places))

    def _learn(self, values: Sequence[bytes]) -> bool:
        """Look at some values; whether that changes how a block is read."""
        samples = []
        for value in values[:: max(1, len(values) // _SAMPLE)]:
            try:
                samples.append(load_json(value.decode()))
            except (ValueError, RecursionError):
                continue
        before = self._read_schema()
        if self._shape.learn(samples):
            self._schema = None
        return self._read_schema() != before

    def _read_schema(self) -> pa.Schema | None:
        """None: there is no fast way for values of this shape."""
        if self._schema is None:
            wish = self._wish
            columns, closed = (wish.columns, wish.closed) if wish is not None else (StructType(), False)
            try:
                kind = _struct(self._shape, columns, closed, wish.names if wish is not None else ())
            except _RefusedError:
                return None
            self._schema = pa.schema(list(kind))
        return self._schema

    def _read(self, values: Sequence[bytes]) -> pa.StructArray:
        """One row per value, by Arrow.

        A joint that is not ``}``, newline, ``{`` means a value that is not one object: blank, or several. Neither kind
        can hide the other, because blanks spoil one joint more than they are.
        """
        data = b"\n".join(values)
        if data[:1] != b"{" or data[-1:] != b"}" or data.count(b"}\n{") != len(values) - 1:
            odd = (i for i, value in enumerate(values) if value[:1] != b"{" or value[-1:] != b"}")
            raise _RefusedError("not one object per record", next(odd, None))
        if not data.isascii():
            try:
                data.decode()  # Arrow would let invalid text pass
            except UnicodeDecodeError as error:
                raise _RefusedError("invalid UTF-8", data.count(b"\n", 0, error.start)) from error
        closed = self._wish is not None and self._wish.closed
        # Arrow takes NaN and infinity for numbers: in columns they are found below, in fields that nobody wants here.
        # One letter is found much faster than three.
        named = (b"N" in data and b"NaN" in data) or (b"I" in data and b"Inf" in data)
        if closed and named and (constant := _CONSTANT.search(data)):
            raise _RefusedError("not a JSON number", data.count(b"\n", 0, constant.start()))
        schema = self._read_schema()
        if schema is None:
            raise _RefusedError("no type for it")
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(
                    explicit_schema=schema, unexpected_field_behavior="ignore" if closed else "error"
                ),
            )
        except (pa.ArrowException, UnicodeDecodeError) as error:
            row = _ROW.search(str(error))
            raise _RefusedError(str(error), int(row.group(1)) if row else None) from error
        if table.num_rows != len(values):
            raise _RefusedError("not one row per record")
        if not all(map(_finite, table.columns)):
            raise _RefusedError("not a JSON number, or one that no double holds")
        return (
            pa.StructArray.from_arrays([_whole(c) for c in table.columns], fields=list(table.schema))
            if table.num_columns
            else pa.array([{}] * len(values), pa.struct([]))
        )


def _finite(column: pa.ChunkedArray | pa.Array) -> bool:
    kind = column.type
    if pa.types.is_floating(kind):
        return pc.all(pc.is_finite(column)).as_py() is not False
    if pa.types.is_struct(kind):
        return all(map(_finite, column.flatten()))
    if pa.types.is_list(kind):
        return _finite(pc.list_flatten(column))
    return True


class _Block:
    def __init__(self, values: Sequence[bytes]) -> None:
        self.values, self.size = values, len(values)
        self.exact: list[int] = []
        self.refusals = 0
        self.read: list[tuple[pa.StructArray, int]] = []
        """What Arrow took, each piece with its first place."""
        self.decoded = Decoded()

    def close(self) -> None:
        """Put together what has the same type."""
        for _, group in groupby(self.read, lambda piece: piece[0].type):
            pieces = list(group)
            data = pa.concat_arrays([data for data, _ in pieces]) if len(pieces) > 1 else pieces[0][0]
            places = None
            if len(data) < self.size:
                places = [i for data, start in pieces for i in range(start, start + len(data))]
            self.decoded.values.append(Values(data, False, places))


class _Shape:
    """What was seen of a field: its kinds in the order they first came, its fields, its elements."""

    __slots__ = ("element", "fields", "kinds")

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self.fields: dict[str, _Shape] = {}
        self.element: _Shape | None = None

    def learn(self, values: Sequence[Any]) -> bool:
        """Whether any of these values is news."""
        news = [self._see(value) for value in values]  # every value is looked at
        return any(news)

    def _see(self, value: Any) -> bool:
        if value is None:
            return False
        kind = JSON_KINDS[type(value)]
        news = kind not in self.kinds
        if news:
            self.kinds.append(kind)
        if kind == "object":
            for name, item in value.items():
                known = self.fields.get(name)
                if known is None:
                    known = self.fields[name] = _Shape()
                    news = True
                news = known._see(item) or news
        elif kind == "array":
            if self.element is None:
                self.element, news = _Shape(), True
            for item in value:
                news = self.element._see(item) or news
        return news


def _struct(shape: _Shape, columns: StructType, closed: bool, more: Sequence[str] = ()) -> pa.DataType:
    wanted = {f.name: f.field_type for f in columns.fields}
    names = dict.fromkeys([*wanted, *more] if closed else shape.fields)
    if len(names) > _FIELDS_AT_MOST:
        raise _RefusedError("too many fields")
    return pa.struct(
        [(n, _read_type(shape.fields.get(n, _UNSEEN), wanted.get(n), closed and n in wanted)) for n in names]
    )


_UNSEEN = _Shape()


def _read_type(shape: _Shape, column: IcebergType | None, closed: bool) -> pa.DataType:
    """The type that Arrow reads a field as, by what was seen of it and where it goes."""
    first = shape.kinds[0] if shape.kinds else None
    if first is None:
        return _unseen_type(column, closed)
    if first == "object":
        if isinstance(column, MapType):
            raise _RefusedError("an object into a map: its keys are not known beforehand")
        return _struct(shape, column if isinstance(column, StructType) else StructType(), closed and _is_struct(column))
    if first == "array":
        element = shape.element or _UNSEEN
        return pa.list_(_read_type(element, column.element_type if isinstance(column, ListType) else None, closed))
    if isinstance(column, DecimalType) and first in ("long", "double", "string"):
        # Arrow's reader does not look at the precision once it has filled up the scale; the cast later does.
        return pa.decimal128(38, column.scale)
    if first in ("long", "double"):
        if isinstance(column, FloatType | DoubleType):
            return pa.float64()
        if isinstance(column, _WHOLE):
            return pa.int64()  # a double could not hold every whole number, and its text is another
        return pa.float64() if "double" in shape.kinds else pa.int64()
    return pa.bool_() if first == "boolean" else pa.string()


def _is_struct(column: IcebergType | None) -> bool:
    return isinstance(column, StructType)


def _unseen_type(column: IcebergType | None, closed: bool) -> pa.DataType:
    """Null: the first value makes Arrow refuse, and then it is seen."""
    match column:
        case StructType():
            return _struct(_UNSEEN, column, closed)
        case LongType():
            return pa.int64()
        case DoubleType() | FloatType():
            return pa.float64()
        case StringType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            return pa.string()
    return pa.null()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
