"""One block from bytes to rows: decode, transform, route, cast, write.

Every record of a block has exactly one outcome: written, filtered by a named cause, or bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from calving.casting.evolution import SchemaChanges
from calving.model.dead_letters import LEFT_OUT, Stage
from calving.model.tables import KeyFields
from calving.records.arrays import Indices, compose, numbers, without
from calving.records.contents import SHAPES
from calving.records.fields import Projection
from calving.records.values import Records, Values, texts
from calving.source.reading import Block
from calving.tasks.cast import Caster, CastRows
from calving.tasks.decode import Decoders, Projections
from calving.tasks.route import HeldOffsets, Router
from calving.tasks.row_keys import any_by_key, as_objects, by_key_fields, is_by_key
from calving.tasks.selection import Accounts, Routed, Selection, Tables, Timings
from calving.tasks.source_tables import SourceTables
from calving.tasks.spec import TaskSpec
from calving.tasks.transform import Columns, Transforms, chain_of, incomplete, origins, values_of
from calving.tasks.write import Trial, Writers
from calving.transforms.interface import Column

_INCOMPLETE = (
    f"the dead letter lacks a part of its record, which was too large for the dead-letter topic: its header {LEFT_OUT}"
    " names the record, which has to be sent again by its producer"
)


class Pipeline:
    """The record path of a whole task: decoders learn from block to block, and tables stay open."""

    def __init__(self, spec: TaskSpec, timings: Timings) -> None:
        self._spec, self._timings = spec, timings
        self.changes = SchemaChanges(fold=spec.path.evolution.case_insensitive)
        """The schema changes that records have requested."""
        self.writers = Writers(spec)
        self.held = HeldOffsets(spec.tables)
        self.cast = Caster(spec, self.held, timings)
        self._router = Router(spec.path.routing, spec.path.tolerance.table)
        self._field = spec.path.routing.field
        self._sources = SourceTables(spec, self._router, self.cast)
        transforms = chain_of(spec)
        self._decoders = Decoders(spec, timings)
        self._projections = Projections(spec, transforms)
        decimals, replayed = self._projections.decimals, spec.path.tolerance.replayed
        self._wants_headers = "headers" in transforms.needs
        self._wants_keys = any_by_key(spec)
        wanted: frozenset[Column] = transforms.needs | frozenset(["key"] if self._wants_keys else [])
        columns = Columns(self._decoders, wanted, transforms.null_types, decimals=decimals, replayed=replayed)
        self._transforms = Transforms(transforms, columns, timings) if transforms else None

    @property
    def needs_headers(self) -> bool:
        """Whether the headers of records are needed: by a transform, to find schema ids, or to make or to replay dead
        letters.
        """
        tolerance = self._spec.path.tolerance
        return tolerance.to != "error" or tolerance.replayed or self._wants_headers or self._decoders.needs_headers

    def run(self, block: Block, places: Indices | None = None) -> Accounts:
        """Write the records of the block, or only those at these places. The accounts hold every one of these records,
        and the schema changes of all blocks so far.
        """
        return self._run(block, places, Accounts(self.changes), self.writers)

    def trial_run(self, block: Block, places: Indices) -> Accounts:
        """Like ``run``, but rows are written only into memory, to find bad records, and no schema change is requested:
        these records request it when they are written.
        """
        return self._run(block, places, Accounts(self.changes.copy()), Trial(self.writers))

    def rows(self, block: Block, accounts: Accounts) -> Iterator[CastRows]:
        """The rows of the block's records, which are written nowhere. The accounts are as of ``run``."""
        for selected in self._selections(block, range(len(block)), accounts):
            for routed in self._routed(selected):
                yield from self.cast.rows(routed)

    def _run(self, block: Block, places: Indices | None, accounts: Accounts, writers: Writers | Trial) -> Accounts:
        for selected in self._selections(block, range(len(block)) if places is None else places, accounts):
            for routed in self._routed(selected):
                for rows in self.cast.rows(routed):
                    # After a schema change the whole task runs again. So from here on, only look for further changes.
                    if not accounts.changes:
                        self._timings.start("write")
                        writers.write(rows.converted, rows.bad)
        return accounts

    def _selections(self, block: Block, places: Indices, accounts: Accounts) -> Iterator[Selection]:
        """The records by the topic and partition that brought them first."""
        source = block.source
        if not self._spec.path.tolerance.replayed:
            yield Selection(block, source.topic, source.partition, places, accounts)
            return
        wanted = set(places)
        if lacking := [i for i in incomplete(block) if i in wanted]:
            accounts.reject(lacking, Stage.VALUE_CONVERTER, "IncompleteError", _INCOMPLETE)
            wanted.difference_update(lacking)
        for topic, partition, places in origins(block):
            yield Selection(block, topic, partition, [i for i in places if i in wanted], accounts)

    def _routed(self, selected: Selection) -> Iterator[Routed]:
        """The decoded and transformed values of the records, by their tables."""
        present, tombstones = _without_tombstones(selected)
        if self._transforms is not None:
            nulls = [Values(pa.nulls(len(tombstones)), False, tombstones)] if tombstones else []
            for values in chain(nulls, self._decoders.values(present, "", self._projections.whole)):
                for transformed, records in self._transforms.records(selected, values):
                    yield from self._route_records(transformed, records)
            return
        if tombstones:
            yield from self._tombstones(selected.at(tombstones))
        if self._field is None:
            yield from self._decode_for(present, self._router.by_topic(selected.topic))
        else:
            yield from self._decode_by_field(present)

    def _decode_by_field(self, selected: Selection) -> Iterator[Routed]:
        """Decode and route records that a field routes. If all tables have a common projection, one decoding is enough.
        Otherwise the route field is decoded first, and then the values of each table.
        """
        together = self._projections.together
        projection = together or Projection(route=self._field, presence=self._projections.whole.presence)
        for values in self._decoders.values(selected, "route", projection):
            values = _without_nulls(values, selected.accounts)
            is_whole = isinstance(values.data, list) or not self._decoders.projects(selected.topic, "route")
            for tables, rows in self._by_field(values):
                if is_whole or (together is not None and self._projections.alternatives.issuperset(tables)):
                    yield from self._send(selected, tables, values.choose(rows))
                else:
                    yield from self._decode_for(selected.at(compose(values.index, rows)), tables)

    def _decode_for(self, selected: Selection, tables: Tables) -> Iterator[Routed]:
        """Decode records that all go to these tables. The decoder may decode only the columns of these tables."""
        if not tables:
            self._router.unrouted(selected.topic, selected.places, selected.accounts)
            return
        for values in self._decoders.values(selected, ",".join(tables), self._projections.of(tables)):
            present, nulls = _apart(values)
            if nulls:
                yield from self._tombstones(selected.at(nulls))
            yield from self._named(selected, tables, present)

    def _tombstones(self, selected: Selection) -> Iterator[Routed]:
        """Tombstones as deletes of the rows of their keys, for tables that take them so. The others are filtered."""
        accounts = selected.accounts
        tables = self._deleting_tables(selected)
        if not tables:
            accounts.filtered["tombstone"] += len(selected.places)
            return
        keys = selected.block.keys.take(selected.places)
        reason = "a record with neither a value nor a key identifies no row"
        accounts.reject(compose(selected.places, keys.nulls), Stage.CONVERSION, "UnfitError", reason)
        keyed = selected.at(compose(selected.places, without(len(keys), {*keys.nulls})))
        for values in self._decoders.keys_of(keyed):
            named = as_objects(values, [self._spec.tables[table] for table in tables])
            yield from self._named(keyed, tables, named)

    def _deleting_tables(self, selected: Selection) -> Tables:
        """The tables in which tombstones of this topic delete the rows of their keys."""
        known = self._spec.tables
        tables = () if self._field is not None else self._router.by_topic(selected.topic)
        if self._router.mistake(tables) is not None:  # no such table can be looked for
            return ()
        self.cast.creation.look_for(selected.accounts, tables)
        changed = [(table, known[table].mutations) for table in tables if table in known]
        return tuple(
            table for table, mutations in changed if mutations is not None and mutations.tombstones == "delete"
        )

    def _route_records(self, selected: Selection, records: Records) -> Iterator[Routed]:
        if records.content in SHAPES:
            self._sources.follow(records, selected.accounts)
            return
        if not self._wants_keys:
            yield from self._route_alike(selected, records, ())
            return
        for fields, rows in by_key_fields(records.key):
            part = records if len(rows) == len(records) else records.take(numbers(rows))
            yield from self._route_alike(selected, part, fields)

    def _route_alike(self, selected: Selection, records: Records, fields: KeyFields) -> Iterator[Routed]:
        """Records whose keys have these fields, if they were looked for."""
        if self._field is not None:
            values = _without_nulls(values_of(records, fields), selected.accounts)
            for tables, rows in self._by_field(values):
                yield from self._send(selected, tables, values.choose(rows))
            return
        topics = records.topic.unique().to_pylist()
        for topic in topics:
            part = (
                records if len(topics) == 1 else records.take(pc.is_in(records.topic, pa.array([topic], pa.string())))
            )
            if part.value.null_count:
                gone = part.value.is_null()
                yield from self._tombstones(selected.at(part.index.filter(gone).to_pylist()))
                part = part.take(pc.invert(gone))
            yield from self._send(selected, self._router.by_topic(topic), values_of(part, fields), topic)

    def _by_field(self, values: Values) -> Sequence[tuple[Tables, Indices]]:
        """Rows of values by the tables that their route field names."""
        return [*self._router.by_field(texts(values.data, self._field or "")).items()]

    def _send(self, selected: Selection, tables: Tables, values: Values, topic: str = "") -> Iterator[Routed]:
        """Decoded values for these tables. Without a table, the values are unrouted."""
        if not tables:
            self._router.unrouted(topic, values.index, selected.accounts)
        else:
            yield from self._named(selected, tables, values)

    def _named(self, selected: Selection, tables: Tables, values: Values) -> Iterator[Routed]:
        """The values for these tables, if these are names of tables. Otherwise the values are bad."""
        if len(values.data) and self._router.are_named(tables, values.index, selected.accounts):
            for part in self._with_keys(selected, tables, values):
                yield Routed(selected, tables, part)

    def _with_keys(self, selected: Selection, tables: Tables, values: Values) -> Iterator[Values]:
        """The values by the fields of their records' keys, if these name the id columns of one of the tables. Without
        a transform, the keys were not decoded yet.
        """
        if self._transforms is not None or values.content == "deleted key" or not is_by_key(self._spec, tables):
            yield values
            return
        keys = selected.block.keys.take(values.index)
        if keys.nulls:
            yield values.choose(keys.nulls)
        row_of = {place: row for row, place in enumerate(values.index)}
        keyed = selected.at(compose(values.index, without(len(keys), {*keys.nulls})))
        for decoded in self._decoders.keys_of(keyed):
            for fields, rows in by_key_fields(decoded.data):
                places = compose(decoded.index, rows)
                yield values.choose([row_of[place] for place in places]).with_key_fields(fields)


def _without_tombstones(selected: Selection) -> tuple[Selection, Indices]:
    """The records with a value, and the places of the others in the block."""
    if not selected.block.values.column.null_count:
        return selected, ()
    payloads = selected.block.values.take(selected.places)
    nulls = payloads.nulls
    return selected.at(compose(selected.places, without(len(payloads), {*nulls}))), compose(selected.places, nulls)


def _apart(values: Values) -> tuple[Values, Indices]:
    """The values that are not null, and the places of the others in the block. A value that is null after decoding or
    transforming is a tombstone.
    """
    if isinstance(values.data, list):
        if None not in values.data:
            return values, ()
        kept = [i for i, value in enumerate(values.data) if value is not None]
    elif values.data.null_count:
        kept = pc.indices_nonzero(values.data.is_valid()).to_pylist()
    else:
        return values, ()
    return values.choose(kept), compose(values.index, without(len(values), dict.fromkeys(kept)))


def _without_nulls(values: Values, accounts: Accounts) -> Values:
    """The values that are not null. The others are filtered: a route field sends a tombstone to no table."""
    present, nulls = _apart(values)
    if nulls:
        accounts.filtered["tombstone"] += len(nulls)
    return present
