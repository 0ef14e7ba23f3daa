"""Merges the manifests of one branch of a table: their entries stay as they are, each with its sequence numbers and row
ids, and files of neighbouring partitions come together (K18).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile, PartitionFieldSummary
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from calving.errors import CalvingError, CommitRefusedError, CommitUncertainError
from calving.iceberg.catalog import find_table
from calving.iceberg.history import whole_number
from calving.iceberg.lineage import new_snapshot
from calving.iceberg.live_files import partition_of
from calving.iceberg.maintenance import Maintenance, Turn, commit_refusal, without_turns
from calving.iceberg.manifest_writers import WritableSpec, write_entries
from calving.iceberg.manifests import (
    LIST_FIRST_ROW_ID,
    partition_sources,
    read_entries,
    read_manifest_list,
)
from calving.iceberg.snapshot import SinkSnapshot
from calving.maintenance.manifest_plan import ManifestGroup, ManifestState, manifest_groups, partition_order
from calving.model.events import TableId
from calving.protocol.ledger_key import LedgerKey
from calving.storage_errors import described

TARGET_BYTES = "commit.manifest.target-size-bytes"
_DEFAULT_TARGET = 8 * 1024**2

_Identity = tuple[str, int | None]
"""A manifest, and the id of its first row: the first commit in format version 3 gives it to older manifests."""


@dataclass(frozen=True, slots=True)
class MergedManifests:
    """The change of one commit: ``outputs`` name the live files of the ``inputs``."""

    inputs: tuple[ManifestFile, ...]
    outputs: tuple[ManifestFile, ...]

    @property
    def added(self) -> frozenset[str]:
        """The paths of the new manifests."""
        return frozenset(manifest.manifest_path for manifest in self.outputs)

    def put_into(self, snapshot: SinkSnapshot) -> None:
        """Make the change part of a snapshot."""
        snapshot.rearrange({manifest.manifest_path for manifest in self.inputs}, self.outputs)


class ManifestMerging:
    """The merging of one group, kept until its commit: a refused attempt writes again only if the head does not name
    some of the manifests any more, because another commit removed files that they name.
    """

    def __init__(self, group: ManifestGroup, target_bytes: int) -> None:
        self._wanted = {manifest.path for manifest in group.manifests}
        self._target_bytes = target_bytes
        self._entries: dict[_Identity, list[ManifestEntry]] = {}
        self._change: MergedManifests | None = None
        self._written: list[str] = []

    def of(self, table: Table, branch: str) -> MergedManifests | None:
        """The change of this head of the branch; None if others have removed or merged too many of the manifests.

        :raises Exception: whatever the storage raises.
        """
        head = table.metadata.snapshot_by_name(branch)
        listed = read_manifest_list(table.io, head.manifest_list) if head is not None else []
        inputs = tuple(manifest for manifest in listed if manifest.manifest_path in self._wanted)
        if len(inputs) < 2:
            return None
        if self._change is None or _identities(inputs) != _identities(self._change.inputs):
            self._change = MergedManifests(inputs, tuple(self._merged(table, branch, inputs)))
        return self._change

    def unused(self, used: Collection[str]) -> list[str]:
        """The paths of the manifests that were written and are not among the ``used`` ones."""
        return [path for path in self._written if path not in used]

    def _merged(self, table: Table, branch: str, inputs: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
        for manifest in inputs:
            if (identity := _identity(manifest)) not in self._entries:
                self._entries[identity] = read_entries(table.io, manifest)
        entries = chain.from_iterable(self._entries[_identity(manifest)] for manifest in inputs)
        ordered = sorted(entries, key=_order)
        content, spec_id = inputs[0].content, inputs[0].partition_spec_id
        snapshot = new_snapshot(table, {}, branch)
        left: Iterator[ManifestEntry] = map(_existing, ordered)
        while (first := next(left, None)) is not None:
            writer = snapshot.existing_writer(content, spec_id)
            self._written.append(writer._output_file.location)
            left = chain([first], left)
            yield _with_row_ids(write_entries(writer, left, self._target_bytes), inputs)


def _existing(entry: ManifestEntry) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=entry.snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.data_file,
    )


def _order(entry: ManifestEntry) -> Any:
    return partition_order(partition_of(entry.data_file)), entry.sequence_number or 0


def _with_row_ids(written: ManifestFile, inputs: Sequence[ManifestFile]) -> ManifestFile:
    """The manifest takes no new row ids if each entry has its own. Entries of before the table's upgrade to version 3
    have none.
    """
    if len(written._data) > LIST_FIRST_ROW_ID:
        first = [_first_row_id(manifest) for manifest in inputs]
        known = [each for each in first if each is not None]
        written._data[LIST_FIRST_ROW_ID] = min(known) if len(known) == len(first) else None
    return written


def _first_row_id(manifest: ManifestFile) -> int | None:
    return manifest._data[LIST_FIRST_ROW_ID] if len(manifest._data) > LIST_FIRST_ROW_ID else None


def _identity(manifest: ManifestFile) -> _Identity:
    return manifest.manifest_path, _first_row_id(manifest)


def _identities(manifests: Sequence[ManifestFile]) -> list[_Identity]:
    return [*map(_identity, manifests)]


@dataclass(frozen=True, slots=True)
class MergedGroup:
    """What became of a group: it was merged; or it ``failed``; or nothing, because others have removed or merged too
    many of its manifests.
    """

    group: ManifestGroup
    change: MergedManifests | None
    failed: str | None = None


class ManifestMerger:
    """The merging of manifests of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        key: LedgerKey,
        about: Mapping[str, str],
        least: int,
        sleep: Callable[[float], None] = time.sleep,
        turn: Turn = without_turns,
    ) -> None:
        """``key``: of the sink that writes the table; it names the branch. ``about``: entries for the summaries of the
        snapshots. ``least``: so many small manifests are merged. ``turn``: of each attempt.
        """
        self._catalog, self._table, self._key, self._about = catalog, table, key, about
        self._least, self._sleep, self._turn = least, sleep, turn

    def load(self) -> Table | None:
        """The table; None if it or its branch does not exist.

        :raises UnavailableError: the catalog gives no clear answer.
        """
        table = find_table(self._catalog, self._table)
        return table if table is not None and self._key.branch in table.metadata.refs else None

    def refusal(self, table: Table) -> str | None:
        """Why the manifests of a table are left alone; None if they may be merged."""
        return commit_refusal(table, self._key)

    def plan(self, table: Table) -> tuple[ManifestGroup, ...]:
        """The groups of manifests that are due on the head of the branch. Reads its manifest list, and no manifest.

        :raises TableTroubleError: the table's properties are wrong.
        """
        head = table.metadata.snapshot_by_name(self._key.branch)
        listed = read_manifest_list(table.io, head.manifest_list) if head is not None else []
        return manifest_groups(_states(table, listed), self._least, _target(table))

    def merge(self, table: Table, group: ManifestGroup) -> MergedGroup:
        """Merge a group, and commit it.

        :raises CommitRefusedError, CommitUncertainError: others committed faster each time, or there was no answer;
            nothing is lost, run it again.
        """
        task = ManifestMerging(group, _target(table))
        maintenance = Maintenance(
            self._catalog, self._table, self._key, self._about, sleep=self._sleep, turn=self._turn
        )
        try:
            return MergedGroup(group, maintenance.commit(task))
        except (CommitRefusedError, CommitUncertainError):
            raise
        except Exception as error:  # a storage may raise anything
            return MergedGroup(group, None, str(error) if isinstance(error, CalvingError) else described(error))


