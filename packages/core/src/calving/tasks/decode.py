"""Decodes bytes into values: the converters of one task, and the parts of the values that each table needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from calving.converters.interface import (
    SCHEMA_ID_HEADERS,
    Converter,
    Decoded,
    converter,
    reads_schema_ids,
    stage,
)
from calving.model.dead_letters import Stage
from calving.model.record_path import ConverterSpec, TopicConverters
from calving.model.tables import TableSpec
from calving.records.arrays import Indices, holds, is_flat
from calving.records.cells import FullBlockError
from calving.records.fields import Projection, Target, name_mapping, table_schema
from calving.records.values import Payloads, RecordError, Values
from calving.tasks.selection import Selection, Tables, Timings
from calving.tasks.spec import TaskSpec
from calving.transforms.chain import Chain
from calving.writing.changes import identity_of, row_schema

_KEY = "key of a record"
_TOGETHER = 16
"""If a route field chooses from at most this many tables, the columns of all of them are decoded at once."""


class Decoders:
    """One converter for each topic and use. A converter learns from the values that it has decoded."""

    def __init__(self, spec: TaskSpec, timings: Timings | None = None) -> None:
        self._spec, self._timings = spec, timings or Timings()
        self._converters: dict[tuple[str, str], Converter] = {}

    def values(self, selected: Selection, use: str, projection: Projection | None) -> Iterator[Values]:
        """The values of these records, none of which is null, as ``decode``, with their places in the block. Bad ones
        go to the accounts.
        """
        selected = self.with_ids(selected, is_key=False)
        payloads = selected.block.values.take(selected.places)
        yield from self._placed(selected, self.decode(selected.topic, use, payloads, projection))

    def keys_of(self, selected: Selection) -> Iterator[Values]:
        """The keys of these records, none of which is null, with their places in the block. Bad ones go to the
        accounts.
        """
        selected = self.with_ids(selected, is_key=True)
        return self._placed(selected, self.keys(selected.topic, selected.block.keys.take(selected.places)))

    @property
    def needs_headers(self) -> bool:
        """Whether the headers of records are needed, to know where the ids of their schemas are."""
        converters = self._spec.path.converters.values()
        return any(reads_schema_ids(spec) for both in converters for spec in (both.key, both.value))

    def with_ids(self, selected: Selection, *, is_key: bool) -> Selection:
        """The records whose payloads have the ids of their schemas, if the converter reads such ids. The others are
        bad: their payloads would be decoded with another schema. No payload is null.
        """
        if not reads_schema_ids(self._converter_of(selected.topic, is_key)):
            return selected
        header, what = SCHEMA_ID_HEADERS[is_key], "key" if is_key else "value"
        elsewhere = selected.block.with_header(header, selected.places)
        if not elsewhere:
            return selected
        reason = (
            f"the id of its schema is in the header {header}, and calving reads it from the {what}: let the producer"
            f" write it there ({what}.schema.id.serializer = PrefixSchemaIdSerializer)"
        )
        lacking = [place for place in selected.places if place in elsewhere]
        selected.accounts.reject(lacking, stage(is_key), "SchemaIdError", reason)
        return selected.at([place for place in selected.places if place not in elsewhere])

    def _placed(self, selected: Selection, parts: Iterator[Decoded]) -> Iterator[Values]:
        is_first = selected.places == range(len(selected.places))
        while True:
            self._timings.start("decode")
            decoded = next(parts, None)
            if decoded is None:
                return
            selected.accounts.bad += [error.within(selected.places) for error in decoded.bad]
            for values in decoded.values:
                yield values if is_first else values.within(selected.places)

    def projects(self, topic: str, use: str) -> bool:
        """Whether values of this topic are decoded only as far as a projection needs."""
        return self._converter(topic, use).projects

    def keys(self, topic: str, keys: Payloads) -> Iterator[Decoded]:
        """The decoded keys, without a projection: all together or divided, as values."""
        return self.decode(topic, _KEY, keys, None)

    def decode(self, topic: str, use: str, values: Payloads, projection: Projection | None) -> Iterator[Decoded]:
        """The decoded values, as far as ``projection`` needs: all together, or divided, if they take too many cells
        together. Each ``use`` has its own converter, because converters learn different things for different
        projections.
        """
        most = self._spec.path.limits.record_bytes
        if values.size <= most or values.longest <= most:
            yield from self._divided(topic, use, values, projection)
            return
        sizes = [len(value) for value in values]
        kept = [i for i, size in enumerate(sizes) if size <= most]
        reason = "{} bytes are more than iceberg.limits.record-bytes = {}"
        wrong = [
            RecordError(i, stage(is_key=use == _KEY), "RecordTooLargeError", reason.format(size, most))
            for i, size in enumerate(sizes)
            if size > most
        ]
        yield Decoded(bad=wrong)
        for part in self._divided(topic, use, values.take(kept), projection):
            yield part.within(kept)

    def _divided(self, topic: str, use: str, values: Payloads, projection: Projection | None) -> Iterator[Decoded]:
        count = len(values.column)
        pending: list[Indices] = [range(count)] if count else []
        while pending:
            places = pending.pop()
            part = values if len(places) == count else values.take(places)
            try:
                decoded = self._decoded(topic, use, part, projection)
            except FullBlockError:
                if len(places) == 1:
                    raise
                half = len(places) // 2
                pending += [places[half:], places[:half]]
                continue
            yield decoded if len(places) == count else decoded.within(places)

    def _decoded(self, topic: str, use: str, values: Payloads, projection: Projection | None) -> Decoded:
        used = self._converter(topic, use)
        decoded = used.decode(values, projection)
        is_own = type(used).__module__.startswith("calving.")
        return decoded if is_own else _once(decoded, len(values), stage(is_key=use == _KEY))

    def _converter(self, topic: str, use: str) -> Converter:
        known = self._converters.get((topic, use))
        if known is None:
            is_key = use == _KEY
            spec = self._converter_of(topic, is_key)
            known = converter(spec.name, spec.options, is_key=is_key, limits=self._spec.path.limits)
            self._converters[topic, use] = known
        return known

    def _converter_of(self, topic: str, is_key: bool) -> ConverterSpec:
        specs = self._spec.path.converters
        both = specs.get(topic) or specs.get("") or TopicConverters()
        return both.key if is_key else both.value


def _once(decoded: Decoded, count: int, at: Stage) -> Decoded:
    """Of ``count`` values each once: as a value, or as bad. Those that a converter has returned several times or never
    are bad.
    """
    times = Counter(place for values in decoded.values for place in values.index)
    times.update(bad.index for bad in decoded.bad)
    wrong = {place: times[place] for place in range(count) if times[place] != 1}
    if not wrong and len(times) == count:
        return decoded
    left = frozenset(range(count)).difference(wrong)
    bad = [each for each in decoded.bad if each.index in left]
    for place, is_twice in wrong.items():
        reason = f"its converter has returned {'several results' if is_twice else 'nothing'} for it"
        bad.append(RecordError(place, at, "ConverterError", reason))
    return Decoded([part for values in decoded.values if len(part := _chosen(values, left))], bad)


def _chosen(values: Values, places: Container[int]) -> Values:
    return values.choose([row for row, place in enumerate(values.index) if place in places])


class Projections:
    """The parts of a task's values that are needed, by the tables to which the values go."""

    def __init__(self, spec: TaskSpec, transforms: Chain) -> None:
        self._spec, self._leaves = spec, transforms.leaves
        self._targets: dict[str, Target] = {}
        self._by_tables: dict[Tables, Projection] = {}
        self.decimals = any(
            kind in table.schema_json for table in spec.tables.values() for kind in ('"decimal(', '"variant"')
        )
        """Whether every digit of a fraction counts."""
        presence = frozenset[str]().union(*map(_presence, spec.tables.values()))
        self.whole = Projection(
            decimals=self.decimals, hides_order=self._hides_order, presence=transforms.presence(presence)
        )
        """The projection of values that go to transforms."""

    def of(self, tables: Tables) -> Projection:
        """The projection to the columns of these tables. While one of them is not loaded, all of a value is needed."""
        projection = self._by_tables.get(tables)
        if projection is None and not all(table in self._spec.tables for table in tables):
            projection = self._by_tables[tables] = replace(self.whole, decimals=True)
        if projection is None:
            evolution = self._spec.path.evolution
            folds = evolution.case_insensitive or any(self._target(table).maps_names for table in tables)
            targets = tuple(self._target(table) for table in tables)
            projection = Projection(targets, "add" if evolution.evolve else "look" if folds else "ignore")
            projection = replace(projection, presence=self.whole.presence)
            if operations := self._operations(tables):
                # The field with a record's operation may be no column of the table.
                plain = projection.unknown == "ignore" and len(operations) == 1
                projection = replace(projection, route=operations.pop()) if plain else self.whole
            self._by_tables[tables] = projection
        return projection

    def _operations(self, tables: Tables) -> set[str]:
        """The fields that name a record's operation for these tables."""
        known = [self._spec.tables[table].mutations for table in tables]
        return {mutations.cdc_field for mutations in known if mutations is not None and mutations.cdc_field is not None}

    @cached_property
    def alternatives(self) -> frozenset[str]:
        """The tables from which the route field chooses, as far as they are known."""
        path = self._spec.path
        if path.routing.dynamic:
            return frozenset(self._spec.tables.keys() - {path.tolerance.table})
        return frozenset(rule.table for rule in path.routing.rules)

    @cached_property
    def together(self) -> Projection | None:
        """One projection for the route field and all tables from which it chooses; None if they have no common
        projection.
        """
        if len(self.alternatives) > _TOGETHER:
            return None
        shared = self.of(tuple(sorted(self.alternatives)))
        if shared.unknown != "ignore" or not shared.targets or shared.route is not None:
            return None
        return replace(shared, route=self._spec.path.routing.field)

    def _hides_order(self, kind: pa.DataType) -> bool:
        """Whether no table keeps the order of fields within values of this type."""
        left = self._leaves(kind)
        if left is None or self._joins_fields(left):
            return False
        if is_flat(left):
            return True
        evolution = self._spec.path.evolution
        is_final = not (evolution.evolve or evolution.create)  # otherwise an unknown column may come
        return is_final and all(self._target(table).hides_order(left) for table in self._spec.tables)

    def _joins_fields(self, kind: pa.DataType) -> bool:
        """Whether several fields of an object may go to one column, which then takes the last of them."""
        if any(self._target(table).joins_names for table in self._spec.tables):
            return True
        return self._spec.path.evolution.case_insensitive and holds(kind, _has_same_but_for_case)

    def _target(self, table: str) -> Target:
        known = self._targets.get(table)
        if known is None:
            spec, evolution = self._spec.tables[table], self._spec.path.evolution
            columns = row_schema(spec).as_struct()
            names = name_mapping(spec.properties)
            needed = identity_of(spec).needed if spec.mutations is not None else frozenset()
            known = Target(
                columns,
                names,
                case_insensitive=evolution.case_insensitive,
                moments=spec.moments,
                compared=needed,
                keeps=spec.mutations is not None and spec.mutations.keeps_unset,
                promotes=evolution.evolve,
            )
            self._targets[table] = known
        return known


def _presence(table: TableSpec) -> frozenset[str]:
    """The names in lower case that lead to columns for which no field is not the same as null."""
    keeps = table.mutations is not None and table.mutations.keeps_unset
    if not keeps and '"write-default"' not in table.schema_json:
        return frozenset()
    schema, names = table_schema(table.schema_json), name_mapping(table.properties)
    return Target(schema.as_struct(), names, case_insensitive=False, keeps=keeps).presence


def _has_same_but_for_case(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and len({field.name.lower() for field in kind}) < kind.num_fields
