"""One block from bytes to deliveries: decode, transform, route.

Every record of a block has exactly one outcome: written, filtered by a named cause, or bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from calving.model.dead_letters import Stage
from calving.model.tables import is_table_name, is_table_name_of_record
from calving.records.arrays import Indices, compose, without
from calving.records.fields import Projection
from calving.records.payloads import Payloads
from calving.records.values import Decoded, RecordError, Records, Values, texts
from calving.source.reading import Block
from calving.tasks.columns import Columns, origins
from calving.tasks.decoding import Decoders, Projections, Tables
from calving.tasks.delivery import Delivery
from calving.tasks.mutations import as_objects
from calving.tasks.outcome import BlockRun, Outcome
from calving.tasks.routing import Router
from calving.tasks.spec import TaskSpec
from calving.tasks.timings import Timings
from calving.transforms.chain import Chain

_SHOWN = 100
"""How much of a wrong name is shown, in characters."""


class Pipeline:
    """The pipeline of a whole task: decoders learn from block to block, and tables stay open."""

    def __init__(self, spec: TaskSpec, delivery: Delivery, timings: Timings) -> None:
        self._spec, self._delivery, self._timings = spec, delivery, timings
        self._router = Router(spec.path.routing)
        changes_rows = any(table.mutations is not None for table in spec.tables.values())
        self._chain = Chain(spec.path.transforms, images=changes_rows, limits=spec.path.limits)
        self._decoders = Decoders(spec)
        self._projections = Projections(spec, self._chain.leaves)
        decimals, replayed = self._projections.decimals, spec.path.tolerance.replayed
        self._columns = Columns(
            self._decoders, self._chain.needs, self._chain.null_types, decimals=decimals, replayed=replayed
        )

    @property
    def needs_headers(self) -> bool:
        """Whether the headers of records are needed: by a transform, or to make or to replay dead letters."""
        tolerance = self._spec.path.tolerance
        return tolerance.to != "error" or tolerance.replayed or "headers" in self._chain.needs

    def run(self, block: Block, index: Indices | None = None, *, trial: bool = False) -> Outcome:
        """Deliver the records of the block, or only those at ``index``. The outcome accounts for every one of these
        records. ``trial``: rows are written only in memory, to find bad ones.
        """
        run = self._delivery.start(block, trial=trial)
        index = range(len(block)) if index is None else index
        if not self._spec.path.tolerance.replayed:
            self._run(run, block.source.topic, block.source.partition, index)
            return run.outcome
        wanted = set(index)
        for topic, partition, places in origins(block):
            self._run(run, topic, partition, [i for i in places if i in wanted])
        return run.outcome

    def _run(self, run: BlockRun, topic: str, partition: int, index: Indices) -> None:
        present = run.block.values.take(index)
        nulls: Indices = ()
        if present.nulls:
            kept = without(len(present), {*present.nulls})
            nulls, index, present = compose(index, present.nulls), compose(index, kept), present.take(kept)
        if self._chain:
            tombstones = [Values(pa.nulls(len(nulls)), False, nulls)] if nulls else []
            for part in chain(tombstones, self._decode(run, topic, "", present, self._projections.whole, index)):
                self._transform(run, topic, partition, part)
            return
        if nulls:
            self._deliver_tombstones(run, topic, self._deleting_tables(run, topic), nulls)
        if present and self._router.field is None:
            self._decode_for(run, self._router.by_topic(topic), topic, present, index)
        elif present:
            self._decode_by_field(run, topic, present, index)

    def _decode_by_field(self, run: BlockRun, topic: str, present: Payloads, index: Indices) -> None:
        """Decode records that a field routes, and deliver them. If all tables have a common projection, one decoding is
        enough. Otherwise the route field is decoded first, and then the values of each table.
        """
        together = self._projections.together
        projection = together or Projection(route=self._router.field)
        parts = self._decode(run, topic, "route", present, projection, index)
        for part in (_without_nulls(part, run.outcome) for part in parts):
            is_whole = isinstance(part.data, list) or not self._decoders.projects(topic, "route")
            row_of = None if len(part) == len(present) else {place: row for row, place in enumerate(index)}
            for tables, here in self._groups(part).items():
                if is_whole or (together is not None and self._projections.alternatives.issuperset(tables)):
                    self._send(run, tables, part.choose(here))
                    continue
                rows = here if row_of is None else [row_of[place] for place in compose(part.index, here)]
                self._decode_for(run, tables, topic, present.take(rows), compose(index, rows))

    def _decode_for(self, run: BlockRun, tables: Tables, topic: str, present: Payloads, index: Indices) -> None:
        """Decode values that all go to these tables, and deliver them. The decoder may decode only the columns of these
        tables.
        """
        if not tables:
            self._unrouted(run, topic, index)
            return
        for part in self._decode(run, topic, ",".join(tables), present, self._projections.of(tables), index):
            values, nulls = _apart(part)
            if nulls:
                self._deliver_tombstones(run, topic, self._deleting_tables(run, topic), nulls)
            self._deliver(run, tables, values)

    def _deleting_tables(self, run: BlockRun, topic: str) -> list[str]:
        """The tables in which tombstones of this topic delete the rows of their keys."""
        known = self._spec.tables
        tables = () if self._router.field is not None else self._router.by_topic(topic)
        self._delivery.creation.look_for(run, tables)
        changed = [(table, known[table].mutations) for table in tables if table in known]
        return [table for table, mutations in changed if mutations is not None and mutations.tombstones == "delete"]

    def _deliver_tombstones(self, run: BlockRun, topic: str, tables: Sequence[str], places: Indices) -> None:
        """Deliver tombstones that were read from ``topic`` as deletes to the tables."""
        if not tables:
            run.outcome.filtered["tombstone"] += len(places)
            return
        keys = run.block.keys.take(places)
        reason = "a record with neither a value nor a key identifies no row"
        run.outcome.bad += [RecordError(places[i], Stage.CONVERSION, "UnfitError", reason) for i in keys.nulls]
        present = without(len(keys), {*keys.nulls})
        for part in self._placed(run, self._decoders.keys(topic, keys.take(present)), compose(places, present)):
            named = as_objects(part, [self._spec.tables[table] for table in tables])
            self._delivery.deliver(run.of_deletes(), tables, named)

    def _transform(self, run: BlockRun, topic: str, partition: int, values: Values) -> None:
        parts = self._columns.records(run.block, topic, partition, values, run.outcome.bad)
        while True:
            with self._timings("transform"):
                part = next(parts, None)
                transformed = None if part is None else self._chain.apply(part)
            if transformed is None:
                return
            run.outcome.filtered.update(transformed.dropped)
            run.outcome.bad += transformed.bad
            beside = run.beside([*map(_values_of, transformed.before)])
            for records in transformed.records:
                self._route_records(beside, topic, records)

    def _route_records(self, run: BlockRun, source: str, records: Records) -> None:
        if self._router.field is not None:
            self._route(run, _values_of(records))
            return
        topics = records.topic.unique().to_pylist()
        for topic in topics:
            part = (
                records if len(topics) == 1 else records.take(pc.is_in(records.topic, pa.array([topic], pa.string())))
            )
            if part.value.null_count:
                gone = part.value.is_null()
                places = part.index.filter(gone).to_pylist()
                self._deliver_tombstones(run, source, self._deleting_tables(run, topic), places)
                part = part.take(pc.invert(gone))
            values = _values_of(part)
            tables = self._router.by_topic(topic)
            if tables:
                self._deliver(run, tables, values)
            else:
                self._unrouted(run, topic, values.index)

    def _route(self, run: BlockRun, values: Values) -> None:
        """Route decoded values by the route field."""
        values = _without_nulls(values, run.outcome)
        for tables, rows in self._groups(values).items():
            self._send(run, tables, values.choose(rows))

    def _send(self, run: BlockRun, tables: Tables, values: Values) -> None:
        """Deliver values to these tables. Without a table, the values are unrouted."""
        if tables:
            self._deliver(run, tables, values)
        else:
            self._unrouted(run, "", values.index)

    def _groups(self, values: Values) -> dict[Tables, Indices]:
        """Rows of values by the tables that their route field names."""
        with self._timings("decode"):
            return self._router.by_field(texts(values.data, self._router.field or ""))

    def _deliver(self, run: BlockRun, tables: Tables, values: Values) -> None:
        values = _without_nulls(values, run.outcome)
        is_name = is_table_name_of_record if self._spec.path.routing.is_free else is_table_name
        wrong = next((table for table in tables if not is_name(table)), None)
        if wrong is not None:
            by = "route field" if self._router.field is not None else "topic"
            reason = f"its {by} names no table: '{wrong[:_SHOWN]}' is not a name with its namespace, such as db.events"
            run.outcome.bad += [RecordError(i, Stage.ROUTING, "TableNameError", reason) for i in values.index]
        elif len(values):
            self._delivery.deliver(run, tables, values)

    def _unrouted(self, run: BlockRun, topic: str, index: Indices) -> None:
        if not index:
            return
        routing = self._spec.path.routing
        if routing.unrouted == "skip":
            run.outcome.filtered["unrouted"] += len(index)
            return
        by = f"'{routing.field}'" if routing.field is not None else f"topic '{topic}'"
        fatal = routing.unrouted == "fail"
        advice = "; correct the routes, or set iceberg.tables.on-unrouted = skip or dead-letter" if fatal else ""
        reason = f"no route takes its {by}{advice}"
        run.outcome.bad += [RecordError(i, Stage.ROUTING, "UnroutedError", reason, fatal) for i in index]

    def _decode(
        self,
        run: BlockRun,
        topic: str,
        use: str,
        present: Payloads,
        projection: Projection | None,
        index: Indices,
    ) -> Iterator[Values]:
        """The decoded values, with their places in the block."""
        return self._placed(run, self._decoders.decode(topic, use, present, projection), index)

    def _placed(self, run: BlockRun, parts: Iterator[Decoded], index: Indices) -> Iterator[Values]:
        """The decoded values, with their places in the block; ``index``: the places of what is decoded."""
        while True:
            with self._timings("decode"):
                decoded = next(parts, None)
            if decoded is None:
                return
            decoded = decoded.within(index)
            run.outcome.bad += decoded.bad
            yield from decoded.values


def _values_of(records: Records) -> Values:
    return Values(records.value, records.typed, records.index.to_pylist(), content=records.content)


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


def _without_nulls(values: Values, outcome: Outcome) -> Values:
    """The values that are not null. The others are filtered: a route field sends a tombstone to no table."""
    present, nulls = _apart(values)
    if nulls:
        outcome.filtered["tombstone"] += len(nulls)
    return present
