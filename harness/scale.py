"""One commit cycle of a sink of any size: the wire format, the machines and the ledgers, without a broker and a catalog:
``python -m harness.scale --workers 10 --partitions 10000 --tables 100 --of-each 10``; ``--in-order 1``
for tables whose rows change.

Each measurement is a process of its own, as memory that was once taken is seldom given back.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from calving.backend.entries import Encoded, Entries
from calving.model.events import (
    NOTHING_ATTACHED,
    DataComplete,
    DataWritten,
    PartitionProgress,
    Publication,
    TableId,
    TableReference,
)
from calving.model.files import DataFile
from calving.model.marks import TableMark
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.tables import SnapshotPlace
from calving.protocol.commit import Admitted, CommitLoop
from calving.protocol.coordinator import Committed, Coordinator, Intervals
from calving.protocol.effects import Acknowledge, Announce, CommitTables, CoordinatorEffect
from calving.protocol.held_back import passed_over
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import committed
from calving.protocol.rollback import Ancestor, Line
from calving.status.table_states import TableStates

GROUP = "connect-scale"
_KEY = LedgerKey("control-iceberg", GROUP, "log")
_OF_A_TOPIC = 6
RECORDS = 10_000
"""Of each partition in a cycle."""
_LIMIT = 900_000
_LOADED = 2
"""A table is loaded to find its mark, and its ledger."""


class Shape(NamedTuple):
    """The size of a sink. ``of_each``: the tables for which each worker has a file in a cycle. ``in_order``: 1 if
    records change rows of the tables, so that their order counts; else 0.
    """

    workers: int
    partitions: int
    tables: int
    of_each: int
    in_order: int = 0


@dataclass
class Cost:
    """What one cycle costs: CPU seconds by step, bytes by kind, and the largest memory of the whole process, MiB."""

    seconds: dict[str, float] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    entries: int = 0
    peak_mib: float = 0.0


def measure(shape: Shape, cycles: int = 3) -> Cost:
    """In a fresh process: the cost of the last of these cycles."""
    numbers = [f"--{name.replace('_', '-')}={value}" for name, value in shape._asdict().items()]
    done = subprocess.run(
        [sys.executable, "-m", "harness.scale", *numbers, f"--cycles={cycles}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).resolve().parent.parent,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Cost(**json.loads(done.stdout))


@dataclass
class SizedTable:
    """A table whose commits always land. It keeps texts alone, as metadata do."""

    properties: dict[str, str] = field(default_factory=dict)
    summaries: list[dict[str, str]] = field(default_factory=list)
    """Of the last two snapshots, newest first."""
    number: int = 0

    @property
    def line(self) -> Line:
        places = [SnapshotPlace(self.number - i, self.number - i) for i in range(len(self.summaries))]
        return Line([Ancestor(p, p.id - 1 or None, s) for p, s in zip(places, self.summaries, strict=True)])

    def load(self) -> SizedTable:
        return self

    def attempt(self, state: SizedTable, admitted: Admitted) -> int:
        line, self.number = self.line, self.number + 1
        summary = _KEY.summary(admitted.ledger)
        place = SnapshotPlace(self.number, self.number)
        self.properties |= committed(_KEY, line, self.properties, admitted.ledger, place)
        self.summaries = [summary, *self.summaries[:1]]
        return self.number

    def landed(self, state: SizedTable) -> int | None:
        return None

    def moved(self, state: SizedTable) -> bool:
        return False

    def discard(self) -> None:
        raise AssertionError("every commit lands")

    def pause(self, tries: int) -> None:
        raise AssertionError("every commit lands")

    def loaded_anew(self) -> None:
        """From here on, no text is the same object as one that was written."""
        self.properties = _copied(self.properties)
        self.summaries = [_copied(summary) for summary in self.summaries]


class Fleet:
    """The workers of a sink, its control log of one partition, its coordinator and its tables."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        topics = [f"orders-{number:05d}" for number in range(-(-shape.partitions // _OF_A_TOPIC))]
        self._ids = {topic: f"{number:022d}" for number, topic in enumerate(topics)}
        every = [TopicPartition(topics[n // _OF_A_TOPIC], n % _OF_A_TOPIC) for n in range(shape.partitions)]
        self._expected = frozenset(every)
        self._assigned = [every[worker :: shape.workers] for worker in range(shape.workers)]
        self.tables: dict[TableId, SizedTable] = {}
        self._machine = Coordinator(Intervals(10, 30, 5), {0: 0}, 0)
        self._entries = Entries(GROUP, "the control log", strict=True)
        self._reading, self._states = Entries(GROUP, "the control log"), TableStates()
        self.log: list[tuple[bytes, bytes, bytes]] = []
        self._heard, self._cycle = 0, 0

    def cycle(self) -> Cost:
        """One cycle, and its cost."""
        self._cycle += 1
        cost, begun = Cost(), len(self.log)
        commit_id = UUID(int=self._cycle)
        self._act(self._machine.tick(self._cycle * 10, commit_id, self._expected), cost)
        for worker in range(self._shape.workers):
            publication = self._publication(worker, commit_id)
            with _timed(cost, "encode"):
                encoded = Encoded.of_worker(GROUP, publication, _LIMIT)
            self._append(encoded, cost, "of workers")
        self._act(self._hear(cost), cost)
        if self._machine.commit_id != commit_id or self._machine.buffered:
            raise RuntimeError("the cycle has not ended")
        with _timed(cost, "one worker reads"):
            for place, (value, coverage, beside) in enumerate(self.log[begun:]):
                envelope = self._reading.envelope(0, begun + place, b"m", value, coverage, beside)
                if envelope is not None:
                    self._states.hear(envelope, self._cycle * 10)
        cost.entries = len(self.log) - begun
        cost.peak_mib = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
        return cost

    def replay(self) -> Cost:
        """What a successor spends that reads the whole log, and commits nothing."""
        cost, machine = Cost(), Coordinator(Intervals(10, 30, 5), {0: 0}, 0)
        entries = Entries(GROUP, "the control log", strict=True)
        with _timed(cost, "replay"):
            for place, (value, coverage, beside) in enumerate(self.log):
                if (envelope := entries.envelope(0, place, b"m", value, coverage, beside)) is not None:
                    machine.heard(envelope)
        cost.entries = len(self.log)
        return cost

    def _publication(self, worker: int, commit_id: UUID) -> Publication:
        shape, start, end = self._shape, (self._cycle - 1) * RECORDS, self._cycle * RECORDS
        own = self._assigned[worker]
        names = dict.fromkeys((worker * shape.of_each + i) % shape.tables for i in range(shape.of_each))
        written: list[DataWritten | DataComplete] = [
            DataWritten(commit_id, _reference(number), (_file(number, worker, self._cycle),)) for number in names
        ]
        answer = DataComplete(commit_id, tuple(PartitionProgress(tp, end, end) for tp in own))
        qualified = [tp._replace(topic_id=self._ids[tp.topic]) for tp in own]
        return Publication(
            (*written, answer),
            {tp: Advance(start or None, end) for tp in own},
            {tp: (Span(start, end),) for tp in qualified},
            topic_ids=self._ids,
        )

    def _append(self, encoded: Encoded, cost: Cost, by: str) -> None:
        self.log += [(value, encoded.coverage, encoded.beside) for value in encoded.events]
        headers = len(encoded.events) * (len(encoded.coverage) + len(encoded.beside))
        sizes = Counter(cost.sizes)
        sizes.update({f"events {by}": sum(map(len, encoded.events)), f"headers {by}": headers})
        cost.sizes = dict(sizes)

    def _hear(self, cost: Cost) -> Iterator[CoordinatorEffect]:
        while self._heard < len(self.log):
            place, (value, coverage, beside) = self._heard, self.log[self._heard]
            self._heard += 1
            with _timed(cost, "decode"):
                envelope = self._entries.envelope(0, place, b"m", value, coverage, beside)
            if envelope is not None:
                with _timed(cost, "machine"):
                    effects = self._machine.heard(envelope)
                yield from effects

    def _act(self, effects: Iterable[CoordinatorEffect], cost: Cost) -> None:
        for effect in effects:
            match effect:
                case Announce(events):
                    with _timed(cost, "announce"):
                        encoded = Encoded.of_coordinator(GROUP, events, NOTHING_ATTACHED, _LIMIT)
                    self._append(encoded, cost, "of the coordinator")
                case CommitTables():
                    self._commit(effect, cost)
                case Acknowledge(_, events, attached):
                    with _timed(cost, "announce"):
                        encoded = Encoded.of_coordinator(GROUP, events, attached, _LIMIT)
                    self._append(encoded, cost, "of the coordinator")
                    largest = max(map(len, encoded.events)) + len(encoded.coverage) + len(encoded.beside)
                    cost.sizes["CommitComplete"] = largest

    def _commit(self, request: CommitTables, cost: Cost) -> None:
        for name, entries in request.tables.items():
            table = self.tables.setdefault(name, SizedTable())
            table.loaded_anew()
            with _timed(cost, "ledgers"):
                for _ in range(_LOADED):
                    _KEY.stored_control(table.properties)
                done = CommitLoop(table, _KEY, 1, in_order=bool(self._shape.in_order)).settle(
                    entries, request.read, request.progress
                )
                passed_over(done.admitted.ledger, request.progress)
                elsewhere = done.admitted.elsewhere
            mark = TableMark(str(UUID(int=1)), table.number, done.admitted.ledger.control)
            outcome = Committed(TableReference("iceberg", name[:-1], name[-1]), done.snapshot_id, mark, elsewhere)
            with _timed(cost, "machine"):
                effects = self._machine.settled(name, outcome)
            self._act(effects, cost)
            cost.sizes["ledger of a snapshot"] = sum(map(len, table.summaries[0].values()))


def _copied(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text[:1] + text[1:] for name, text in texts.items()}


@contextmanager
def _timed(cost: Cost, step: str) -> Iterator[None]:
    begun = time.process_time()
    yield
    cost.seconds[step] = cost.seconds.get(step, 0.0) + time.process_time() - begun


def _reference(number: int) -> TableReference:
    return TableReference("iceberg", ("lake",), f"orders_{number:05d}", UUID(int=1))


def _file(table: int, worker: int, cycle: int) -> DataFile:
    """With statistics of ten columns."""
    path = f"s3://lake/orders_{table:05d}/data/{worker:05d}-{cycle:05d}-6b1f3c2a-0001.parquet"
    counts, bounds = dict.fromkeys(range(10), 1000), dict.fromkeys(range(10), b"12345678")
    return DataFile(
        path,
        "PARQUET",
        1_000,
        100_000,
        column_sizes=counts,
        value_counts=counts,
        null_value_counts=counts,
        lower_bounds=bounds,
        upper_bounds=bounds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in Shape._fields:
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=Shape._field_defaults.get(name, 1))
    parser.add_argument("--cycles", type=int, default=3)
    args = parser.parse_args()
    fleet = Fleet(Shape(*(getattr(args, name) for name in Shape._fields)))
    for _ in range(args.cycles):
        cost = fleet.cycle()
    replayed = fleet.replay()
    cost.seconds["replay of 1,000 entries"] = replayed.seconds["replay"] / replayed.entries * 1000
    cost.seconds = {step: round(seconds, 4) for step, seconds in cost.seconds.items()}
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main()
