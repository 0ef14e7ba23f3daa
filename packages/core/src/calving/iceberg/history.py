"""The snapshots of a branch: the heads that it has had, one after the other, and those that a rollback has removed.

Looks at tables between commits note in the table's properties what a rollback has removed (R2a).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import ManifestFile
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from calving.errors import TableTroubleError, UnansweredRollbackError
from calving.iceberg.catalog import find_table
from calving.iceberg.manifests import read_entries, read_manifest_list, read_parent
from calving.model.backfills import BEGIN_ANOTHER, is_backfill
from calving.model.events import TableId
from calving.model.offsets import less
from calving.model.tables import OnRollback, SnapshotPlace
from calving.protocol.ledger import Ledger
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.ledger_updates import looked
from calving.protocol.restored import restored_by
from calving.protocol.rollback import Ancestor, Line, RolledBack

_MOST_VERSIONS = 20
"""How many earlier versions of the metadata are read, at most, to find an expired snapshot."""
log = logging.getLogger(__name__)


def ancestors(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """The snapshots of a branch, head first, as far as they have not expired. If damaged metadata call a snapshot its
    own ancestor, they end there.
    """
    by_id = {s.snapshot_id: s for s in metadata.snapshots}  # metadata.snapshot_by_id is a linear search
    ref = metadata.refs.get(branch)
    snapshot = by_id.pop(ref.snapshot_id, None) if ref else None
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = by_id.pop(parent, None) if parent is not None else None


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    # The property ``additional_properties`` is slow, and a commit may look at hundreds of snapshots.
    private = snapshot.summary.__pydantic_private__ if snapshot.summary is not None else None
    return private["_additional_properties"] if private is not None else {}


def whole_number(properties: Mapping[str, str], name: str, default: int) -> int:
    """:raises TableTroubleError: the property is no number."""
    try:
        return int(properties.get(name, default))
    except ValueError as error:
        raise TableTroubleError(f"the table's property {name} = {properties[name]} is not a whole number") from error


def line_of(table: Table, branch: str) -> Line:
    """The snapshots of a branch, for the decision whether it was rolled back."""
    metadata = table.metadata
    return Line(
        snapshots=_Snapshots(metadata, branch),
        heads=partial(_heads, metadata, branch),
        is_earlier=_Order(metadata).is_earlier,
        parent_of=partial(_parent_of, table),
        expired=_Expired(table).find,
        has_files_of=partial(_has_files_of, table, branch),
        snapshot=_ById(metadata).find,
        taken_over=_TakenOver(metadata).find,
    )


class _Snapshots:
    """The branch is walked once, as far as anybody asks: a ledger is read several times from one line."""

    def __init__(self, metadata: TableMetadata, branch: str) -> None:
        self._walked: list[Ancestor] = []
        self._left = map(_ancestor, ancestors(metadata, branch))

    def __iter__(self) -> Iterator[Ancestor]:
        for place in count():
            if place == len(self._walked):
                ancestor = next(self._left, None)
                if ancestor is None:
                    return
                self._walked.append(ancestor)
            yield self._walked[place]


def _ancestor(snapshot: Snapshot) -> Ancestor:
    return Ancestor(place_of(snapshot), snapshot.parent_snapshot_id, summary_of(snapshot))


def place_of(snapshot: Snapshot) -> SnapshotPlace:
    return SnapshotPlace(snapshot.snapshot_id, snapshot.sequence_number or 0)


def place_added(updates: Iterable[TableUpdate]) -> SnapshotPlace:
    """The last snapshot that these updates add."""
    return [place_of(update.snapshot) for update in updates if isinstance(update, AddSnapshotUpdate)][-1]


@dataclass(frozen=True)
class _ById:
    """All snapshots of a table. The metadata's own search is linear, and walks ask for thousands of them."""

    metadata: TableMetadata

    @cached_property
    def _snapshots(self) -> Mapping[int, Snapshot]:
        return {each.snapshot_id: each for each in self.metadata.snapshots}

    def find(self, snapshot_id: int) -> Ancestor | None:
        snapshot = self._snapshots.get(snapshot_id)
        return _ancestor(snapshot) if snapshot is not None else None


