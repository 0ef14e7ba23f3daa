"""The keys that one commit changes, and their rows in a file.

Keys are read in parts, so that memory is bounded however many keys a commit has. In sorted key columns a few keys are
found by binary search, without comparing every row (L6).
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from calving.mutations.columns import Column, ColumnReader, File
from calving.writing.key_runs import are_last, numbered

TOGETHER = 2
"""How many rows are searched at a time, for each key."""
_KEY, _PLACE = "key", "place"
_Column = TypeVar("_Column", pa.Array, pa.ChunkedArray)
_ROWS_OF_A_SEARCH = 12
"""The number of rows that can be compared in the time of a search for one key. It was measured with keys of numbers and
of text.
"""
KEY, ROW = "key", "row"
"""The columns of sorted keys: a key, and the row that has it."""
_KINDS = (pa.int32(), pa.int64(), pa.string(), pa.binary())
KEYS_AT_ONCE = 2_000_000
_BYTES_AT_ONCE = 1024**3
"""The keys of a part are at most about as large. Arrow's arrays of text hold 2 GiB."""


def is_searchable(keys: pa.Array) -> bool:
    """Whether these keys of one column can be searched for."""
    has_search = hasattr(pc, "search_sorted")  # older releases of Arrow do not have it
    return has_search and keys.type in _KINDS and not keys.null_count


def pays(keys: int, rows: int) -> bool:
    """Whether searching for this many keys is cheaper than comparing this many rows."""
    return keys * _ROWS_OF_A_SEARCH < rows


