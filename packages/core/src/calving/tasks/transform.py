"""Transforms records: makes columns of equal length of them, with values of one shape, for the chain of the task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.dead_letters import LEFT_OUT, Stage, origin
from calving.model.record_path import ReadTopics
from calving.model.tables import KeyFields
from calving.records.arrays import Indices, chosen, compose, numbers, without
from calving.records.regex import Regex
from calving.records.shapes import alone, by_shape
from calving.records.values import HEADERS, RecordError, Records, Values
from calving.source.reading import UNREADABLE, Block, headers_of
from calving.tasks.decode import Decoders
from calving.tasks.selection import Selection, Timings
from calving.tasks.spec import TaskSpec
from calving.transforms.chain import Chain
from calving.transforms.interface import Column


class Transforms:
    """The transforms of a task."""

    def __init__(self, chain: Chain, columns: Columns, timings: Timings) -> None:
        self._chain, self._columns, self._timings = chain, columns, timings

    def records(self, selected: Selection, values: Values) -> Iterator[tuple[Selection, Records]]:
        """The transformed records, each part with a selected that has their before images."""
        parts = self._columns.records(selected, values)
        accounts = selected.accounts
        while True:
            self._timings.start("transform")
            part = next(parts, None)
            if part is None:
                return
            transformed = self._chain.apply(part)
            accounts.filtered.update(transformed.dropped)
            accounts.bad += transformed.bad
            accounts.warnings |= {f"a schema change is ignored: {bad.reason}": None for bad in transformed.bad_shapes}
            before = [*map(values_of, transformed.before)]
            for records, images in zip(transformed.records, _beside(transformed.records, before), strict=True):
                yield replace(selected, before=images), records


def chain_of(spec: TaskSpec) -> Chain:
    """The transforms of a task as a chain."""
    changes_rows = any(table.mutations is not None for table in spec.tables.values())
    fold = spec.path.evolution.case_insensitive
    reads = _reads(spec.path.evolution.followed)
    return Chain(spec.path.transforms, images=changes_rows, fold=fold, limits=spec.path.limits, reads_topic=reads)


def _reads(topics: ReadTopics | None) -> Callable[[str], bool]:
    """Whether the schema changes of tables with records in a topic are followed."""
    if topics is None:
        return lambda topic: False
    if topics.regex is None:
        return topics.names.__contains__
    regex = Regex(topics.regex)
    return lambda topic: bool(regex.matching([topic]))


def values_of(records: Records, key_fields: KeyFields = ()) -> Values:
    """The values of these records, whose keys have these fields."""
    index = records.index.to_pylist()
    return Values(records.value, records.typed, index, content=records.content, key_fields=key_fields)


def _beside(parts: Sequence[Records], before: Sequence[Values]) -> Iterator[Sequence[Values]]:
    """For each part, the before images of its records. There may be as many parts as there are ways to lack fields."""
    if len(parts) < 2 or not before:
        yield from repeat(before, len(parts))
        return
    places = {place: (number, row) for number, images in enumerate(before) for row, place in enumerate(images.index)}
    for records in parts:
        rows = defaultdict[int, list[int]](list)
        for place in records.index.to_pylist():
            if place in places:
                number, row = places[place]
                rows[number].append(row)
        yield [before[number].choose(rows[number]) for number in sorted(rows)]


class Columns:
    """Makes the columns that transforms read."""

    def __init__(
        self,
        decoders: Decoders,
        wanted: frozenset[Column],
        null_types: frozenset[str] | None,
        *,
        decimals: bool,
        replayed: bool,
    ) -> None:
        """``wanted``, ``null_types``: ``needs`` and ``null_types`` of the transforms. ``decimals``: whether every digit
        of a fraction counts. ``replayed``: whether the records are dead letters.
        """
        self._decoders, self._wanted, self._null_types = decoders, wanted, null_types
        self._decimals, self._replayed = decimals, replayed

    def records(self, selected: Selection, values: Values) -> Iterator[Records]:
        """The values as records. A record whose key or headers are wanted and cannot be decoded is bad."""
        block, bad = selected.block, selected.accounts.bad
        for rows, data in self._shaped(values.data, values.typed):
            index = compose(values.index, rows)
            records = Records(
                index=numbers(index),
                topic=pa.repeat(pa.scalar(selected.topic, pa.string()), len(index)),
                partition=selected.partition,
                offset=self._picked("offset", lambda: self._offsets(block), index, pa.int64()),
                timestamp=self._picked("timestamp", lambda: block.timestamps_ms, index, pa.timestamp("ms", "UTC")),
                key=pa.nulls(len(index)),
                value=data,
                headers=self._picked("headers", lambda: block.headers, index, HEADERS),
                typed=values.typed,
            )
            records = self._with_headers(records, bad)
            yield from self._with_keys(selected, records) if "key" in self._wanted else [records]

    def _shaped(self, data: pa.Array | list[Any], typed: bool) -> Iterator[tuple[Indices, pa.Array]]:
        """The values as one or several columns, so that no column loses a part of a value, nor shows a transform the
        type that a null has in other values.
        """
        shaped = by_shape(data, decimals=self._decimals) if isinstance(data, list) else [(range(len(data)), data)]
        for rows, column in shaped:
            parts = [(range(len(column)), column)] if typed else alone(column, self._null_types)
            for some, part in parts:
                yield compose(rows, some), part

    def _picked(self, column: Column, read: Callable[[], pa.Array], index: Indices, kind: pa.DataType) -> pa.Array:
        if column not in self._wanted:
            return pa.nulls(len(index), kind)
        return chosen(read(), index).cast(kind)

    def _offsets(self, block: Block) -> pa.Array:
        """The source offsets. A replayed dead letter has the offset of its original record."""
        if not self._replayed:
            return block.offsets
        places = zip(_origins(block), block.offsets.to_pylist(), strict=True)
        return pa.array([offset if place is None else place[2] for place, offset in places], pa.int64())

    def _with_headers(self, records: Records, bad: list[RecordError]) -> Records:
        """The records whose headers can be read, if headers are wanted."""
        if "headers" not in self._wanted or not records.headers.null_count:
            return records
        gone = records.headers.is_null()
        places = records.index.filter(gone).to_pylist()
        bad += [RecordError(i, Stage.HEADER_CONVERTER, UnicodeDecodeError.__name__, UNREADABLE) for i in places]
        return records.take(pc.invert(gone))

    def _with_keys(self, selected: Selection, records: Records) -> Iterator[Records]:
        """The records with decoded keys: one part for each shape of the keys."""
        index: Indices = records.index.to_pylist()
        keys = selected.block.keys.take(index)
        here: Indices = without(len(keys), {*keys.nulls})
        with_ids = self._decoders.with_ids(selected.at(compose(index, here)), is_key=True).places
        if len(with_ids) < len(here):
            kept = {*with_ids}
            here = [row for row in here if index[row] in kept]
        if keys.nulls:
            yield records.take(numbers(keys.nulls))
        for decoded in self._decoders.keys(selected.topic, keys.take(here)):
            selected.accounts.bad += [error.within(here).within(index) for error in decoded.bad]
            for key_values in decoded.values:
                for some, data in self._shaped(key_values.data, key_values.typed):
                    rows = compose(here, compose(key_values.index, some))
                    part = records if len(rows) == len(index) else records.take(numbers(rows))
                    yield replace(part, key=data)


def origins(block: Block) -> list[tuple[str, int, list[int]]]:
    """Indices of replayed dead letters, by the topic and partition of their original records."""
    rows_of: dict[tuple[str, int], list[int]] = {}
    for i, place in enumerate(_origins(block)):
        key = place[:2] if place is not None else (block.source.topic, block.source.partition)
        rows_of.setdefault(key, []).append(i)
    return [(topic, partition, index) for (topic, partition), index in rows_of.items()]


def incomplete(block: Block) -> list[int]:
    """Indices of replayed dead letters that lack a part of their record."""
    return [i for i in range(len(block)) if any(name == LEFT_OUT for name, _ in headers_of(block, i) or ())]


def _origins(block: Block) -> Iterator[tuple[str, int, int] | None]:
    return (origin(headers_of(block, i) or ()) for i in range(len(block)))