def _target(table: Table) -> int:
    return max(1, whole_number(table.metadata.properties, TARGET_BYTES, _DEFAULT_TARGET))


def _states(table: Table, manifests: Iterable[ManifestFile]) -> Iterator[ManifestState]:
    """The manifests with live files, as the plan sees them."""
    sources = partition_sources(table.metadata)
    types = {
        spec_id: [field.field_type for field in WritableSpec.of(spec, sources).partition_type(sources).fields]
        for spec_id, spec in table.metadata.specs().items()
    }
    for manifest in manifests:
        if not (manifest.has_added_files() or manifest.has_existing_files()):
            continue
        of_fields = zip(types[manifest.partition_spec_id], manifest.partitions or (), strict=False)
        yield ManifestState(
            path=manifest.manifest_path,
            content="data" if manifest.content == ManifestContent.DATA else "deletes",
            spec_id=manifest.partition_spec_id,
            size=manifest.manifest_length,
            files=(manifest.added_files_count or 0) + (manifest.existing_files_count or 0),
            lower=tuple(_least(cast(PrimitiveType, kind), part) for kind, part in of_fields),
            sequence=manifest.sequence_number or 0,
        )


def _least(kind: PrimitiveType, part: PartitionFieldSummary) -> Any:
    return from_bytes(kind, part.lower_bound) if part.lower_bound is not None else None