@dataclass(frozen=True)
class _TakenOver:
    """The snapshots that restorations have removed from a table."""

    metadata: TableMetadata

    @cached_property
    def _snapshots(self) -> Mapping[int, Ancestor]:
        return {each.place.id: each for each in taken_over(self.metadata)}

    def find(self, snapshot_id: int) -> Ancestor | None:
        return self._snapshots.get(snapshot_id)


def taken_over(metadata: TableMetadata) -> Iterator[Ancestor]:
    """The snapshots that restorations have removed from a table, as far as its snapshots name them.

    :raises TableTroubleError: a summary is not what calving writes.
    """
    for snapshot in metadata.snapshots:
        yield from restored_by(summary_of(snapshot))


def _heads(metadata: TableMetadata, branch: str) -> Iterator[Ancestor]:
    """The snapshot log names the heads of main only."""
    if branch == MAIN_BRANCH:
        by_id = {s.snapshot_id: s for s in metadata.snapshots}
        for entry in reversed(metadata.snapshot_log):
            if entry.snapshot_id in by_id:
                yield _ancestor(by_id[entry.snapshot_id])


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of snapshots. Tables of format version 1 have no sequence numbers: there the snapshot log tells which
    of two snapshots became a head first, if it has both.
    """

    _metadata: TableMetadata

    def is_earlier(self, snapshot: SnapshotPlace, other: SnapshotPlace) -> bool:
        if self._metadata.format_version > 1:
            return snapshot.number < other.number
        heads = [entry.snapshot_id for entry in self._metadata.snapshot_log]
        return snapshot.id in heads and other.id in heads and heads.index(snapshot.id) < heads.index(other.id)


def _manifests(table: Table, snapshot_id: int | None) -> list[ManifestFile]:
    snapshot = table.metadata.snapshot_by_id(snapshot_id) if snapshot_id is not None else None
    return read_manifest_list(table.io, snapshot.manifest_list) if snapshot is not None else []


def _parent_of(table: Table, place: SnapshotPlace) -> int | None:
    snapshot = table.metadata.snapshot_by_id(place.id)
    return read_parent(table.io, snapshot.manifest_list) if snapshot is not None else None


class _Expired:
    """The snapshots in earlier versions of a table's metadata, the newest versions first."""

    def __init__(self, table: Table) -> None:
        self._io = table.io
        self._files = [entry.metadata_file for entry in table.metadata.metadata_log][-_MOST_VERSIONS:]
        self._known: dict[int, Ancestor] = {}

    def find(self, snapshot_id: int) -> Ancestor | None:
        while snapshot_id not in self._known and self._files:
            with suppress(Exception):  # a version that is deleted, or cannot be read here, tells nothing
                metadata = FromInputFile.table_metadata(self._io.new_input(self._files.pop()))
                self._known = {s.snapshot_id: _ancestor(s) for s in metadata.snapshots} | self._known
        return self._known.get(snapshot_id)


def _has_files_of(table: Table, branch: str, place: SnapshotPlace) -> bool:
    """Whether the head has a manifest of a snapshot, or a live file with its id or its sequence number. A compaction
    keeps the sequence number.
    """
    ref = table.metadata.refs.get(branch)
    manifests = _manifests(table, ref.snapshot_id if ref is not None else None)
    if any(manifest.added_snapshot_id == place.id for manifest in manifests):
        return True
    number = place.number
    return any(
        entry.snapshot_id == place.id or (number and entry.sequence_number == number)
        for manifest in manifests
        if not number or (manifest.min_sequence_number or 0) <= number <= (manifest.sequence_number or number)
        for entry in read_entries(table.io, manifest)
    )


