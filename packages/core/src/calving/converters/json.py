"""Schemaless JSON.

The fast path hands a whole block to Arrow's JSON reader, with types that ``json_plan`` has found to be safe. It never
looks at a single record, and it refuses a block rather than guess. A refused block is split, until only refused values
are left; these take the exact path, value by value. If there is a decoder in Rust for the block, it replaces the fast
path. Values that the decoder refuses take the exact path at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import pyarrow as pa

from calving.converters.interface import Converter, Decoded, stage
from calving.converters.json_rows import read_rows
from calving.converters.native_json import NativeJson, native_json
from calving.converters.native_whole import NativeWhole, native_whole
from calving.model.record_path import Limits
from calving.records.arrays import Indices, chosen, without
from calving.records.failures import ExactPathError
from calving.records.fields import Projection
from calving.records.json_plan import NoPlanError, Plan, Seen
from calving.records.json_table_plan import RoutePlan, TablePlan
from calving.records.json_whole_plan import WholePlan, whole_type
from calving.records.jsontext import parse, parse_all
from calving.records.payloads import Payloads
from calving.records.values import RecordError, Values

_EXACT_AT_MOST = 64
"""At most this many refused values take the exact path together, without another try of the fast path."""
_SAMPLE = 20
_RARE = 3
"""Up to this many refusals in a block, the next piece has full size, because each piece has a fixed cost."""
_PIECE, _WARY_BLOCKS = 2_000, 16
"""After a refusal, this many blocks are read in pieces of this many values."""
_PATIENCE, _PATIENCE_AT_MOST = 4, 64
"""If most values of a block had to take the exact path, this many later blocks take it without a try. After each
further such block the number doubles, up to the second number.
"""
_REFUSALS_AT_MOST, _FEW, _APART = 24, 8, 128
"""After the first number of refusals in a block, its rest takes the exact path. More than the second number are enough
if there are fewer values between two refusals than the third number.
"""


class JsonConverter(Converter):
    projects = True
    small = 32
    """At most this many values take the exact path at once: setting up Arrow's reader takes as long as decoding a
    hundred values.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool, limits: Limits | None = None) -> None:
        self._stage = stage(is_key)
        self._limits = limits or Limits()
        self._seen, self._names = Seen(), 0
        self._projection: Projection | None = None
        self._plan = _plan(None)
        self._native: NativeJson | None = None
        self._whole: NativeWhole | None = None
        self._knows_whole = False
        self._schema: pa.Schema | None = None
        self._exact_blocks = self._wary = 0
        self._patience = _PATIENCE
        self._nested = False
        """Whether a value that was read last may hold objects or arrays that the types do not describe."""
        self.fast = True

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        if projection is not self._projection:
            self._projection, self._plan, self._schema, self._knows_whole = projection, _plan(projection), None, False
            self._native = native_json(projection, self._limits.nesting)
        block = _Block(Payloads.of(values))
        if self.fast and (self._natively(block) or self._wholly(block)):
            block.close()
        elif self.fast and self._plan is not None and self._exact_blocks == 0 and len(values) > self.small:
            if not self._seen.kinds:
                self._learn(block.values)
            # A refused piece is read twice, so pieces are small if there were refusals lately.
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
        if block.exact:
            self._decode_exactly(block)
        return block.decoded

    def _natively(self, block: _Block) -> bool:
        found = None if self._native is None else self._native.read(block.payloads)
        if found is None:
            return False
        rows, block.exact = found
        if len(rows):
            places = without(block.size, {*block.exact})
            block.read.append((rows, places))
        return True

    def _wholly(self, block: _Block) -> bool:
        """Decode whole values in Rust, and tell whether that was done. If too many values have unknown fields, look at
        these values first and try again.
        """
        if not isinstance(self._plan, WholePlan) or block.size <= self.small:
            return False
        if not self._seen.kinds:
            self._learn(block.values)
        whole = self._native_whole(self._plan)
        if whole is None or whole.waits():
            return False
        pieces, refused = whole.read(block.payloads)
        if pieces is None:
            self._learn(block.at(refused))
            if self._knows_whole or (whole := self._native_whole(self._plan)) is None:
                return False
            pieces, refused = whole.read(block.payloads)
        if pieces is None:
            return False
        block.read, block.exact = pieces, refused
        return True

    def _native_whole(self, plan: WholePlan) -> NativeWhole | None:
        if not self._knows_whole:
            kind, self._knows_whole = whole_type(self._seen, widens=False), True
            self._whole = native_whole(kind, self._limits.nesting, decimals=plan.decimals, hides_order=plan.hides_order)
        return self._whole

    def _decode(self, block: _Block, start: int, end: int, most: int) -> None:
        """Decode the values from ``start`` to ``end`` with Arrow, as far as Arrow accepts them, at most ``most`` at
        once.
        """
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
            except ExactPathError as refused:
                row = refused.row if refused.row is not None and refused.row < len(values) else None
            if self._learn(values if row is None else values[row : row + 1]):
                continue
            block.refusals += 1
            if row is not None:
                # Arrow names the refused row. The rows before it are read together, and this row takes the exact path.
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
        """Take the rows that are not doubtful. The others take the exact path."""
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
            block.read.append((chosen(rows, kept), [start + row for row in kept]))

    def _deep(self, values: Sequence[bytes]) -> list[int]:
        """Values that may be nested deeper than the limit in places that the types do not describe. Arrow has no such
        limit.
        """
        most = self._limits.nesting
        return [i for i, value in enumerate(values) if value.count(b"{") + value.count(b"[") > most]

    def _decode_exactly(self, block: _Block) -> None:
        places = block.exact
        found = parse_all(block.at(places), self._limits.nesting)
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
        """Look at some values. Returns whether that changes how a block is read."""
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
                self._schema, self._knows_whole = None, False
        if self._names >= self._limits.learned_names:
            # The names are new in every record: no type fits such records, and the cached types are useless.
            self.fast, self._seen, self._schema = False, Seen(), None
            return False
        return self._read_schema() != before

    def _read_schema(self) -> pa.Schema | None:
        """The schema for Arrow's reader; None if there is no fast path for values of this shape."""
        if self._schema is None and self._plan is not None:
            try:
                self._schema = pa.schema(self._plan.type(self._seen).fields)
            except NoPlanError:
                return None
        return self._schema

    def _read(self, values: Sequence[bytes]) -> pa.StructArray:
        schema = self._read_schema() if self.fast else None
        if schema is None:
            raise ExactPathError("no type for it")
        closed = self._plan is not None and self._plan.ignores_unknown
        rows, self._nested = read_rows(values, schema, closed=closed)
        return rows


