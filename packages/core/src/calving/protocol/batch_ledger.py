"""What Spark's jobs have written: the last batch of each query (S5), and the writes that have an id (S10).

An entry stands in the summary of the snapshot that it describes, and in the same commit in a table property, which
names that snapshot. So it stays true when the snapshot expires, and a rollback of the branch is noticed. Later
snapshots of calving repeat the entries of queries; those of writes, of which there may be many, are properties alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

from calving.errors import ConfigError, TableTroubleError
from calving.model.tables import MAIN, SnapshotPlace
from calving.protocol.rollback import Ancestor, Line, Verdict, down_from, source_of, verdict

SPARK_BATCH = "calving.spark-batch."
"""Prefix of the entry of a query; the name of its sink follows."""
SPARK_WRITE = "calving.spark-write."
"""Prefix of the entry of a write that has an id; the id follows."""
MOST_ENTRIES = 1_000
"""The most entries of each kind that a table keeps, the last ones."""


class LastBatch(NamedTuple):
    """A batch of a query."""

    query: str
    batch: int


class LostBatches(NamedTuple):
    """What a rollback takes from a sink of Spark. ``last``: its last batch before. ``left``: the last one that stays;
    None if no snapshot that stays shows one.
    """

    sink: str
    last: LastBatch
    left: LastBatch | None


class _Stored(NamedTuple):
    """A table property: the entry, where its snapshot is, and when it was written, in milliseconds since 1970."""

    said: Mapping[str, object]
    place: SnapshotPlace
    at_ms: int


class BatchEntry(Protocol):
    """The entry of one commit."""

    @property
    def name(self) -> str:
        """The name of the summary's entry."""

    @property
    def branch(self) -> str:
        """The branch that gets the commit."""

    @property
    def text(self) -> str:
        """The summary's entry."""

    def is_held(self, line: Line, properties: Mapping[str, str]) -> bool:
        """Whether the branch has this commit.

        :raises ConfigError: the branch does not tell whether the commit would double rows.
        """

    def place(self, properties: Mapping[str, str]) -> SnapshotPlace | None:
        """The snapshot of this commit, which the branch has; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A micro-batch of a streaming query.

    ``continues``: whether rows may follow that another query has written, or that came before a rollback (S6).
    """

    table: str
    sink: str
    query: str
    batch: int
    branch: str = MAIN
    continues: bool = False

    @property
    def name(self) -> str:
        """As ``BatchEntry.name``."""
        return f"{SPARK_BATCH}{self.sink}"

    @property
    def text(self) -> str:
        """As ``BatchEntry.text``."""
        return json.dumps({"query": self.query, "batch": self.batch}, separators=(",", ":"))

    def is_held(self, line: Line, properties: Mapping[str, str]) -> bool:
        """As ``BatchEntry.is_held``."""
        last = self._last(line, properties)
        if last is None:
            return False
        if last.query == self.query:
            return self._repeats(last.batch)
        # With `continue`, the queries of two checkpoints may have written in turn.
        own = next((each for each in self._shown(line) if each.query == self.query), None)
        if own is not None and self._repeats(own.batch):
            return True
        if not self.continues:
            raise ConfigError(
                f"table {self.table}: sink {self.sink} was written by query {last.query}, up to batch {last.batch};"
                f" this is query {self.query} with batch {self.batch}: its checkpoint is new, or another query has the"
                " same sink. Give each query a sink of its own. If the checkpoint is new and the rows do not repeat,"
                " set on-new-checkpoint = continue"
            )
        return False

    def _repeats(self, last: int) -> bool:
        """Whether this is the last batch of the query again. Spark repeats only that one. A smaller id comes from an
        older checkpoint. Spark plans its offsets anew, so this batch may have other rows than the first one of its id.
        """
        if self.batch < last:
            raise ConfigError(
                f"table {self.table} holds batch {last} of query {self.query}, which sink {self.sink} has written; this"
                f" is batch {self.batch}: the checkpoint is older than the table, and rows that the table lacks may be"
                " among others. Start the query from a new checkpoint at the place that the table has reached, and set"
                " on-new-checkpoint = continue"
            )
        return self.batch == last

    def place(self, properties: Mapping[str, str]) -> SnapshotPlace | None:
        """As ``BatchEntry.place``."""
        stored = _stored(properties, _of_table(self))
        return stored.place if stored is not None and _batch(stored.said) == (self.query, self.batch) else None

    def _last(self, line: Line, properties: Mapping[str, str]) -> LastBatch | None:
        """The last batch of the sink that the branch holds."""
        shown = next(self._shown(line), None)
        stored = _stored(properties, _of_table(self))
        if stored is None or _batch(stored.said) == shown:
            return shown
        last, told = _batch(stored.said), verdict(line, stored.place)
        # Later snapshots repeat the entry. So if the branch shows another one, it went back, whatever has expired.
        if told is Verdict.INTACT or (told is Verdict.DOUBT and shown is None):
            return last
        if not self.continues:
            raise ConfigError(
                f"table {self.table} was rolled back: it does not hold batch {last.batch} of query {last.query}, which"
                f" sink {self.sink} had written; this is batch {self.batch} of query {self.query}. To do without the"
                " rows that are gone, set on-new-checkpoint = continue. To have them again, start the query from a new"
                " checkpoint at the place to which the table went back, and set it, too"
            )
        return shown

    def _shown(self, line: Line) -> Iterator[LastBatch]:
        """The sink's entries in the snapshots of the branch, newest first, and those that cherry-picks brought back."""
        picks: list[Ancestor] = []
        for snapshot in line.snapshots:
            if self.name not in snapshot.summary:
                picks.append(snapshot)
                continue
            entry = self._entry(snapshot)
            yield from self._brought(line, picks, entry)
            picks = []
            yield entry
        yield from self._brought(line, picks, None)

    def _entry(self, snapshot: Ancestor) -> LastBatch:
        return _batch(_read(self.name, snapshot.summary[self.name]))

    def _brought(self, line: Line, picks: Sequence[Ancestor], below: LastBatch | None) -> Iterator[LastBatch]:
        """The batches of the sources of cherry-picks, newest first, as far as none before them is missing. ``picks``:
        snapshots without an entry, newest first. ``below``: the entry below them.
        """
        found: list[LastBatch] = []
        for source in reversed([*_sources(line, picks)]):
            if self.name in source.summary and self._before(line, source) == below != self._entry(source):
                below = self._entry(source)
                found.append(below)
        yield from reversed(found)

    def _before(self, line: Line, source: Ancestor) -> LastBatch | None:
        """The entry before that of a snapshot; the snapshot's own one if what is below it has expired."""
        for snapshot in down_from(line, source.parent):
            if snapshot is None:
                return self._entry(source)
            if self.name in snapshot.summary:
                return self._entry(snapshot)
        return None


