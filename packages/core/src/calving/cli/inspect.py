"""Reads the state of a sink from outside: its settings, stored positions and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from rich.table import Table as RichTable
from rich.text import Text

from calving.backend.interface import Session
from calving.engine.registry import check_reach
from calving.errors import ConfigError, UnavailableError
from calving.iceberg.abilities import abilities
from calving.iceberg.catalog import find_table, table_id
from calving.model.offsets import TopicPartition
from calving.model.text import counted, printable
from calving.runtime import components
from calving.runtime.checks import check_settings, refuse_missing_tables
from calving.settings.load import Sink
from calving.source.interface import Source


def validate(sink: Sink) -> Iterator[str]:
    """One line for each check that passes.

    :raises CalvingError: the first check that fails.
    """
    keys = sink.keys
    check_settings(sink)
    if keys.engine == "spark":
        check_reach(sink.spark)
    catalog = components.catalog(sink)
    yield "configuration"
    topics = components.source(sink)
    every = _partitions(sink, topics)
    topics.bounds(every)
    yield f"topics: {', '.join(sorted({tp.topic for tp in every}))} ({counted(len(every), 'partition')})"
    backend = components.backend(sink)
    backend.provision()
    session = backend.open(str(uuid4()))
    try:
        session.committed(every)
    finally:
        session.close()
    yield f"backend: {backend.name}, control topic {keys.control_topic}, group {sink.group}"
    try:
        catalog.list_namespaces()
    except Exception as error:  # every catalog has exceptions of its own
        raise ConfigError(f"iceberg.catalog.*: the catalog cannot be read: {type(error).__name__}: {error}") from error
    yield f"catalog: {keys.catalog_name}"
    present = []
    for name, exists in refuse_missing_tables(catalog, sink):
        there = "exists" if exists else "will be created" if keys.auto_create else "does not exist yet"
        present += [name] if exists else []
        yield f"table {name}: {there}"
    asked = find_table(catalog, table_id(present[0])) if present else None
    named = (keys.default_branch, *(table.commit_branch for table in sink.tables.values()))
    branch = min((name for name in named if name and name != "main"), default=None)
    for line in abilities(catalog, asked, branch):
        yield f"catalog: {line}"


def _partitions(sink: Sink, topics: Source) -> frozenset[TopicPartition]:
    """The partitions that the sink reads.

    :raises ConfigError: there are none. :raises UnavailableError: no broker answers.
    """
    try:
        every = topics.partitions()
    except UnavailableError as error:
        servers = sink.kafka["bootstrap.servers"]
        raise UnavailableError(
            f"kafka.bootstrap.servers = {servers}: no broker answers: start Kafka, or correct the address, or"
            f" kafka.security.protocol ({error})"
        ) from error
    if not every:
        raise ConfigError(f"topics.regex = {sink.keys.topics_regex} matches no topic: correct it, or create a topic")
    return every


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of a source partition in the broker, the backend and the control log. ``stored``: None before a first
    start. ``end``: the end of the partition, with the records of open transactions. ``committed``: all records below
    this offset are in the tables; None if the control log does not tell.
    """

    partition: TopicPartition
    stored: int | None
    begin: int
    end: int
    committed: int | None = None
    answered: bool | None = None
    """Whether the last commit cycle had an answer for this partition."""
    hidden: int = 0
    """Records before the end that cannot be read yet, because a transaction of their producer is open."""

    @property
    def lag(self) -> int:
        """Records from the stored position to the end, hidden ones included, as Kafka's own tools count; 0 if the
        position is beyond the end.
        """
        return max(0, self.end - (self.begin if self.stored is None else self.stored))

    @property
    def visible(self) -> int:
        """Below this offset every record is in its tables, as far as the control log tells."""
        read = self.begin if self.stored is None else self.stored
        return read if self.committed is None else min(read, self.committed)

    @property
    def not_visible(self) -> int:
        """Records that no reader of the tables sees yet."""
        return max(0, self.end - self.visible)

    @property
    def is_beyond_end(self) -> bool:
        """Whether the stored position is beyond the end, so that it tells nothing of the records that are there."""
        return self.stored is not None and self.stored > self.end

    @property
    def to_commit(self) -> int | None:
        """Records that are not in their tables yet."""
        return None if self.committed is None else max(self.lag, self.end - self.committed)


def beyond_end_text(p: PartitionState) -> str:
    """That the stored position of a partition is beyond its end."""
    return (
        f"topic '{p.partition.topic}', partition {p.partition.partition}: the stored position {p.stored} is beyond the"
        f" end {p.end}: the topic was recreated or truncated, and how many of its records wait is not known"
    )


def positions(sink: Sink) -> list[PartitionState]:
    """The positions of every source partition in the broker and the backend."""
    session = components.backend(sink).open(str(uuid4()))
    try:
        return positions_of(sink, session)
    finally:
        session.close()


def positions_of(sink: Sink, session: Session) -> list[PartitionState]:
    """Like ``positions``, with an open session."""
    topics = components.source(sink)
    every = topics.partitions()
    stored = session.committed(every)  # before the ends, which a running sink's positions follow
    bounds, highs = topics.bounds(every), topics.highs(every)
    ends = {tp: max(end, highs.get(tp, end)) for tp, end in bounds.ends.items()}
    return [
        PartitionState(tp, stored.get(tp), bounds.begins[tp], ends[tp], hidden=ends[tp] - bounds.ends[tp])
        for tp in sorted(every)
    ]


def positions_table(sink: Sink, found: Iterable[PartitionState], *, heard: bool = False) -> RichTable:
    """``heard``: include the state of the control log."""
    found = list(found)
    hides = any(p.hidden for p in found)
    more = (*(["hidden"] if hides else []), *(["not visible", "last cycle"] if heard else []))
    title = Text(f"Source positions of {printable(sink.group)}")
    shown = RichTable("topic", "partition", "stored", "end", "lag", *more, title=title)
    for p in found:
        said = {True: "answered", False: "NO ANSWER", None: "-"}[p.answered]
        row = [printable(p.partition.topic), str(p.partition.partition), _number(p.stored), str(p.end), str(p.lag)]
        row += [str(p.hidden)] if hides else []
        shown.add_row(*row, *([str(p.not_visible), said] if heard else []))
    return shown


def positions_json(sink: Sink, found: Iterable[PartitionState]) -> dict[str, Any]:
    """The same for programs."""
    return {
        "sink": sink.keys.name,
        "group": sink.group,
        "partitions": [
            {
                "topic": p.partition.topic,
                "partition": p.partition.partition,
                "stored": p.stored,
                "begin": p.begin,
                "end": p.end,
                "lag": p.lag,
                "hidden": p.hidden,
            }
            for p in found
        ],
    }


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)
