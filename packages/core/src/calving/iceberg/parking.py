"""Parks commits of a table that does not take its files, as files beside these, and brings them back in order.

A parked commit holds everything that the commit would have been made of. So parked commits that are made later, one
after the other, make the ledger that they would have made at their time. Each file names the one before it, and never
changes: whoever knows the last one finds all.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io

from calving.errors import CalvingError
from calving.model.coverage import Coverage, decode_coverage, encode_coverage, merged
from calving.model.events import DataWritten, Envelope, Parked, Place, TableId, TableMark
from calving.model.offsets import ControlOffsets, Span, furthest
from calving.protocol.ledger import Reach
from calving.wire.codec import Message, decode, encode

_TOGETHER = 2_000
"""Entries of several parked commits that become one."""


class Storage(Protocol):
    """Where the files of tables are."""

    def write(self, table: TableId, location: str, data: bytes) -> None: ...

    def read(self, table: TableId, location: str) -> bytes: ...

    def delete(self, table: TableId, location: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ParkedCommit:
    entries: tuple[Envelope, ...]
    read: ControlOffsets
    reach: Reach
    files: tuple[str, ...] = field(default=(), compare=False)
    """The files that it was read from."""

    def can_join(self, later: ParkedCommit) -> bool:
        """Offsets that have restarted in between are others, and need a commit of their own."""
        return self.reach.restarted == later.reach.restarted and len(self.entries) < _TOGETHER

    def joined(self, later: ParkedCommit) -> ParkedCommit:
        """Both as one. Another coordinator, which had read less, may have made ``later``."""
        a, b = self.reach, later.reach
        since = {p: min(a.since.get(p, 0), b.since.get(p, 0)) for p in {*a.since, *b.since}}
        reach = Reach(_union(a.covered, b.covered), _union(a.settled, b.settled), a.restarted, since)
        files = (*self.files, *later.files)
        return ParkedCommit((*self.entries, *later.entries), furthest(self.read, later.read), reach, files)


class Parking:
    """Of one coordinator. ``fresh`` gives names that nobody has given to anything."""

    def __init__(self, storage: Storage, fresh: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._storage, self._fresh = storage, fresh
        self._before: dict[str, str | None] = {}
        """Of each file that is known the one before it."""
        self._served: dict[TableId, set[str]] = {}
        """Files that nobody needs once no CommitComplete names them."""
        self._made: dict[TableId, set[str]] = {}
        """Files whose commits this coordinator has made."""
        self._marks: dict[TableId, TableMark] = {}
        """The tables after the last of them."""

    def park(self, table: TableId, commit: ParkedCommit, before: Parked | None) -> str:
        """Park a commit behind those before; its file.

        :raises Exception: whatever a storage raises; nothing is lost by it.
        """
        last = before.last if before is not None else None
        directory = (last or _first_file(commit.entries)).rpartition("/")[0]
        location = f"{directory}/calving-parked-{self._fresh()}.json.z"
        self._storage.write(table, location, _to_bytes(commit, last))
        self._before[location] = last
        return location

    def commits(self, table: TableId, parked: Parked) -> Iterator[ParkedCommit]:
        """What is parked and was not ``made`` yet, the oldest first.

        An attempt that takes long goes on where the last one was. A new coordinator begins at the oldest file, as only
        the table can tell what others have made.
        """
        together: ParkedCommit | None = None
        made = self._made.get(table, set())
        for location in [location for location in self._files(table, parked) if location not in made]:
            commit = self._read(table, location)
            if together is not None and not together.can_join(commit):
                yield together
                together = None
            together = commit if together is None else together.joined(commit)
        if together is not None:
            yield together

    def without(self, table: TableId, parked: Parked, places: Collection[Place]) -> Parked | None:
        """What is parked for a table, but for the entries at ``places``, in files of its own; None if that is nothing.

        :raises Exception: whatever a storage raises; nothing is lost by it.
        """
        left: Parked | None = None
        for commit in self.commits(table, parked):
            if entries := tuple(entry for entry in commit.entries if entry.place not in places):
                last = self.park(table, replace(commit, entries=entries), left)
                left = Parked(last, len(entries) + (left.entries if left else 0), parked.waiting)
        return left

    def made(self, table: TableId, commit: ParkedCommit, mark: TableMark | None) -> None:
        """The commit is in the table, which is at ``mark``. Without a sequence number nobody could see it go back."""
        if mark is not None and mark.sequence:
            self._made.setdefault(table, set()).update(commit.files)
            self._marks[table] = mark

    def mark(self, table: TableId, seen: TableMark | None) -> TableMark | None:
        """How far the table was when it was last seen, by the coordinator or by an attempt that nobody waited for."""
        made = self._marks.get(table)
        if made is None or (seen is not None and seen.uuid == made.uuid and seen.sequence > made.sequence):
            return seen
        return made

    def served(self, table: TableId, parked: Parked) -> None:
        """All of it is in the table."""
        self._served.setdefault(table, set()).update(self._files(table, parked))

    def clear(self, table: TableId, named: Parked | None) -> None:
        """Delete what has served, but for what the last CommitComplete has ``named``."""
        if named is None:
            self._made.pop(table, None)
            self._marks.pop(table, None)
        if not self._served.get(table):
            return
        kept = set(self._files(table, named)) if named is not None else set()
        for location in self._served[table] - kept:
            self._served[table].discard(location)
            self._before.pop(location, None)
            with suppress(Exception):  # it is in nobody's way, and remove_orphan_files finds it
                self._storage.delete(table, location)

    def _files(self, table: TableId, parked: Parked) -> list[str]:
        """The oldest first."""
        found: list[str] = []
        location: str | None = parked.last
        while location is not None:
            found.append(location)
            if location not in self._before:
                self._read(table, location)
            location = self._before[location]
        return found[::-1]

    def _read(self, table: TableId, location: str) -> ParkedCommit:
        commit, self._before[location] = _from_bytes(self._storage.read(table, location), location)
        return commit


class CatalogStorage:
    """The storage that the tables are in, with the means of the table where it can be loaded."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def _io(self, table: TableId, location: str) -> FileIO:
        try:
            return self._catalog.load_table(table).io
        except Exception:  # that may be why a commit is parked
            return load_file_io(dict(self._catalog.properties), location)

    def write(self, table: TableId, location: str, data: bytes) -> None:
        with self._io(table, location).new_output(location).create() as out:
            out.write(data)

    def read(self, table: TableId, location: str) -> bytes:
        with self._io(table, location).new_input(location).open() as found:
            return bytes(found.read())

    def delete(self, table: TableId, location: str) -> None:
        self._io(table, location).delete(location)


