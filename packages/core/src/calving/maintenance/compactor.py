"""Compacts one branch of a table: plans, rewrites, and commits each group of files by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from calving.errors import CalvingError, CommitRefusedError, CommitUncertainError, ConfigError
from calving.iceberg.catalog import find_table
from calving.iceberg.delete_files import Deletions, KnownPositions
from calving.iceberg.equality import EqualitySearch, Scope, place_of, scope_of
from calving.iceberg.live_files import LiveData, LiveFiles, Manifests, data_of, deletes_of
from calving.iceberg.locations import delete_orphans
from calving.iceberg.maintenance import Maintenance, Turn, commit_refusal, without_turns
from calving.iceberg.manifests import LINEAGE_VERSION, partition_sources
from calving.maintenance.compaction import Compaction, FileReplacement
from calving.maintenance.outputs import OutputSpec, output_spec
from calving.maintenance.plan import FileGroup, FileState, PartitionKey, Plan, Triggers, plan
from calving.maintenance.rewrite import Rewriting, rewrite
from calving.maintenance.strategy import Strategy
from calving.model.events import TableId
from calving.model.files import DataFile
from calving.model.tables import RESERVED_COLUMNS
from calving.protocol.ledger_key import LedgerKey
from calving.records.fields import is_always_null
from calving.records.foreign import writable
from calving.storage_errors import described
from calving.writing.partitioning import is_divided, partition_path
from calving.writing.properties import WriteProperties


@dataclass(frozen=True, slots=True)
class CompactedGroup:
    """What became of a group: it was replaced; or ``dropped``, because others changed its files; or it ``failed``; or
    nothing, because too few of its files were left.
    """

    group: FileGroup
    replacement: FileReplacement | None
    dropped: str | None = None
    failed: str | None = None


class Compactor:
    """The compaction of one branch of one table."""

    def __init__(
        self,
        catalog: Catalog,
        table: TableId,
        key: LedgerKey,
        about: Mapping[str, str],
        triggers: Triggers = Triggers(),  # noqa: B008 - it never changes
        write_properties: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        turn: Turn = without_turns,
        rewriting: Rewriting | None = None,
        made: Callable[[Table, Sequence[DataFile]], None] = lambda table, outputs: None,
        strategy: Strategy | None = None,
        changes_rows: bool = True,
        search: Callable[[], EqualitySearch] = EqualitySearch,
    ) -> None:
        """``key``: of the sink that writes the table; it names the branch. ``about``: entries for the summaries of the
        snapshots. ``write_properties``: they count before the table's. The target size of ``triggers`` is the table's.
        ``strategy``: as ``output_spec`` has it. ``changes_rows``: whether the sink deletes rows of the table.
        ``search``: makes the search for rows that keys delete.

        ``turn``: of each attempt. ``rewriting``: how files are rewritten, by default in this process. ``made``: gets
        the new files before their commit.
        """
        self._catalog, self._table, self._key, self._about = catalog, table, key, about
        self._triggers, self._write_properties, self._sleep = triggers, write_properties or {}, sleep
        self._turn, self._rewriting, self._made = turn, rewriting, made
        self._strategy, self._changes_rows, self._search = strategy, changes_rows, search

    def load(self) -> Table | None:
        """The table; None if it or its branch does not exist.

        :raises UnavailableError: the catalog gives no clear answer.
        """
        table = find_table(self._catalog, self._table)
        return table if table is not None and self._key.branch in table.metadata.refs else None

    def refusal(self, table: Table) -> str | None:
        """Why the files of a table are left alone; None if they may be rewritten (K14, K21)."""
        if (why := commit_refusal(table, self._key)) is not None:
            return why
        metadata = table.metadata
        schema = metadata.schema()
        if (known := writable(schema)) is not schema:
            lost = sorted(set(schema.column_names) - set(known.column_names))
            if held := [name for name in lost if not is_always_null(schema.find_field(name))]:
                return f"calving cannot write its column {held[0]} of type {schema.find_type(held[0])}"
        if metadata.format_version >= LINEAGE_VERSION and (taken := RESERVED_COLUMNS & set(schema.column_names)):
            return f"it has a column {min(taken)}, a name that Iceberg reserves"
        try:
            self.new_files(table)
        except ConfigError as error:
            return str(error)
        return None

    def plan(self, table: Table, now_ms: int) -> Plan:
        """The groups of files that are due on the head of the branch.

        :raises ConfigError: the table's properties are wrong.
        """
        triggers = replace(self._triggers, target_bytes=self._target(table))
        return plan(_states(table, self._list(table)), triggers, now_ms)

    def new_files(self, table: Table, live: LiveFiles | None = None) -> OutputSpec:
        """What new files are like. ``live``: of the head, to see whether rows of the table are deleted.

        :raises ConfigError: the strategy does not fit the table.
        """
        is_mutable = self._changes_rows or (live is not None and bool(live.scoped or live.wide or live.equality))
        tracks = is_mutable and table.metadata.format_version > 1
        return output_spec(table, self._write_properties, self._strategy, tracks=tracks)

    def outputs(self, table: Table, group: FileGroup) -> int:
        """About how many files a group becomes."""
        return max(1, round(group.size / self._target(table)))

    def _target(self, table: Table) -> int:
        properties = {**table.metadata.properties, **self._write_properties}
        return WriteProperties.of(properties, ".".join(self._table)).target_bytes

    def compact(self, group: FileGroup) -> CompactedGroup:
        """Rewrite a group as it is now, and commit it.

        :raises UnavailableError: the catalog gives no clear answer.
        :raises CommitRefusedError, CommitUncertainError: others committed faster each time, or there was no answer;
            nothing is lost, run it again.
        """
        table = self.load()
        if table is None:
            return CompactedGroup(group, None, "the table was dropped")
        live = self._live(table)
        inputs = {file.path: live.data[file.path] for file in group.files if file.path in live.data}
        if len(inputs) < min(2, len(group.files)):
            return CompactedGroup(group, None)
        deletions = Deletions(table, live, KnownPositions())
        try:
            rewritten = (self._rewriting or rewrite)(table, inputs.values(), deletions, self.new_files(table, live))
        except Exception as error:  # a storage may raise anything; nothing was committed
            return CompactedGroup(group, None, failed=_text(error))
        self._made(table, rewritten.outputs)
        task = Compaction(self._key, table, inputs, rewritten, self._search)
        maintenance = Maintenance(
            self._catalog, self._table, self._key, self._about, sleep=self._sleep, turn=self._turn
        )
        try:
            replacement = maintenance.commit(task)
        except (CommitRefusedError, CommitUncertainError):
            raise
        except Exception as error:  # it was dropped, its delete files cannot be read, or a storage failed
            if not task.is_offered:
                delete_orphans(table.io, task.unused(()))
            return CompactedGroup(group, None, failed=_text(error))
        return CompactedGroup(group, replacement, task.dropped)

    def _live(self, table: Table) -> LiveFiles:
        return Manifests(()).live(table.io, self._list(table))

    def _list(self, table: Table) -> str | None:
        head = table.metadata.snapshot_by_name(self._key.branch)
        return head.manifest_list if head is not None else None


def _text(error: Exception) -> str:
    return str(error) if isinstance(error, CalvingError) else described(error)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Files to which equality deletes apply: they are planned once these are positions (K4). ``newest``: the greatest
    sequence number of the deletes of each scope.
    """

    newest: Mapping[Scope, int]

    @staticmethod
    def of(table: Table, live: LiveFiles) -> _Waiting:
        newest: dict[Scope, int] = {}
        for delete in live.equality:
            scope = scope_of(table, delete.file)
            newest[scope] = max(delete.sequence, newest.get(scope, 0))
        return _Waiting(newest)

    def has(self, data: LiveData) -> bool:
        scopes = (None, place_of(data.candidate))
        return any(data.sequence < self.newest.get(scope, 0) for scope in scopes)