def in_order(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The keys of a file, sorted, and the row of each key. A row whose key is null is left out."""
    column = pa.Table.from_batches(batches).column(0).combine_chunks()
    order = pc.sort_indices(column)
    order = order.slice(0, len(column) - column.null_count)  # null comes last
    yield pa.RecordBatch.from_arrays([column.take(order), order.cast(pa.int64())], [KEY, ROW])


@dataclass(frozen=True, slots=True)
class Sorted:
    """Sorted keys, and the place of each key before sorting."""

    keys: pa.Array
    places: pa.Array

    @staticmethod
    def of(keys: pa.Array) -> Sorted:
        places = pc.sort_indices(keys)
        return Sorted(keys.take(places), places.cast(pa.int32()))

    def between(self, ends: pa.Array) -> Sorted:
        """The keys from the first of two values up to and including the second."""
        first = pc.search_sorted(self.keys, ends[0], side="left").as_py()
        end = pc.search_sorted(self.keys, ends[1], side="right").as_py()
        return Sorted(self.keys.slice(first, end - first), self.places.slice(first, end - first))


def search(wanted: Sorted, found: pa.RecordBatch) -> tuple[pa.Array, pa.Array]:
    """The rows of ``found`` that have one of the wanted keys, and the place of that wanted key."""
    column = found.column(KEY)
    if not len(column):
        return pa.array([], pa.int64()), pa.array([], pa.int32())
    wanted = wanted.between(column.take(pa.array([0, len(column) - 1])))
    first = pc.search_sorted(column, wanted.keys, side="left").cast(pa.int64())  # in range: none exceeds all
    has = pc.equal(column.take(first), wanted.keys)
    keys, places, first = wanted.keys.filter(has), wanted.places.filter(has), first.filter(has)
    end = pc.search_sorted(column, keys, side="right").cast(pa.int64())
    counts = pc.subtract(end, first)
    if pc.sum(counts).as_py() != len(counts):
        firsts, ends, numbers = first.to_pylist(), end.to_pylist(), places.to_pylist()
        first = pa.array(chain.from_iterable(map(range, firsts, ends)), pa.int64())
        places = pa.array(
            [place for place, count in zip(numbers, counts.to_pylist(), strict=True) for _ in range(count)], pa.int32()
        )
    return found.column(ROW).take(first), places


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows of a file. For each row: the number of its key, and its order value if order values were read."""

    rows: pa.Array
    keys: pa.Array
    orders: pa.Array

    def within(self, start: int, end: int) -> Matches:
        """The matches from row ``start`` up to row ``end``, numbered from ``start``. Rows must be in ascending
        order.
        """
        first, last = (bisect_left(self.rows, row, key=lambda each: each.as_py()) for row in (start, end))
        rows, keys, orders = (each.slice(first, last - first) for each in (self.rows, self.keys, self.orders))
        return Matches(pc.subtract(rows, start), keys, orders)

    def living(self, dead: BitMap64) -> Matches:
        """The matches without the rows in ``dead``."""
        if not dead:
            return self
        mask = pa.array([row not in dead for row in self.rows.to_pylist()], pa.bool_())
        orders = self.orders.filter(mask) if len(self.orders) else self.orders  # none were read
        return Matches(self.rows.filter(mask), self.keys.filter(mask), orders)


NO_MATCHES = Matches(pa.array([], pa.int64()), pa.array([], pa.int32()), pa.nulls(0))


def different(keys: Sequence[pa.Array]) -> int:
    """How many different keys the arrays have together."""
    return len(pa.chunked_array(keys, pa.int32()).unique())


class ChangedKeys:
    """Different keys, numbered from 0. Each has the number of the commit's last step that changes it. Null is a
    value.
    """

    def __init__(self, columns: Sequence[Column], steps: Sequence[Iterable[pa.RecordBatch]]) -> None:
        """``steps``: the rows of each step; their first columns are ``columns``."""
        self._names = [str(column.field_id) for column in columns]
        batches = [(number, rows) for number, rows_of in enumerate(steps) for rows in rows_of]
        parts = ([rows.column(place) for _, rows in batches] for place in range(len(columns)))
        every = [_joined(part, column.arrow) for part, column in zip(parts, columns, strict=True)]
        is_last = are_last(numbered(every))
        self.columns: list[pa.Array] = [column.filter(is_last) for column in every]
        steps_of = _joined([repeated(number, rows.num_rows) for number, rows in batches], pa.int32())
        self.last_steps: pa.Array = steps_of.filter(is_last)
        self._numbers: pa.Array | None = None
        self._counts = [0] * len(steps)
        for number, rows in batches:
            self._counts[number] += rows.num_rows

    @property
    def changes(self) -> Sequence[Matches] | None:
        """For each step its rows, all of which have one of the keys; None if they have to be looked for, because a key
        has several rows.
        """
        if sum(self._counts) > len(self):
            return None
        ends = [0, *accumulate(self._counts)]
        every = pa.arange(0, ends[-1])
        keys = every.cast(pa.int32())
        return [
            Matches(every.slice(0, end - start), keys.slice(start, end - start), pa.nulls(0))
            for start, end in pairwise(ends)
        ]

    def part(self, numbers: pa.Array) -> ChangedKeys:
        """The keys with these numbers. They keep their numbers."""
        subset = copy.copy(self)
        subset.columns = [column.take(numbers) for column in self.columns]
        subset._numbers = numbers
        for name in ("rows", "_sorted", "_values", "_numbered"):
            subset.__dict__.pop(name, None)
        return subset

    def __len__(self) -> int:
        return len(self.columns[0])

    @cached_property
    def rows(self) -> pa.RecordBatch:
        """One row for each key."""
        return pa.RecordBatch.from_arrays(self.columns, self._names)

    def found_in(self, batches: Iterable[pa.RecordBatch]) -> Matches:
        """The rows of a file that have one of the keys.

        The batches hold the key columns of all rows of the file, and maybe the order column.
        """
        rows, keys, orders = [], [], []
        start = 0
        for some in self._at_once(batches):
            places, numbers = self._one(some) if len(self._names) == 1 else self._several(some)
            if len(places):
                rows.append(pc.add(places.cast(pa.int64()), start))
                keys.append(numbers)
                orders += [_whole(column.take(places)) for column in some.columns[len(self._names) :]]
            start += some.num_rows
        kind = orders[0].type if orders else pa.null()
        return Matches(_joined(rows, pa.int64()), self._numbered_here(_joined(keys, pa.int32())), _joined(orders, kind))

    def _at_once(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Tables with about ``TOGETHER`` times as many rows as there are keys, because each search hashes all keys."""
        some: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            some.append(batch)
            count += batch.num_rows
            if count >= TOGETHER * len(self):
                yield pa.Table.from_batches(some)
                some, count = [], 0
        if some:
            yield pa.Table.from_batches(some)

    def found_in_each(self, files: Iterable[Iterable[pa.RecordBatch]]) -> list[Matches]:
        """Like ``found_in``, for several files at once. Files are searched together, so that the keys are hashed less
        often.
        """
        ends = [0]

        def rows() -> Iterator[pa.RecordBatch]:
            count = 0
            for batches in files:
                for batch in batches:
                    count += batch.num_rows
                    yield batch
                ends.append(count)

        all_matches = self.found_in(rows())
        return [all_matches.within(start, end) for start, end in pairwise(ends)]

    def searched(self, found: pa.RecordBatch) -> Matches:
        """Like ``found_in``, for a file's sorted keys of one column, without an order column."""
        rows, keys = search(self._sorted, found)
        return Matches(rows, self._numbered_here(keys), pa.nulls(len(rows)))

    def _numbered_here(self, keys: pa.Array) -> pa.Array:
        return keys if self._numbers is None else self._numbers.take(keys)

    def _one(self, some: pa.Table) -> tuple[pa.Array, pa.Array]:
        numbers = _whole(pc.index_in(some.column(0), value_set=self.columns[0]))
        places = pc.indices_nonzero(pc.is_valid(numbers))
        return places, numbers.take(places)

    def _several(self, some: pa.Table) -> tuple[pa.Array, pa.Array]:
        """The rows that have one of the keys, and the numbers of these keys. A mask for each column first leaves few
        rows, which are then compared as a whole.
        """
        mask: Any = None
        for column, values in zip(some.columns, self._values, strict=False):  # an order column may follow
            is_known = pc.is_in(column, value_set=values)
            mask = is_known if mask is None else pc.and_(mask, is_known)
        places = pc.indices_nonzero(mask)
        if not len(places):
            return places, pa.array([], pa.int32())
        left = self._by_value(some.take(places).columns).append_column(_PLACE, places)
        both = left.join(self._numbered, self._names, join_type="inner", use_threads=False).sort_by(_PLACE)
        return _whole(both[_PLACE]), _whole(both[_KEY])

    @cached_property
    def _sorted(self) -> Sorted:
        return Sorted.of(self.columns[0])

    @cached_property
    def _values(self) -> list[pa.Array]:
        return [column.unique() for column in self.columns]

    @cached_property
    def _numbered(self) -> pa.Table:
        numbers = pa.array(range(len(self)), pa.int32())
        return self._by_value(self.columns).append_column(_KEY, numbers)

    def _by_value(self, columns: Sequence[_Column]) -> pa.Table:
        """The rows, with a number in place of each value, because a join does not match null with null."""
        indices = (pc.index_in(column, value_set=known) for column, known in zip(columns, self._values, strict=False))
        return pa.Table.from_arrays(list(indices), self._names)


def repeated(value: int, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), count)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else _joined(array.chunks, array.type)


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if not parts:
        return pa.array([], kind)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def in_steps(keys: ChangedKeys, reading: ColumnReader, steps: Sequence[Sequence[File]]) -> Sequence[Matches]:
    """For each step the rows that have one of the keys. ``steps``: the files of which the keys are all keys."""
    if keys.changes is not None:
        return keys.changes
    return keys.found_in_each(reading.all_of(files) for files in steps)


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Some of the keys, and the files from which they were read. These files may have other keys, too."""

    keys: ChangedKeys
    files: tuple[File, ...]


def parts(
    reading: ColumnReader, ids: int, steps: Sequence[Sequence[File]], at_once: int | None = KEYS_AT_ONCE
) -> Iterator[KeyPart]:
    """The keys in the files of each step, in the order of the steps, about ``at_once`` at a time; fewer large ones.
    With None all are in one part.

    ``ids``: how many of the columns identify a row. A key that several steps change may be in several parts.
    """
    columns = reading.columns[:ids]
    held: list[list[pa.RecordBatch]] = [[] for _ in steps]
    files: dict[File, None] = {}
    count = size = 0
    for step, files_of_step in enumerate(steps):
        for file in files_of_step:
            for batch in reading.batches(*file):
                held[step].append(batch)
                files[file] = None
                count += batch.num_rows
                size += batch.nbytes
                if at_once is not None and (count >= at_once or size >= _BYTES_AT_ONCE):
                    yield KeyPart(ChangedKeys(columns, held), tuple(files))
                    held, files, count, size = [[] for _ in steps], {}, 0, 0
    if count:
        yield KeyPart(ChangedKeys(columns, held), tuple(files))
