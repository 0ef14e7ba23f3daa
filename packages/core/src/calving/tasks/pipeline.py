"""One block from bytes to deliveries: decode, transform, route.

Every record of a block ends in exactly one place: written, filtered by a named cause, or bad.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from calving.converters.interface import Converter, Decoded, stage
from calving.converters.registry import converter
from calving.model.dead_letters import origin
from calving.model.record_path import TopicConverters
from calving.records.projection import Projection
from calving.records.shapes import by_shape
from calving.records.values import HEADERS, RecordError, Records, Values, texts
from calving.tasks.delivery import Delivery
from calving.tasks.reader import Block
from calving.tasks.routing import Places, Router, is_table_name
from calving.tasks.spec import TaskSpec
from calving.tasks.stages import Stages
from calving.transforms.chain import Chain

_ROUTING = "ROUTING"
Tables = tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """How a block went. ``bad`` indices are places in the block, each at most once."""

    written: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    bad: list[RecordError] = field(default_factory=list)


class Pipeline:
    """Kept for a whole task: decoders learn, tables stay open."""

    def __init__(self, spec: TaskSpec, delivery: Delivery, stages: Stages) -> None:
        self._spec, self._delivery, self._stages = spec, delivery, stages
        self._router = Router(spec.routing)
        self._chain = Chain(spec.transforms)
        self._converters: dict[tuple[str, str], Converter] = {}
        self._projections: dict[Tables, Projection] = {}
        self._route_projection = Projection(route=spec.routing.field)
        self._decimals = any('"decimal(' in table.schema_json for table in spec.tables.values())
        self._whole_projection = Projection(decimals=self._decimals, hides_order=self._hides_order)

    def _hides_order(self, kind: pa.DataType) -> bool:
        left = self._chain.leaves(kind)
        return left is not None and self._delivery.hides_order(left)

    def run(self, block: Block, raw: Sequence[bytes | None], places: Places = None) -> Outcome:
        """Deliver every record of the block, or those at ``places``, or say what became of it."""
        outcome = Outcome()
        if not self._spec.tolerance.replayed:
            self._run(block, raw, block.source.topic, block.source.partition, places, outcome)
            return outcome
        wanted = set(range(len(block)) if places is None else places)
        for topic, partition, found in _origins(block):
            self._run(block, raw, topic, partition, [i for i in found if i in wanted], outcome)
        return outcome

    def _run(
        self,
        block: Block,
        raw: Sequence[bytes | None],
        topic: str,
        partition: int,
        chosen: Places,
        outcome: Outcome,
    ) -> None:
        places: Places = chosen
        values: Sequence[bytes | None] = raw if chosen is None else [raw[i] for i in chosen]
        nulls: list[int] = []
        if None in values:
            whole = range(len(raw)) if chosen is None else chosen
            nulls = [i for i in whole if raw[i] is None]
            places = [i for i in whole if raw[i] is not None]
            values = [raw[i] for i in places]
        present: Sequence[bytes] = values  # type: ignore[assignment]
        if self._chain:
            if nulls:
                nothing = Values(pa.nulls(len(nulls)), False, nulls)
                self._transform(block, topic, partition, nothing, outcome)
            with self._stages("decode"):
                decoded = self._decode(topic, "", present, self._whole_projection, places, outcome)
            for part in decoded:
                self._transform(block, topic, partition, part, outcome)
            return
        if nulls:
            outcome.filtered["tombstone"] += len(nulls)
        if present:
            self._straight(topic, present, places, outcome)

    def _straight(self, topic: str, present: Sequence[bytes], places: Places, outcome: Outcome) -> None:
        """Without transforms a decoder may know which columns its values go to."""
        if self._router.field is None:
            tables = self._router.by_topic(topic)
            self._deliver_bytes(topic, tables, present, places, outcome)
            return
        with self._stages("decode"):
            parts = self._decode(topic, "route", present, self._route_projection, places, outcome)
        for part in (_without_nulls(part, outcome) for part in parts):
            if not self._converter(topic, "route").projects:
                self._route(topic, part, outcome)
                continue
            with self._stages("decode"):
                groups = self._router.by_field(texts(part.data, self._router.field))
            for tables, inner in groups.items():
                here = _at(part.index, inner)
                chosen = present if here is None else _pick(present, places, here)
                self._deliver_bytes(topic, tables, chosen, here, outcome)

    def _deliver_bytes(
        self, topic: str, tables: Tables, present: Sequence[bytes], places: Places, outcome: Outcome
    ) -> None:
        """Values that all go to these tables, decoded for them."""
        if not tables:
            whole = range(len(present)) if places is None else places
            self._unrouted(topic, whole, outcome)
            return
        with self._stages("decode"):
            decoded = self._decode(topic, ",".join(tables), present, self._projection(tables), places, outcome)
        for part in decoded:
            self._deliver(tables, part, outcome)

    def _transform(self, block: Block, topic: str, partition: int, values: Values, outcome: Outcome) -> None:
        with self._stages("transform"):
            parts = self._records(block, topic, partition, values, outcome)
            done = [self._chain.apply(part) for part in parts]
        for transformed in done:
            outcome.filtered.update(transformed.dropped)
            outcome.bad += transformed.bad
            for records in transformed.records:
                self._route_records(records, outcome)

    def _route_records(self, records: Records, outcome: Outcome) -> None:
        values = Values(records.value, records.typed, records.index.to_pylist())
        if self._router.field is not None:
            self._route("", values, outcome)
            return
        topics = records.topic.unique().to_pylist()
        for topic in topics:
            part = values
            if len(topics) > 1:
                mask = pc.equal(records.topic, topic)
                chosen = records.take(mask)
                part = Values(chosen.value, records.typed, chosen.index.to_pylist())
            tables = self._router.by_topic(topic)
            if tables:
                self._deliver(tables, part, outcome)
            else:
                self._drop_unrouted(topic, part, outcome)

    def _route(self, topic: str, values: Values, outcome: Outcome) -> None:
        """By field, of values that are decoded."""
        values = _without_nulls(values, outcome)
        with self._stages("decode"):
            groups = self._router.by_field(texts(values.data, self._router.field or ""))
        for tables, inner in groups.items():
            part = values.choose(inner)
            if tables:
                self._deliver(tables, part, outcome)
            else:
                self._drop_unrouted(topic, part, outcome)

    def _deliver(self, tables: Tables, values: Values, outcome: Outcome) -> None:
        values = _without_nulls(values, outcome)
        wrong = next((table for table in tables if not is_table_name(table)), None)
        if wrong is not None:
            reason = f"its route field names no table: '{wrong}' is not a name with its namespace, such as db.events"
            outcome.bad += [RecordError(i, _ROUTING, "TableNameError", reason) for i in values.places]
        elif len(values):
            found = self._delivery.deliver(tables, values)
            outcome.written += found.written
            outcome.bad += found.bad
            outcome.filtered.update(found.filtered)

    def _drop_unrouted(self, topic: str, values: Values, outcome: Outcome) -> None:
        values = _without_nulls(values, outcome)
        self._unrouted(topic, values.places, outcome)

    def _unrouted(self, topic: str, places: Sequence[int], outcome: Outcome) -> None:
        if not places:
            return
        routing = self._spec.routing
        if routing.unrouted == "skip":
            outcome.filtered["unrouted"] += len(places)
            return
        by = f"'{routing.field}'" if routing.field is not None else f"topic '{topic}'"
        fatal = routing.unrouted == "fail"
        advice = "; correct the routes, or set iceberg.tables.on-unrouted = skip or dead-letter" if fatal else ""
        reason = f"no route takes its {by}{advice}"
        outcome.bad += [RecordError(i, _ROUTING, "UnroutedError", reason, fatal) for i in places]

    def _decode(
        self,
        topic: str,
        use: str,
        present: Sequence[bytes],
        projection: Projection | None,
        places: Places,
        outcome: Outcome,
    ) -> list[Values]:
        """Decoded values with their places in the block. ``use`` keeps apart what decoders learn."""
        if not present:
            return []
        decoded = self._in_bounds(topic, use, present, projection)
        outcome.bad += [replace(b, index=b.index if places is None else places[b.index]) for b in decoded.bad]
        return [replace(part, index=_at(places, part.index)) for part in decoded.values]

    def _in_bounds(self, topic: str, use: str, present: Sequence[bytes], projection: Projection | None) -> Decoded:
        """Decoded values; those that are too large are bad."""
        most = self._spec.limits.record_bytes
        if max(map(len, present)) <= most:
            return self._converter(topic, use).decode(present, projection)
        kept = [i for i, value in enumerate(present) if len(value) <= most]
        reason = "{} bytes are more than iceberg.limits.record-bytes = {}"
        bad = [
            RecordError(i, stage(is_key=False), "RecordTooLargeError", reason.format(len(value), most))
            for i, value in enumerate(present)
            if len(value) > most
        ]
        if not kept:
            return Decoded([], bad)
        decoded = self._converter(topic, use).decode([present[i] for i in kept], projection)
        return Decoded(
            [replace(part, index=_at(kept, part.index)) for part in decoded.values],
            [*bad, *(replace(b, index=kept[b.index]) for b in decoded.bad)],
        )

    def _records(self, block: Block, topic: str, partition: int, values: Values, outcome: Outcome) -> list[Records]:
        index = values.index if values.index is not None else range(len(values))
        found: list[Records] = []
        for part, data in self._shaped(values.data):
            places = index if part is None else [index[i] for i in part]
            found += self._columns(block, topic, partition, places, data, values.typed, outcome)
        return found

    def _shaped(self, data: pa.Array | list[Any]) -> Sequence[tuple[Places, pa.Array]]:
        """Columns that hold their values without loss, with their places."""
        return by_shape(data, decimals=self._decimals) if isinstance(data, list) else [(None, data)]

    def _columns(
        self,
        block: Block,
        topic: str,
        partition: int,
        index: Sequence[int],
        data: pa.Array,
        typed: bool,
        outcome: Outcome,
    ) -> list[Records]:
        needs = self._chain.needs
        count = len(index)
        whole = count == len(block)
        offsets = self._offsets(block) if "offset" in needs else None
        records = Records(
            _numbers(index),
            pa.repeat(pa.scalar(topic, pa.string()), count),
            partition,
            _chosen(offsets, index, whole, pa.int64()),
            _chosen(block.timestamps_ms if "timestamp" in needs else None, index, whole, pa.timestamp("ms", "UTC")),
            pa.nulls(count),
            data,
            _headers(block, index) if "headers" in needs else pa.nulls(count, HEADERS),
            typed,
        )
        return self._with_keys(block, topic, records, outcome) if "key" in needs else [records]

    def _offsets(self, block: Block) -> Sequence[int]:
        """Source offsets; those of replayed dead letters are where they once were."""
        if not self._spec.tolerance.replayed:
            return block.offsets
        found = zip(map(origin, block.headers), block.offsets, strict=True)
        return [offset if place is None else place[2] for place, offset in found]

    def _with_keys(self, block: Block, topic: str, records: Records, outcome: Outcome) -> list[Records]:
        """Keys come in shapes of their own: one part for each."""
        index = records.index.to_pylist()
        keys = block.keys if len(index) == len(block) else [block.keys[i] for i in index]
        here: Sequence[int] = range(len(keys))
        parts: list[Records] = []
        if None in keys:
            here = [place for place, key in enumerate(keys) if key is not None]
            parts.append(records.take(pc.indices_nonzero(pa.array([key is None for key in keys]))))
            keys = [keys[place] for place in here]
        if here:
            present: Sequence[bytes] = keys  # type: ignore[assignment]
            decoded = self._converter(topic, "", is_key=True).decode(present, None)
            outcome.bad += [replace(b, index=index[here[b.index]]) for b in decoded.bad]
            for found in decoded.values:
                for some, data in self._shaped(found.data):
                    places = _at(_at(here, found.index), some)
                    part = records if len(data) == len(index) else records.take(pa.array(places, pa.int32()))
                    parts.append(replace(part, key=data))
        return parts

    def _converter(self, topic: str, use: str, *, is_key: bool = False) -> Converter:
        key = (topic, "key of a record" if is_key else use)
        found = self._converters.get(key)
        if found is None:
            specs = self._spec.converters
            both = specs.get(topic) or specs.get("") or TopicConverters()
            spec = both.key if is_key else both.value
            found = self._converters[key] = converter(spec.name, spec.options, is_key=is_key, limits=self._spec.limits)
        return found

    def _projection(self, tables: Tables) -> Projection | None:
        """What these tables take; None while one of them is not known."""
        found = self._projections.get(tables)
        if found is None and all(table in self._spec.tables for table in tables):
            evolution = self._spec.evolution
            folds = evolution.case_insensitive or any(self._delivery.maps_names(table) for table in tables)
            targets = tuple(self._delivery.target(table) for table in tables)
            found = Projection(targets, "add" if evolution.evolve else "look" if folds else "ignore")
            self._projections[tables] = found
        return found


def _at(outer: Places, inner: Places) -> Places:
    """Places of places."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return [outer[i] for i in inner]