def _union(a: Coverage, b: Coverage) -> Coverage:
    return {tp: merged((*a.get(tp, ()), *b.get(tp, ()))) for tp in {**a, **b}}


def _first_file(entries: Sequence[Envelope]) -> str:
    for entry in entries:
        if isinstance(entry.event, DataWritten):
            for file in (*entry.event.data_files, *entry.event.delete_files):
                return file.file_path
    raise CalvingError("there are no files")


def _to_bytes(commit: ParkedCommit, before: str | None) -> bytes:
    reach = commit.reach
    said = {
        "before": before,
        "read": commit.read,
        "covered": encode_coverage(reach.covered),
        "settled": encode_coverage(reach.settled),
        "restarted": encode_coverage({tp: (Span(0, 0),) for tp in reach.restarted}),
        "since": reach.since,
        "entries": [
            [e.partition, e.offset, encode_coverage(e.spans), base64.b64encode(_value(e)).decode()]
            for e in commit.entries
        ],
    }
    return zlib.compress(json.dumps(said, separators=(",", ":")).encode())


def _value(entry: Envelope) -> bytes:
    return encode(Message(UUID(int=0), 0, "", entry.event))


def _from_bytes(data: bytes, location: str) -> tuple[ParkedCommit, str | None]:
    said: dict[str, Any] = json.loads(zlib.decompress(data))
    entries = tuple(
        Envelope(partition, offset, decode(base64.b64decode(value)).event, decode_coverage(spans))
        for partition, offset, spans, value in said["entries"]
    )
    reach = Reach(
        decode_coverage(said["covered"]),
        decode_coverage(said["settled"]),
        frozenset(decode_coverage(said["restarted"])),
        _control(said["since"]),
    )
    return ParkedCommit(entries, _control(said["read"]), reach, (location,)), said["before"]


def _control(said: dict[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in said.items()}
