"""Schemaless JSON.

The fast way hands a whole block to Arrow's JSON reader, with types that ``json_plan`` has found to be safe, and never
looks at a single record. It refuses rather than guesses; a block that it refuses is split until what is left goes the
exact way, value by value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.json as pj

from calving.converters.interface import Converter, Decoded, stage
from calving.model.record_path import Limits
from calving.records.json_plan import NoPlanError, Plan, Seen
from calving.records.json_table_plan import RoutePlan, TablePlan
from calving.records.json_whole_plan import WholePlan
from calving.records.jsontext import parse, parse_all
from calving.records.projection import Projection
from calving.records.values import RecordError, Values

_EXACT_AT_MOST = 64
"""Values that go the exact way without another try of the fast one."""
_SAMPLE = 20
_FIRST, _LAST = itemgetter(0), itemgetter(-1)
_OPEN, _CLOSE = b"{}"
_CONSTANT = re.compile(rb"[:,\[]\s*-?(NaN|Inf)")
_ROW = re.compile(r" in row ([0-9]+)$")
_REFUSALS_AT_MOST, _FEW, _APART = 24, 8, 128
"""Refusals in one block after which the rest of it goes the exact way; a few are enough if fewer values than these lie
between them."""
_RARE = 3
"""Refusals in one block up to which the next piece is as large as any: each piece has a fixed cost."""
_PIECE, _WARY_BLOCKS = 2_000, 16
"""Values that are read at once, in so many blocks after a refusal."""
_PATIENCE, _PATIENCE_AT_MOST = 4, 64
"""Blocks that go the exact way at once after one whose values mostly had to; after several such, twice as many each."""


class _RefusedError(Exception):
    """The fast way does not take this block."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