class _Block:
    """One block while it is decoded: values that Arrow has read, and values that take the exact path."""

    def __init__(self, payloads: Payloads) -> None:
        self.payloads, self.size = payloads, len(payloads)
        self.exact: list[int] = []
        self.refusals = 0
        self.read: list[tuple[pa.StructArray, Sequence[int]]] = []
        """Columns that Arrow has read, each with the indices of its values."""
        self.decoded = Decoded()

    @property
    def values(self) -> list[bytes]:
        return self.payloads.items

    def at(self, places: Indices) -> list[bytes]:
        """The values at these places."""
        return self.payloads.take(places).items

    def is_hopeless(self, start: int) -> bool:
        """Whether Arrow has refused so many of the values before this one that further tries do not pay off."""
        return self.refusals > _REFUSALS_AT_MOST or (self.refusals > _FEW and self.refusals * _APART > start)

    def close(self) -> None:
        """Concatenate the columns of the same type."""
        for _, group in groupby(self.read, lambda piece: piece[0].type):
            pieces = list(group)
            data = pa.concat_arrays([data for data, _ in pieces]) if len(pieces) > 1 else pieces[0][0]
            index = range(self.size) if len(data) == self.size else [i for _, found in pieces for i in found]
            self.decoded.values.append(Values(data, False, index))


def _plan(projection: Projection | None) -> Plan | None:
    """The plan for a projection; None if only the exact path can read its values."""
    if projection is None:
        return None
    if projection.targets:
        return TablePlan(projection)
    if projection.route is not None:
        return RoutePlan(projection.route)
    return WholePlan(projection.decimals, projection.hides_order)