@dataclass(frozen=True, slots=True)
class OneWrite:
    """A write of a batch job with an id, which is made once."""

    id: str
    branch: str = MAIN

    @property
    def name(self) -> str:
        """As ``BatchEntry.name``."""
        return f"{SPARK_WRITE}{self.id}"

    @property
    def text(self) -> str:
        """As ``BatchEntry.text``."""
        return "{}"

    def is_held(self, line: Line, properties: Mapping[str, str]) -> bool:
        """As ``BatchEntry.is_held``."""
        if any(self.name in snapshot.summary for snapshot in chain(line.snapshots, _sources(line, line.snapshots))):
            return True
        stored = _stored(properties, _of_table(self))
        return stored is not None and verdict(line, stored.place) is not Verdict.ROLLED_BACK

    def place(self, properties: Mapping[str, str]) -> SnapshotPlace | None:
        """As ``BatchEntry.place``."""
        stored = _stored(properties, _of_table(self))
        return stored.place if stored is not None else None


def _sources(line: Line, picks: Iterable[Ancestor]) -> Iterator[Ancestor]:
    """The sources of those of the snapshots that are cherry-picks, as far as they have not expired."""
    for pick in picks:
        source = source_of(pick)
        if source is not None and (found := line.snapshot(source)) is not None:
            yield found