def _states(table: Table, manifest_list: str | None) -> Iterator[FileState]:
    """The live files as the plan sees them, one after the other: a table may have millions."""
    deletes = deletes_of(table.io, manifest_list)
    waiting = _Waiting.of(table, deletes)
    partitions: dict[PartitionKey, PartitionKey] = {}
    specs, default = table.metadata.specs(), table.metadata.spec()
    landing = {each for each, spec in specs.items() if is_divided(default) and not is_divided(spec)}
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    for data in data_of(table.io, manifest_list):
        file = data.candidate
        deleted = sum(delete.file.record_count for delete in deletes.scoped_of(data))
        partition = file.spec_id, file.partition
        yield FileState(
            path=file.path,
            partition=partitions.setdefault(partition, partition),
            size=file.size,
            records=file.records,
            deleted=min(deleted, file.records),
            sequence=data.sequence,
            added_ms=times.get(data.added_by) if data.added_by is not None else None,
            waits=waiting.has(data),
            has_landed=file.spec_id in landing,
        )


def partition_text(table: Table, partition: PartitionKey) -> str:
    """A partition as its folder is called; empty for a table without partitions."""
    spec_id, values = partition
    return partition_path(Record(*values), table.metadata.specs()[spec_id], partition_sources(table.metadata))
