"""Parks commits of a failing table in files beside its data files, and reads them back in order.

A parked commit holds all inputs of the commit. So commits that are made later, in order, write the same ledgers. Each
file names the previous file and never changes, so all files can be found from the last one.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.io import FileIO, load_file_io

from calving.errors import ProtocolError, TableTroubleError
from calving.iceberg.locations import ALLOWED, OWN_LOCATIONS, FileRules
from calving.model.events import DataWritten, Envelope, Parked, Place, TableId
from calving.model.files import is_below_any
from calving.model.marks import TableMark
from calving.model.offsets import (
    ControlOffsets,
    Coverage,
    TopicPartition,
    as_offset,
    decode_coverage,
    decode_covered,
    decode_places,
    encode_coverage,
    encode_covered,
    encode_places,
    furthest,
    union,
)
from calving.protocol.ledger import NO_LEDGER, SourceProgress
from calving.protocol.order import ordered
from calving.wire.codec import Message, decode, encode

_TOGETHER = 2_000
"""The most entries of parked commits that are joined into one commit."""
_MOST_BYTES = 256 * 1024 * 1024
"""The most bytes of a parked commit, not compressed. A larger one is not parked."""
_MOST_PARTS = 5_000_000
"""The most lists, objects and members in it. Each takes some 60 bytes of memory, however short its text is."""
_NAME = re.compile(r"calving-parked-[0-9A-Za-z]+\.json\.z")


class Storage(Protocol):
    """Access to the storage of tables."""

    def write(self, table: TableId, location: str, data: bytes) -> None: ...

    def read(self, table: TableId, location: str) -> bytes: ...

    def delete(self, table: TableId, location: str) -> None: ...


@dataclass(frozen=True, slots=True)
class ParkedCommit:
    """A commit that a failing table could not take: the table's ``entries``, the control offsets up to which the
    coordinator had ``read`` the log, and what it knew of the source then. Parked commits come first, in their order.
    """

    entries: tuple[Envelope, ...]
    read: ControlOffsets
    progress: SourceProgress
    files: tuple[str, ...] = field(default=(), compare=False)
    """The files of this commit."""

    def can_join(self, later: ParkedCommit) -> bool:
        """Whether ``later`` can be joined. It cannot be joined if offsets have restarted in between."""
        return self.progress.restarted == later.progress.restarted and len(self.entries) < _TOGETHER

    @property
    def changes_rows(self) -> bool:
        """Whether entries delete rows, or are of workers whose settings do: then their order counts."""
        return any(e.ordered or (isinstance(e.event, DataWritten) and e.event.delete_files) for e in self.entries)

    def in_order(self) -> tuple[ParkedCommit, tuple[Envelope, ...]]:
        """For a mutation table: a commit of the entries that wait for no earlier records, whatever the table holds, so
        that none is held back (G1) when it is made later; and the others, which stay buffered until theirs are heard.
        """
        admitted = ordered(self.entries, self.read, self.progress, NO_LEDGER)
        progress = replace(self.progress, covered=admitted.covered)
        return replace(self, entries=admitted.entries, read=admitted.control, progress=progress), admitted.held_back

    def judged_by(self, restarted: Mapping[TopicPartition, Place]) -> ParkedCommit:
        """This commit, given the restarts that are known now.

        A restart in another partition of the control log, which its coordinator had not read, may have come before some
        of its entries. Its coverage of that source partition may mix offsets from before and after, and is dropped, as
        a coordinator drops its own. In a control log of one partition all entries came before the restart.
        """
        new = {
            tp: place
            for tp, place in restarted.items()
            if self.progress.restarted.get(tp) != place and self.read.keys() != {place[0]}
        }
        if not new:
            return self
        progress = replace(
            self.progress,
            covered=_except(self.progress.covered, new),
            settled=_except(self.progress.settled, new),
            restarted={**self.progress.restarted, **new},
        )
        return replace(self, progress=progress)

    def joined(self, later: ParkedCommit) -> ParkedCommit:
        """Both commits as one. Another coordinator, which had read less of the log, may have parked ``later``."""
        a, b = self.progress, later.progress
        since = {p: min(a.since.get(p, 0), b.since.get(p, 0)) for p in {*a.since, *b.since}}
        progress = SourceProgress(union(a.covered, b.covered), union(a.settled, b.settled), a.restarted, since)
        files = (*self.files, *later.files)
        return ParkedCommit((*self.entries, *later.entries), furthest(self.read, later.read), progress, files)


class Parking:
    """The parked commits of one coordinator. ``fresh`` makes unique names."""

    def __init__(self, storage: Storage, fresh: Callable[[], str] = lambda: uuid4().hex) -> None:
        self._storage, self._fresh = storage, fresh
        self._before: dict[str, str | None] = {}
        """The previous file of each known file."""
        self._served: dict[TableId, set[str]] = {}
        """Files that can be deleted once no CommitComplete names them."""
        self._made: dict[TableId, set[str]] = {}
        """Files whose commits this coordinator has made."""
        self._marks: dict[TableId, TableMark] = {}
        """The mark of each table after the last commit that this coordinator has made."""

    def park(self, table: TableId, commit: ParkedCommit, before: Parked | None, folder: str | None = None) -> str:
        """Park a commit after the earlier ones; returns its file. ``folder``: where the table's files are, if it is
        known. Entries may name files elsewhere.

        :raises Exception: whatever the storage raises; nothing is lost.
        """
        last = before.last if before is not None else None
        directory = folder or (last or _first_file(commit.entries)).rpartition("/")[0]
        location = f"{directory}/calving-parked-{self._fresh()}.json.z"
        self._storage.write(table, location, _to_bytes(commit, last))
        self._before[location] = last
        return location

    def commits(self, table: TableId, parked: Parked) -> Iterator[ParkedCommit]:
        """The parked commits that are not ``made`` yet, the oldest first.

        A further attempt continues after the last commit that was made. A new coordinator starts at the oldest file,
        because only the table's ledger tells which commits other coordinators have made.
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
        """Parked commits of a table without the entries at ``places``, in new files; None if no entries are left.

        :raises Exception: whatever the storage raises; nothing is lost.
        """
        left: Parked | None = None
        for commit in self.commits(table, parked):
            if entries := tuple(entry for entry in commit.entries if entry.place not in places):
                last = self.park(table, replace(commit, entries=entries), left)
                left = Parked(last, len(entries) + (left.entries if left else 0), parked.waiting)
        return left

    def made(self, table: TableId, commit: ParkedCommit, mark: TableMark | None) -> None:
        """The commit has landed, and the table is at ``mark``. The mark is needed to detect an older state of the
        table.
        """
        if mark is not None and mark.sequence:
            self._made.setdefault(table, set()).update(commit.files)
            self._marks[table] = mark

    def mark(self, table: TableId, seen: TableMark | None) -> TableMark | None:
        """The highest mark of the table, from the coordinator or from an attempt in the background."""
        made = self._marks.get(table)
        return seen if made is None or made.is_older_than(seen) else made

    def served(self, table: TableId, parked: Parked) -> None:
        """All parked commits have landed."""
        self._served.setdefault(table, set()).update(self._files(table, parked))

    def clear(self, table: TableId, named: Parked | None) -> None:
        """Delete files that are no longer needed, except those that the last CommitComplete has ``named``."""
        if named is None:
            self._made.pop(table, None)
            self._marks.pop(table, None)
        if not self._served.get(table):
            return
        kept = set(self._files(table, named)) if named is not None else set()
        for location in self._served[table] - kept:
            self._served[table].discard(location)
            self._before.pop(location, None)
            with suppress(Exception):  # the file does no harm, and remove_orphan_files finds it
                self._storage.delete(table, location)

    def _files(self, table: TableId, parked: Parked) -> list[str]:
        """The files, the oldest first."""
        locations: dict[str, None] = {}
        location: str | None = parked.last
        while location is not None:
            if location in locations:
                raise _unreadable(table, location, "the files before it lead back to it")
            locations[location] = None
            if location not in self._before:
                self._read(table, location)
            location = self._before[location]
        return [*locations][::-1]

    def _read(self, table: TableId, location: str) -> ParkedCommit:
        if _NAME.fullmatch(location.rpartition("/")[2]) is None:
            raise _unreadable(table, location, "no parked commit has such a name")
        data = self._storage.read(table, location)
        try:
            commit, before = _from_bytes(data, location)
            if not all(isinstance(e.event, DataWritten) and e.event.table.identifier == table for e in commit.entries):
                raise ValueError("it has entries for another table")
        except Exception as error:  # whatever is in it, or whoever wrote it
            raise _unreadable(table, location, f"{type(error).__name__}: {error}") from error
        self._before[location] = before
        return commit