def noted(entry: BatchEntry, place: SnapshotPlace, at_ms: int) -> dict[str, str]:
    """The table property to set in the commit that adds the snapshot ``place``."""
    said = {**json.loads(entry.text), "snapshot": str(place), "at": at_ms}
    return {_of_table(entry): json.dumps(said, separators=(",", ":"))}


def outdated(entry: BatchEntry, properties: Mapping[str, str]) -> list[str]:
    """The table properties that the commit of this entry removes: the oldest ones of its kind, if the table would have
    more than ``MOST_ENTRIES``. A damaged property stays, and its own query reports it.
    """
    prefix = SPARK_BATCH if entry.name.startswith(SPARK_BATCH) else SPARK_WRITE
    others = dict[str, int]()
    for name in properties:
        if name.startswith(prefix) and name != _of_table(entry):
            with suppress(TableTroubleError):
                others[name] = _time(properties, name)
    newest_first = sorted(others, key=lambda name: -others[name])
    return newest_first[MOST_ENTRIES - 1 :]


def repeated(summary: Mapping[str, str], dropped: Iterable[str] = ()) -> dict[str, str]:
    """The entries of queries in the summary of a head, which the summary of the next snapshot repeats. ``dropped``:
    table properties that go.
    """
    gone = frozenset(dropped)
    return {name: text for name, text in summary.items() if name.startswith(SPARK_BATCH) and name not in gone}


def lost_batches(leaving: Iterable[Mapping[str, str]], staying: Iterable[Mapping[str, str]]) -> list[LostBatches]:
    """The sinks of Spark that have batches in a branch before a rollback and not after it. Both: the summaries of
    snapshots, newest first. A damaged entry counts as none: it is the audit that finds it.
    """
    before, after = _last_entries(leaving), _last_entries(staying)
    lost = [LostBatches(sink, last, after.get(sink)) for sink, last in sorted(before.items())]
    return [each for each in lost if each.last != each.left]


def lost_writes(leaving: Iterable[Mapping[str, str]]) -> list[str]:
    """The ids of the writes that the snapshots of these summaries have made."""
    return sorted(
        {name.removeprefix(SPARK_WRITE) for summary in leaving for name in summary if name.startswith(SPARK_WRITE)}
    )


def _last_entries(summaries: Iterable[Mapping[str, str]]) -> dict[str, LastBatch]:
    """By sink."""
    found: dict[str, LastBatch] = {}
    for summary in summaries:
        for name, text in summary.items():
            if name.startswith(SPARK_BATCH):
                with suppress(TableTroubleError):
                    found.setdefault(name.removeprefix(SPARK_BATCH), _batch(_read(name, text)))
    return found


def _of_table(entry: BatchEntry) -> str:
    """The name of the table property: one for each branch, unlike that of a summary's entry."""
    return entry.name if entry.branch == MAIN else f"{entry.name}@{entry.branch}"


def _stored(properties: Mapping[str, str], name: str) -> _Stored | None:
    if name not in properties:
        return None
    said = _read(name, properties[name])
    try:
        place = SnapshotPlace.parse(str(said["snapshot"]))
        at_ms = int(str(said["at"]))
    except (KeyError, ValueError) as error:
        raise _damaged(name, properties[name]) from error
    if place is None:
        raise _damaged(name, properties[name])
    return _Stored(said, place, at_ms)


def _time(properties: Mapping[str, str], name: str) -> int:
    stored = _stored(properties, name)
    return stored.at_ms if stored is not None else 0


def _batch(said: Mapping[str, object]) -> LastBatch:
    try:
        return LastBatch(str(said["query"]), int(str(said["batch"])))
    except (KeyError, ValueError) as error:
        raise _damaged(SPARK_BATCH, json.dumps(said)) from error


def _read(name: str, text: str) -> Mapping[str, object]:
    try:
        said = json.loads(text)
    except ValueError as error:
        raise _damaged(name, text) from error
    if not isinstance(said, dict):
        raise _damaged(name, text)
    return said


def _damaged(name: str, text: str) -> TableTroubleError:
    return TableTroubleError(
        f"{name} = {text[:200]} is not what calving writes: somebody has changed it; restore it from an earlier version"
        " of the table's metadata"
    )