def _pick(present: Sequence[bytes], places: Places, wanted: Sequence[int]) -> Sequence[bytes]:
    if places is None:
        return [present[i] for i in wanted]
    where = {place: i for i, place in enumerate(places)}
    return [present[where[i]] for i in wanted]


def _without_nulls(values: Values, outcome: Outcome) -> Values:
    """A value that is null after all is a tombstone."""
    if isinstance(values.data, list):
        places = [i for i, value in enumerate(values.data) if value is not None] if None in values.data else None
    elif values.data.null_count:
        places = pc.indices_nonzero(values.data.is_valid()).to_pylist()
    else:
        places = None
    if places is None:
        return values
    outcome.filtered["tombstone"] += len(values) - len(places)
    return values.choose(places)


def _chosen(values: Sequence[int | None] | None, index: Sequence[int], whole: bool, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(len(index), kind)
    return pa.array(values if whole else [values[i] for i in index], kind)


def _numbers(index: Sequence[int]) -> pa.Array:
    """A range is counted, which is quicker than to look at each number."""
    if isinstance(index, range) and index.step == 1:
        return pa.arange(index.start, index.stop).cast(pa.int32())
    return pa.array(index, pa.int32())


def _headers(block: Block, index: Sequence[int]) -> pa.Array:
    rows = [[{"key": name, "value": value} for name, value in block.headers[i]] for i in index]
    return pa.array(rows, HEADERS)


def _origins(block: Block) -> list[tuple[str, int, list[int]]]:
    """Places of replayed dead letters by the topic and partition they came from."""
    found: dict[tuple[str, int], list[int]] = {}
    for i, headers in enumerate(block.headers):
        place = origin(headers)
        key = place[:2] if place is not None else (block.source.topic, block.source.partition)
        found.setdefault(key, []).append(i)
    return [(topic, partition, places) for (topic, partition), places in found.items()]