class JsonConverter(Converter):
    projects = True
    small = 32
    """So few values go the exact way at once: to set up Arrow's reader takes as long as a hundred of them do."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._seen, self._names = Seen(), 0
        self._projection: Projection | None = None
        self._plan = _plan(None)
        self._schema: pa.Schema | None = None
        self._exact_blocks = self._wary = 0
        self._patience = _PATIENCE
        self._nested = False
        """Whether a value that was read last may hold objects or arrays that no type says anything of."""
        self.fast = True

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        if projection is not self._projection:
            self._projection, self._plan, self._schema = projection, _plan(projection), None
        block = _Block(values)
        if self.fast and self._plan is not None and self._exact_blocks == 0 and len(values) > self.small:
            if not self._seen.kinds:
                self._learn(values)
            # A refused piece is read twice: where there were refusals lately, pieces are small.
            self._decode(block, 0, len(values), _PIECE if self._wary else len(values))
            self._wary = _WARY_BLOCKS if block.refusals else max(0, self._wary - 1)
            block.close()
            if len(block.exact) * 2 <= len(values):
                self._patience = _PATIENCE
            elif len(values) > _EXACT_AT_MOST:
                self._exact_blocks = self._patience
                self._patience = min(self._patience * 2, _PATIENCE_AT_MOST)
        else:
            self._exact_blocks = max(0, self._exact_blocks - 1)
            block.exact += range(len(values))
        self._decode_exactly(block)
        return block.decoded

    def _decode(self, block: _Block, start: int, end: int, most: int) -> None:
        """Values ``start`` to ``end`` by Arrow as far as it takes them, at ``most`` so many at once."""
        size = most
        while start < end:
            if block.is_hopeless(start):
                block.exact += range(start, end)
                return
            values = block.values[start : min(end, start + size)]
            try:
                self._take(block, start, values, self._read(values))
                start, size = start + len(values), min(size * 4, most)
                continue
            except _RefusedError as refused:
                row = refused.row if refused.row is not None and refused.row < len(values) else None
            if self._learn(values if row is None else values[row : row + 1]):
                continue
            block.refusals += 1
            if row is not None:
                # Arrow names the row: what stands before it is read at once, and this one on its own.
                self._decode(block, start, start + row, row)
                block.exact.append(start + row)
                start += row + 1
                size = most if block.refusals <= _RARE else min(max(_EXACT_AT_MOST, row * 4), most)
            elif len(values) > _EXACT_AT_MOST:
                size = len(values) // 2
            else:
                block.exact += range(start, start + len(values))
                start += len(values)

    def _take(self, block: _Block, start: int, values: Sequence[bytes], rows: pa.StructArray) -> None:
        """The rows that are beyond doubt; the others go the exact way."""
        assert self._plan is not None  # noqa: S101 - without a plan nothing is read
        doubtful = {
            *self._plan.doubtful(rows, values),
            *(self._deep(values) if self._nested else ()),
        }
        if not doubtful:
            block.read.append((rows, range(start, start + len(rows))))
            return
        block.exact += sorted(start + row for row in doubtful)
        kept = [row for row in range(len(rows)) if row not in doubtful]
        if kept:
            block.read.append((rows.take(pa.array(kept, pa.int32())), [start + row for row in kept]))

    def _deep(self, values: Sequence[bytes]) -> list[int]:
        """Values that may be nested deeper than the limit where no type says so; Arrow has none."""
        most = self._limits.nesting
        return [i for i, value in enumerate(values) if value.count(b"{") + value.count(b"[") > most]

    def _decode_exactly(self, block: _Block) -> None:
        places = block.exact
        found = parse_all([block.values[i] for i in places], self._limits.nesting)
        wrong = [n for n, value in enumerate(found) if isinstance(value, ValueError)]
        if wrong:
            for n in wrong:
                reason = f"not JSON: {found[n]}"
                block.decoded.bad.append(RecordError(places[n], self._stage, type(found[n]).__name__, reason))
            right = sorted({*range(len(found))} - {*wrong})
            found, places = [found[n] for n in right], [places[n] for n in right]
        if found:
            block.decoded.values.append(Values(found, False, places))

    def _learn(self, values: Sequence[bytes]) -> bool:
        """Look at some values; whether that changes how a block is read."""
        before = self._read_schema()
        for value in values[:: max(1, len(values) // _SAMPLE)]:
            try:
                found = parse(value, self._limits.nesting)
            except (ValueError, RecursionError):
                continue
            wanted = self._plan.wanted if self._plan is not None else None
            news = self._seen.look(found, wanted, self._limits.learned_names - self._names)
            self._names += news
            if news:
                self._schema = None
        if self._names >= self._limits.learned_names:
            # Names are always new: there is no type for such records, and what was learnt is of no use.
            self.fast, self._seen, self._schema = False, Seen(), None
            return False
        return self._read_schema() != before

    def _read_schema(self) -> pa.Schema | None:
        """None: there is no fast way for values of this shape."""
        if self._schema is None and self._plan is not None:
            try:
                self._schema = pa.schema(list(self._plan.type(self._seen)))
            except NoPlanError:
                return None
        return self._schema

    def _read(self, values: Sequence[bytes]) -> pa.StructArray:
        """One row per value, by Arrow.

        A newline between ``}`` and ``{`` can only stand between two objects. So of values that all begin with one and
        end with the other each holds at least one object, and if there are as many rows as values, each holds one.
        """
        if b"" in values or {*map(_FIRST, values)} != {_OPEN} or {*map(_LAST, values)} != {_CLOSE}:
            odd = (i for i, value in enumerate(values) if value[:1] != b"{" or value[-1:] != b"}")
            raise _RefusedError("not one object per record", next(odd, None))
        data = b"\n".join(values)
        if not data.isascii():
            try:
                data.decode()  # Arrow would let invalid text pass
            except UnicodeDecodeError as error:
                raise _RefusedError("invalid UTF-8", data.count(b"\n", 0, error.start)) from error
        closed = self._plan is not None and self._plan.ignores_unknown
        # Arrow takes NaN and infinity for numbers: in columns they are in doubt, in fields that nobody wants are here.
        # One letter is found much faster than three.
        named = (b"N" in data and b"NaN" in data) or (b"I" in data and b"Inf" in data)
        if closed and named and (constant := _CONSTANT.search(data)):
            raise _RefusedError("not a JSON number", data.count(b"\n", 0, constant.start()))
        self._nested = closed and (b"[" in data or data.count(b"{") > len(values))
        schema = self._read_schema() if self.fast else None
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
        return (
            pa.StructArray.from_arrays([_whole(c) for c in table.columns], fields=list(table.schema))
            if table.num_columns
            else pa.array([{}] * len(values), pa.struct([]))
        )


def _plan(projection: Projection | None) -> Plan | None:
    """The plan for a projection; None: only the exact way will do."""
    if projection is None:
        return None
    if projection.targets:
        return TablePlan(projection)
    if projection.route is not None:
        return RoutePlan(projection.route)
    return WholePlan(projection.decimals, projection.hides_order)


class _Block:
    def __init__(self, values: Sequence[bytes]) -> None:
        self.values, self.size = values, len(values)
        self.exact: list[int] = []
        self.refusals = 0
        self.read: list[tuple[pa.StructArray, Sequence[int]]] = []
        """What Arrow took, each piece with its places."""
        self.decoded = Decoded()

    def is_hopeless(self, start: int) -> bool:
        """Whether Arrow has refused so many of the values before this one that it is no help."""
        return self.refusals > _REFUSALS_AT_MOST or (self.refusals > _FEW and self.refusals * _APART > start)

    def close(self) -> None:
        """Put together what has the same type."""
        for _, group in groupby(self.read, lambda piece: piece[0].type):
            pieces = list(group)
            data = pa.concat_arrays([data for data, _ in pieces]) if len(pieces) > 1 else pieces[0][0]
            index = range(self.size) if len(data) == self.size else [i for _, found in pieces for i in found]
            self.decoded.values.append(Values(data, False, index))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