class CatalogStorage:
    """The tables' storage, with the FileIO of the table if it can be loaded. If not, files are read and deleted only
    below the catalog's warehouse and the allowed locations: whoever writes the control log may name any file.
    """

    def __init__(self, catalog: Catalog, files: FileRules = OWN_LOCATIONS) -> None:
        self._catalog, self._files = catalog, files

    def _io(self, table: TableId, location: str, *, written: bool = False) -> FileIO:
        """``written``: the file is a new one of this sink.

        :raises TableTroubleError: the file is not at a place of the table.
        """
        try:
            loaded = self._catalog.load_table(table)
        except Exception as error:  # the reason why the commit is parked, perhaps
            known = (*self._files.allowed, *filter(None, [self._catalog.properties.get("warehouse")]))
            if not written and not is_below_any(location, known):
                why = f"the table cannot be loaded, and the file is below neither the catalog's warehouse nor {ALLOWED}"
                raise _unreadable(table, location, why) from error
            return load_file_io(dict(self._catalog.properties), location)
        if self._files.outside(loaded, [location]):
            raise _unreadable(table, location, f"it is outside the table's location {loaded.metadata.location}")
        return loaded.io

    def write(self, table: TableId, location: str, data: bytes) -> None:
        with self._io(table, location, written=True).new_output(location).create() as out:
            out.write(data)

    def read(self, table: TableId, location: str) -> bytes:
        with self._io(table, location).new_input(location).open() as file:
            return bytes(file.read(_MOST_BYTES + 1))

    def delete(self, table: TableId, location: str) -> None:
        self._io(table, location).delete(location)


