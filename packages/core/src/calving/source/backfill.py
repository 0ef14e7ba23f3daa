"""A backfill reads a range of the topics once: what somebody asked for, and the offsets that it comes to. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from calving.errors import ConfigError, DataLossError
from calving.model.offsets import SourceOffsets, Span, Spans, TopicPartition
from calving.source.interface import Bounds, NotedOffsets
from calving.source.start import Start, place_text

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOTE = re.compile(
    r"calving (?P<asked>[0-9a-f]{8}) from=(?P<start>\d{1,19}) of=(?P<count>\d{1,9})( topic=(?P<id>\S+))?"
)
_MOST_NAMED = 20
_BEGIN_ANOTHER = "What it has read stays in the tables; to read what is there now, begin another one with another --id"


@dataclass(frozen=True, slots=True)
class BackfillOrder:
    """What somebody asks for. ``branch``: None for the branches to which the sink commits. ``tables``: those that get
    rows; none stands for all. ``given_id``: tells backfills with the same order apart.
    """

    start: Start
    end: Start
    branch: str | None = None
    tables: tuple[str, ...] = ()
    given_id: str | None = None

    def __post_init__(self) -> None:
        if self.given_id is not None and not _ID.fullmatch(self.given_id):
            raise ConfigError(f"--id {self.given_id}: an id has at most 64 letters, digits, '_' and '-' of ASCII")

    @property
    def digest(self) -> str:
        """Stands for all but the id."""
        said = [str(self.start), str(self.end), self.branch, sorted(self.tables)]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:8]

    @property
    def id(self) -> str:
        """The same for the same order, so that the command, run again, goes on where it was."""
        return self.given_id or self.digest


@dataclass(frozen=True, slots=True)
class BackfillScope:
    """What a sink that is a backfill reads, and where to. ``ends``: the offsets at which reading ends. ``tables``:
    those that get rows; none stands for all.
    """

    ends: SourceOffsets = field(default_factory=dict)
    tables: frozenset[str] = frozenset()


def spans_of(
    order: BackfillOrder, bounds: Bounds, starts: SourceOffsets, ends: SourceOffsets, oldest: SourceOffsets
) -> Spans:
    """The offsets to read, of those partitions that have some. ``starts``, ``ends``: the offsets of both places of the
    order, as a first start would begin there. ``oldest``: those of the first records that are left, by their times.

    A list of offsets names the partitions that are read.

    :raises DataLossError: retention has taken a part of the range, or may have.
    :raises ConfigError: a partition or an offset is not there, or there is nothing to read.
    """
    chosen = _chosen(order, starts.keys())
    _refuse_unknown(order, bounds)
    _refuse_taken(order, bounds, starts, oldest, chosen)
    backwards = [tp for tp, at in order.end.offsets if at < starts[tp]]
    if backwards:
        raise ConfigError(f"--to: it is before --from in {_named(backwards)}")
    spans = {tp: Span(starts[tp], ends[tp]) for tp in chosen if starts[tp] < ends[tp]}
    if not spans:
        raise ConfigError(
            f"there is nothing to read from {place_text(order.start)} up to {place_text(order.end)}: no partition has a"
            " record there"
        )
    return spans


def refuse_unreadable(order: BackfillOrder, bounds: Bounds, spans: Spans, stored: SourceOffsets) -> None:
    """``stored``: the positions of the backfill, of the partitions that have one.

    :raises DataLossError: retention has taken records of the range that are not read yet.
    """
    at = {tp: stored.get(tp, span.start) for tp, span in spans.items()}
    begins = {tp: bounds.begins.get(tp, 0) for tp in spans}
    if gone := [tp for tp, span in spans.items() if at[tp] < min(begins[tp], span.end)]:
        more = {tp: f"which begins at {begins[tp]}, and was to be read from {at[tp]} on" for tp in gone}
        raise DataLossError(
            f"backfill {order.id} cannot go on: retention has taken records of the range: {_named(gone, more)}."
            f" {_BEGIN_ANOTHER}"
        )


def _chosen(order: BackfillOrder, every: Collection[TopicPartition]) -> Collection[TopicPartition]:
    first, last = ({tp for tp, _ in place.offsets} for place in (order.start, order.end))
    if first and last and first != last:
        raise ConfigError(f"--from and --to name different partitions: {_named(first ^ last)} stands in one of them")
    return first or last or every


def _refuse_unknown(order: BackfillOrder, bounds: Bounds) -> None:
    for option, place in (("--from", order.start), ("--to", order.end)):
        if missing := [tp for tp, _ in place.offsets if tp not in bounds.ends]:
            raise ConfigError(f"{option}: the sink does not read {_named(missing)}")
        if beyond := [tp for tp, at in place.offsets if at > bounds.ends[tp]]:
            ends = {tp: f"which ends at {bounds.ends[tp]}" for tp in beyond}
            raise ConfigError(f"{option}: the offset is not there yet in {_named(beyond, ends)}")


def _refuse_taken(
    order: BackfillOrder,
    bounds: Bounds,
    starts: SourceOffsets,
    oldest: SourceOffsets,
    chosen: Collection[TopicPartition],
) -> None:
    begins = bounds.begins
    begin_at = {tp: f"which begins at {begins[tp]}" for tp in chosen}
    offsets = (*order.start.offsets, *order.end.offsets)
    if gone := {tp for tp, at in offsets if at < begins[tp]}:
        raise DataLossError(
            f"retention has taken records of the range: {_named(gone, begin_at)}: ask for a range that is there, or for"
            " --from earliest"
        )
    # Compaction leaves no record at the beginning of a partition, perhaps.
    left = {tp: max(begins[tp], oldest[tp]) for tp in chosen}
    if isinstance(order.start.place, int) and (gone := {tp for tp in chosen if starts[tp] <= left[tp] and begins[tp]}):
        raise DataLossError(
            f"retention may have taken records of the range: {_named(gone, begin_at)}, has no record from before that"
            " time: ask for a later time, for offsets, or for --from earliest, which reads what is there"
        )


def _named(partitions: Iterable[TopicPartition], more: Mapping[TopicPartition, str] | None = None) -> str:
    every = sorted(partitions)
    shown = [
        f"partition {tp.partition} of topic '{tp.topic}'" + (f", {more[tp]}" if more else "")
        for tp in every[:_MOST_NAMED]
    ]
    if len(every) > _MOST_NAMED:
        shown.append(f"{len(every) - _MOST_NAMED} more partitions")
    return "; ".join(shown)


def range_notes(order: BackfillOrder, spans: Spans, topic_ids: Mapping[str, str]) -> NotedOffsets:
    """The offset and the note to store for each partition, so that the range stays what it was when a backfill
    began.
    """
    return {
        tp: (span.end, " ".join(_words(order, span, len(spans), topic_ids.get(tp.topic, ""))))
        for tp, span in sorted(spans.items())
    }


def _words(order: BackfillOrder, span: Span, count: int, topic_id: str) -> Iterator[str]:
    yield f"calving {order.digest} from={span.start} of={count}"
    if topic_id:
        yield f"topic={topic_id}"


def noted_spans(order: BackfillOrder, noted: NotedOffsets, topic_ids: Mapping[str, str]) -> Spans:
    """The inverse of ``range_notes``; empty if nothing is stored.

    :raises ConfigError: the id belongs to another order.
    :raises DataLossError: a topic was deleted or recreated since the backfill began.
    """
    spans: dict[TopicPartition, Span] = {}
    count = 0
    for tp, (end, text) in noted.items():
        note = _NOTE.fullmatch(text)
        if note is None or note["asked"] != order.digest:
            raise ConfigError(of_another_order(order))
        if note["id"] and topic_ids.get(tp.topic, note["id"]) != note["id"]:
            raise DataLossError(_recreated(order, f"topic '{tp.topic}' was recreated"))
        spans[tp] = Span(min(int(note["start"]), end), end)
        count = int(note["count"])
    if len(spans) < count:
        lost = f"only {len(spans)} of {count} partitions still have a stored end"
        raise DataLossError(_recreated(order, f"{lost}, as after a topic was deleted or taken out of the settings"))
    return spans


def of_another_order(order: BackfillOrder) -> str:
    """A sentence on an id that is in use."""
    return (
        f"--id {order.id}: there is a backfill of this id for another range, branch or table: to go on with it, run it"
        " as before; for this one give another --id"
    )


def _recreated(order: BackfillOrder, what: str) -> str:
    return f"backfill {order.id} cannot go on: {what}. {_BEGIN_ANOTHER}"


def read_of(spans: Spans, positions: SourceOffsets) -> int:
    """How many offsets of these are below the positions; of a partition without one, none."""
    return sum(min(max(positions.get(tp, 0), span.start), span.end) - span.start for tp, span in spans.items())