def look(catalog: Catalog, table: TableId, key: LedgerKey) -> Ledger | None:
    """The ledger of a table that nobody commits to now; None if there is no such table or branch.

    If the table's properties do not say yet what a rollback has removed, they are set, so that a later expiry of
    snapshots does not hide it. Another commit at the same time may prevent this: then the next look does it.

    :raises UnavailableError: the catalog gives no clear answer.
    """
    loaded = find_table(catalog, table)
    if loaded is None or (key.branch != "main" and key.branch not in loaded.metadata.refs):
        return None
    line, properties = line_of(loaded, key.branch), loaded.metadata.properties
    ledger = key.read(line, properties)
    changes = looked(key, line, properties)
    if changes:
        log_rollback(table, key, ledger, properties)
        try:
            loaded._do_commit((SetPropertiesUpdate(updates=changes),), head_guards(loaded, key.branch))
        except CommitFailedException as error:
            log.info("table %s: someone else committed while it was looked at: %s", ".".join(table), error)
    return ledger


def head_guards(table: Table, branch: str) -> tuple[TableRequirement, ...]:
    """The requirements of a commit that holds only for the head that the branch has now."""
    head = table.metadata.refs.get(branch)
    return (
        AssertRefSnapshotId(ref=branch, snapshot_id=head.snapshot_id if head is not None else None),
        AssertTableUUID(uuid=table.metadata.table_uuid),
    )


def mind_rollback(
    table: TableId, key: LedgerKey, ledger: Ledger, properties: Mapping[str, str], policy: OnRollback
) -> None:
    """Log a rollback, once, before a commit to the table. ``ledger``: as it was read from the table.

    :raises UnansweredRollbackError: the policy is to commit nothing until somebody has answered (R6).
    """
    rollback = RolledBack.of(ledger.unanswered, ledger.doubt)
    if rollback is not None and rollback.stops(policy):
        raise UnansweredRollbackError(f"{_text(rollback, table, key)}; until then the table takes nothing")
    log_rollback(table, key, ledger, properties)


def log_rollback(table: TableId, key: LedgerKey, ledger: Ledger, properties: Mapping[str, str]) -> None:
    """Log a rollback that the table's properties do not tell yet. ``ledger``: as it was read from the table."""
    newly = less(ledger.gone, key.known_to_be_gone(properties))
    doubt = ledger.doubt if ledger.doubt != key.doubt(properties) else None
    if (rollback := RolledBack.of(newly, doubt)) is not None:
        log.error("%s", _text(rollback, table, key))


def _text(rollback: RolledBack, table: TableId, key: LedgerKey) -> str:
    return rollback.text(".".join(table), answer=BEGIN_ANOTHER if is_backfill(key.group) else None)


def log_new_branch(table: TableId, key: LedgerKey, properties: Mapping[str, str]) -> None:
    """Log that the sink's branch is made from main. Rows may be gone if the sink has committed to it before."""
    name = ".".join(table)
    if key.of_table(key.offsets) in properties:
        log.warning(
            "table %s: branch %s was dropped, and is made anew from main: rows that were in it alone are gone. To have"
            " them, stop the sink, and create the branch at the last snapshot that it had",
            name,
            key.branch,
        )
    else:
        log.info("table %s: branch %s is made from main", name, key.branch)


@dataclass(frozen=True)
class LoadedTable:
    """A table as loaded at one moment."""

    table: Table
    branch: str

    @property
    def properties(self) -> Mapping[str, str]:
        return self.table.metadata.properties

    @cached_property
    def line(self) -> Line:
        return line_of(self.table, self._shown)

    @property
    def ancestry(self) -> Iterator[Mapping[str, str]]:
        """The summaries of the branch's snapshots, head first."""
        return map(summary_of, ancestors(self.table.metadata, self._shown))

    @property
    def _shown(self) -> str:
        """A branch that is not there will be made from main."""
        return self.branch if self.branch in self.table.metadata.refs else "main"