def _except(coverage: Coverage, partitions: Collection[TopicPartition]) -> Coverage:
    return {tp: spans for tp, spans in coverage.items() if tp not in partitions}


def _first_file(entries: Sequence[Envelope]) -> str:
    for event in (entry.event for entry in entries if isinstance(entry.event, DataWritten)):
        for file in event.files:
            return file.file_path
    raise ProtocolError("a commit without files is never parked")


def _unreadable(table: TableId, location: str, why: str) -> TableTroubleError:
    return TableTroubleError(
        f"table {'.'.join(table)}: the file {location} of parked commits, which the control log names, is not used:"
        f" {why}; restore the file, or stop all workers and run `calving recover FILE`, which reads the records again"
    )


def _to_bytes(commit: ParkedCommit, before: str | None) -> bytes:
    progress = commit.progress
    said = {
        "before": before,
        "read": commit.read,
        "covered": encode_coverage(progress.covered),
        "settled": encode_coverage(progress.settled),
        "restarted": encode_places(progress.restarted),
        "since": progress.since,
        "entries": [[e.partition, e.offset, encode_covered(e.spans, e.restarted), _value(e)] for e in commit.entries],
        "versions": [e.writer for e in commit.entries],
        "branches": [e.branch for e in commit.entries],
    }
    text = json.dumps(said, separators=(",", ":")).encode()
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{len(text):,} bytes are more than {_MOST_BYTES:,}")
    _check_parts(text)
    return zlib.compress(text)


def _value(entry: Envelope) -> str:
    return base64.b64encode(encode(Message(UUID(int=0), 0, "", entry.event))).decode()


def _check_parts(text: bytes) -> None:
    if (parts := sum(map(text.count, (b"[", b"{", b",")))) > _MOST_PARTS:
        raise ValueError(f"it has {parts:,} lists, objects and members, more than {_MOST_PARTS:,}")


def _from_bytes(data: bytes, location: str) -> tuple[ParkedCommit, str | None]:
    reader = zlib.decompressobj()
    text = reader.decompress(data, _MOST_BYTES)
    if not reader.eof:
        raise ValueError(f"it is cut off, or holds more than {_MOST_BYTES:,} bytes")
    _check_parts(text)
    said: dict[str, Any] = json.loads(text)
    before = said["before"]
    if before is not None and not isinstance(before, str):
        raise TypeError("the file before it is no text")
    columns = (said.get(name) or [None] * len(said["entries"]) for name in ("versions", "branches"))
    entries = tuple(_entry(*each) for each in zip(said["entries"], *columns, strict=True))
    covered, settled = decode_coverage(said["covered"]), decode_coverage(said["settled"])
    progress = SourceProgress(covered, settled, decode_places(said["restarted"]), _control(said["since"]))
    return ParkedCommit(entries, _control(said["read"]), progress, (location,)), before


def _entry(said: tuple[int, int, str, str], writer: str | None, branch: str | None) -> Envelope:
    partition, offset, spans, value = said
    (covered, restarted), event = decode_covered(spans), decode(base64.b64decode(value)).event
    if not isinstance(writer, str | None) or not isinstance(branch, str | None):
        raise TypeError("a version or a branch is no text")
    place = as_offset(partition), as_offset(offset)
    return Envelope(*place, event, covered, restarted=restarted, writer=writer, branch=branch)


def _control(said: dict[str, int]) -> dict[int, int]:
    return {int(partition): as_offset(offset) for partition, offset in said.items()}
