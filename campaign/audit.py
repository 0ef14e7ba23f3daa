"""Counts violations of the invariants of tables: pure, the content of topic and tables are arguments.

GAP, DUPLICATE and MISMATCH are counted by record, for each source partition. The invariants are those of
docs/reference/rules.md: I1 what a ledger calls settled is in some table; I2 a file is added once; I3 a ledger never
goes back; I4 a table holds what its ledger says it has read, and nothing else; I6 what was read is committed within two
cycles; I7 changes of a key come in the order of their offsets (``rows.py``). I5 says that no fault breaks these, which
is what the campaign is for. VTTS: a table holds its records that are older than it says it is valid through. DLQ: dead
letters are of those records that are bad, each at least once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

_EXAMPLES = 5
"""Of each kind."""
INVARIANTS = ("I1", "I2", "I3", "I4", "I6", "I7", "VTTS", "DLQ")


@dataclass(frozen=True)
class Claim:
    """A table's ledger by source partition; ``control`` by partition of the control log ``log_id``."""

    log_id: str
    control: Mapping[str, int]
    source: Mapping[int, int]
    settled: Mapping[int, int]
    missing: Mapping[int, Sequence[Sequence[int]]]
    through_ms: int | None = None
    """The valid-through timestamp of the newest snapshot that has one."""

    def held(self, partition: int, size: int) -> np.ndarray:
        """For each of the first ``size`` offsets of a partition: whether the table has read it."""
        found = np.zeros(size, bool)
        found[: self.source.get(partition, 0)] = True
        for start, end in self.missing.get(partition, ()):
            found[start:end] = False
        return found


@dataclass(frozen=True)
class Row:
    number: int
    route: str
    proof: str


@dataclass
class Audit:
    """``expected``: the table and the proof of the record with a number; for one that no table takes, ``bad`` or some
    other word. Numbers count from 0, each is sent once.
    """

    tables: Sequence[str]
    partitions: int
    expected: Callable[[int], tuple[str, str]]
    bad: str = ""
    gaps: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of records that a ledger claimed, or that were missing at the end."""
    doubled: dict[tuple[int, int], int] = field(default_factory=dict)
    """How often too often each record was seen at once, at most."""
    wrong: Counter[int] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    """How often each invariant did not hold."""
    examples: list[str] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self._source: list[list[int]] = [[] for _ in range(self.partitions)]
        self._timestamps: list[list[int]] = [[] for _ in range(self.partitions)]
        self._where: dict[int, tuple[int, int]] = {}
        self._letters: Counter[int] = Counter()
        self._table = np.zeros(0, np.int16)
        self._count = np.zeros(0, np.int16)
        self._gone: set[int] = set()
        self._begins: list[list[int]] = [[0] for _ in range(self.partitions)]
        self._added: dict[str, tuple[str, int]] = {}
        self._control: dict[tuple[str, str], Mapping[str, int]] = {}

    # What there is

    def produced(self, partition: int, offset: int, number: int, timestamp_ms: int = 0) -> None:
        """The topic holds ``number`` there. Told in the order of offsets, none left out."""
        assert offset == len(self._source[partition]), f"offset {offset} of partition {partition} comes out of turn"
        self._source[partition].append(number)
        self._timestamps[partition].append(timestamp_ms)
        self._where[number] = (partition, offset)
        if number >= len(self._table):
            more = max(1024, number + 1 - len(self._table), len(self._table))
            self._table = np.concatenate([self._table, np.full(more, -1, np.int16)])
            self._count = np.concatenate([self._count, np.zeros(more, np.int16)])
        table = self.expected(number)[0] if number not in self._gone else ""
        self._table[number] = self.tables.index(table) if table in self.tables else -1

    def reaches(self, partition: int) -> int:
        """The offset after the last one that is known of."""
        return len(self._source[partition])

    def appeared(self, table: str, rows: Iterable[Row]) -> list[int]:
        """A file with these rows is live in ``table``; the numbers to give to ``vanished`` when it is not any more.

        Duplicates are for ``look``: a file may be told before those that it replaces are gone.
        """
        found = []
        for row in rows:
            if row.number not in self._where:
                self._break("MISMATCH", f"{table} holds a record {row.number}, which the topic does not hold")
                self.wrong[-1] += 1
                continue
            partition = self._where[row.number][0]
            if (table, row.proof) != self.expected(row.number) or row.route != table:
                self.wrong[partition] += 1
                self._break("MISMATCH", f"record {row.number} stands in {table} as {row}")
            found.append(row.number)
            self._count[row.number] += 1
        return found

    def vanished(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._count[number] -= 1

    def added(self, table: str, path: str, snapshot: int) -> None:
        """A snapshot of this sink, or of somebody else, says that it added the file."""
        first = self._added.setdefault(path, (table, snapshot))
        if first != (table, snapshot):
            self._break("I2", f"{path} was added by {first} and by {(table, snapshot)}")

    def began_again(self, table: str) -> None:
        """It was dropped, and created again: its ledger begins again, too."""
        self._control = {key: known for key, known in self._control.items() if key[0] != table}

    def dropped(self, numbers: Iterable[int]) -> None:
        """Somebody has dropped the table, or the buffered files, that held these records: they may be in no table."""
        for number in numbers:
            self._gone.add(number)
            if number in self._where:
                self._table[number] = -1

    def is_complete(self, numbers: npt.NDArray[np.int64]) -> bool:
        """Whether each of these records is in a table, or was dropped."""
        if len(numbers) and numbers.max() >= len(self._count):
            return False
        there = self._count > 0
        there[[number for number in self._gone if number < len(there)]] = True
        return bool(there[numbers].all())

    def recreated(self) -> None:
        """The topic was deleted and created again; everything in it was committed before."""
        for partition, begins in enumerate(self._begins):
            begins.append(self.reaches(partition))

    def begins(self, partition: int) -> list[int]:
        """Of each incarnation of the topic the offset here that its offset 0 has: offsets here never start again."""
        return self._begins[partition]

    def buried(self, number: int, partition: int, offset: int) -> None:
        """A dead letter of record ``number``, which says that the record stands at ``offset`` of its topic."""
        known, own = self._where.get(number, (None, 0))
        if known != partition or own - offset not in self._begins[partition]:
            self._break("DLQ", f"a dead letter says that record {number} stands at {offset} of partition {partition}")
        elif self.expected(number)[0] != self.bad:
            self._break("DLQ", f"record {number} has a dead letter, and is not bad")
        else:
            self._letters[number] += 1

    def went_back(self) -> None:
        """All tables have gone back in time, and were allowed to."""
        self._control.clear()

    def committed(self, table: str, claim: Claim) -> None:
        """A snapshot of this sink; told in the order of the table's ancestry."""
        before = self._control.get((table, claim.log_id), {})
        if any(claim.control.get(p, 0) < offset for p, offset in before.items()):
            self._break("I3", f"the ledger of {table} went from {before} to {claim.control}")
        self._control[table, claim.log_id] = claim.control
        last = [self._timestamps[p][end - 1] for p, end in claim.source.items() if 0 < end <= self.reaches(p)]
        if claim.through_ms is not None and last and claim.through_ms > min(last):
            self._break("VTTS", f"{table} is valid through {claim.through_ms}, and has read up to {min(last)}")

    # What must hold

    def look(self, claims: Mapping[str, Claim]) -> None:
        """All tables as they were at one moment, with what each said of itself then."""
        self.looks += 1
        for number in np.flatnonzero(self._count > 1).tolist():
            where, more = self._where[number], int(self._count[number]) - 1
            if more > self.doubled.get(where, 0):
                self.doubled[where] = more
                self._break("I1", f"record {number} of partition {where[0]} is there {more + 1} times")
        for partition in range(self.partitions):
            numbers = np.asarray(self._source[partition], np.int64)
            there, table = self._count[numbers] > 0, self._table[numbers]
            times = np.asarray(self._timestamps[partition], np.int64)
            settled = max((c.settled.get(partition, 0) for c in claims.values()), default=0)
            lost = ~there & (table >= 0)
            self._missing("I1", partition, np.flatnonzero(lost[:settled]), "is settled, and in no table yet")
            for name, claim in claims.items():
                own, held = table == self.tables.index(name), claim.held(partition, len(numbers))
                self._missing("I4", partition, np.flatnonzero(own & held & ~there), f"was read, and is not in {name}")
                if claim.through_ms is not None:
                    late = own & ~there & (times < claim.through_ms)
                    for offset in np.flatnonzero(late).tolist():
                        self._break(
                            "VTTS",
                            f"{name} is valid through {claim.through_ms} and lacks offset {offset} of partition"
                            f" {partition}, of {times[offset]}",
                        )
                for offset in np.flatnonzero(own & there & ~held).tolist():
                    self._break("I4", f"{name} holds offset {offset} of partition {partition} and does not say so")

    def end(self, sent: int, cycles: int | None) -> None:
        """Everything is in the tables that ever will be; ``cycles``: after how many commits, None: not in time."""
        if len(self._where) != sent:
            self._break("MISMATCH", f"the topic holds {len(self._where)} records, {sent} were sent")
        for partition, known in enumerate(self._source):
            numbers = np.asarray(known, np.int64)
            missing = np.flatnonzero((self._count[numbers] == 0) & (self._table[numbers] >= 0))
            for offset in missing.tolist():
                self.gaps.add((partition, offset))
                self._break("I1", f"offset {offset} of partition {partition} is in no table at the end")
        self.end_of_letters()
        if cycles is None or cycles > 2:
            self._break("I6", f"what had been read was committed after {cycles} cycles")

    def end_of_letters(self) -> None:
        """All dead letters are there that ever will be."""
        for partition, known in enumerate(self._source):
            for offset, number in enumerate(known):
                if self.expected(number)[0] == self.bad and not self._letters[number]:
                    self._missing("DLQ", partition, np.asarray([offset]), "is bad, and has no dead letter")

    def report(self) -> dict[str, Any]:
        """Counts by partition, and by invariant; all zero is exactly once."""
        gaps = Counter(partition for partition, _ in self.gaps)
        doubled: Counter[int] = Counter()
        for (partition, _), more in self.doubled.items():
            doubled[partition] += more
        return {
            "looks": self.looks,
            "files": len(self._added),
            "records": [len(numbers) for numbers in self._source],
            "GAP": [gaps[p] for p in range(self.partitions)],
            "DUPLICATE": [doubled[p] for p in range(self.partitions)],
            "MISMATCH": [self.wrong[p] for p in range(self.partitions)],
            "unknown": self.wrong[-1],
            "dead letters": len(self._letters),
            "dead letters more than once": self._letters.total() - len(self._letters),
            **{name: self.broken[name] for name in INVARIANTS},
            "examples": self.examples,
        }

    def _missing(self, name: str, partition: int, offsets: np.ndarray, why: str) -> None:
        for offset in offsets.tolist():
            if (partition, offset) not in self.gaps:
                self.gaps.add((partition, offset))
                self._break(name, f"offset {offset} of partition {partition} {why}")

    def _break(self, name: str, example: str) -> None:
        self.broken[name] += 1
        if self.broken[name] <= _EXAMPLES:
            self.examples.append(f"{name}: {example}")


def harm(report: Mapping[str, Any]) -> dict[str, int]:
    """The numbers of a report that make a verdict red, under the names that all campaigns give them."""
    return {
        "lost": sum(report["GAP"]),
        "doubled": sum(report["DUPLICATE"]),
        "resurrected": report.get("resurrected", 0),
        "wrong": sum(report["MISMATCH"]) + report["unknown"],
        "invariants": sum(report[name] for name in INVARIANTS),
    }
