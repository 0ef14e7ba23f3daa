"""Commits the tables of a cycle, each on its own."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

from pyiceberg.catalog import Catalog

from calving.errors import (
    NewerVersionError,
    OtherSettingsError,
    SupersededError,
    UnansweredRollbackError,
    UnavailableError,
    WentBackError,
)
from calving.iceberg.attempts import Attempts, Raised, Report, UnfinishedAttempt
from calving.iceberg.catalog import find_table
from calving.iceberg.history import look
from calving.iceberg.locations import OWN_LOCATIONS, FileRules, refuse_disputed, refuse_other_parking
from calving.iceberg.mending import doubtful_files
from calving.iceberg.parking import CatalogStorage, ParkedCommit, Parking
from calving.iceberg.resolvers import Resolvers
from calving.iceberg.summary import engine, java_date_time
from calving.iceberg.target import MAX_TRIES, IcebergTarget
from calving.model.events import DataWritten, Envelope, TableId, TableReference
from calving.model.marks import TableMark
from calving.model.offsets import Coverage, text_of
from calving.model.tables import Branches, OnRollback, RowMutations
from calving.model.text import counted
from calving.mutations.lookup import Tasks
from calving.protocol.commit import CommitLoop, Settled
from calving.protocol.coordinator import Committed, Failed
from calving.protocol.effects import CommitTables
from calving.protocol.held_back import Gate, passed_over, waiting
from calving.protocol.ledger import Ledger, SourceProgress
from calving.protocol.ledger_key import COMMIT_ID, TASK_ID, VALID_THROUGH, LedgerKey
from calving.protocol.replacement import LogExtent
from calving.protocol.rollback import RolledBack
from calving.status.values import TableCommit

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitStyle:
    """The sink's names, branches and properties for its snapshots."""

    control_topic: str
    group: str
    log_id: str
    task_id: str
    branches: Branches
    mutations: Callable[[TableId], RowMutations | None]
    """The mutation settings of a table; None if records are appended."""
    key_cache_bytes: int
    """The size limit of the key cache on local disk, bytes."""
    files: FileRules = OWN_LOCATIONS
    on_rollback: Callable[[TableId], OnRollback] = lambda table: "continue"
    """What becomes of a table that was rolled back, until somebody has answered."""

    def key(self, table: TableId) -> LedgerKey:
        return LedgerKey(self.control_topic, self.group, self.log_id, self.branches.of(table))


class IcebergCommitter:
    """Commits all tables of a cycle, in parallel and isolated from each other (C4)."""

    def __init__(
        self,
        catalog: Catalog,
        catalog_name: str,
        style: CommitStyle,
        attempts: Attempts,
        tasks: Callable[[], Tasks | None] = lambda: None,
        seen: Mapping[TableId, TableMark] = MappingProxyType({}),
        tables: Callable[[], Iterable[TableId]] = tuple,
    ) -> None:
        """``attempts`` belong to the process: attempts of an earlier coordinator may still be running. ``tasks``: the
        engine on which very large mutation tables are searched; None to search in this process. ``seen``: the tables
        that may hold records of the sink, as they are now. ``tables`` names them, also those that come later.
        """
        self.seen, self.tables = seen, tables
        self._catalog, self._catalog_name, self._style = catalog, catalog_name, style
        self._attempts = attempts
        self._parking = Parking(CatalogStorage(catalog, style.files))
        self._folders: dict[TableId, str] = {}
        """The folder of the data files of each table, as it was last loaded."""
        self.resolvers = Resolvers(style.mutations, style.key_cache_bytes, tasks)
        self._holes: dict[TableId, Coverage] = {}
        self._told: set[tuple[TableId, str]] = set()
        self.missing: dict[TableId, str] = {}
        """By table, offsets that were missing in two commits in a row: no later commit will add them."""
        self.rolled_back: dict[TableId, RolledBack] = {}
        """By table, a rollback that nobody has answered."""
        self._read: set[TableId] = set()
        self._gate = Gate()
        self._reports: deque[TableCommit] = deque()

    def reports(self) -> tuple[TableCommit, ...]:
        """Reports of the tables whose commits ended since the last call."""
        return tuple(self._reports.popleft() for _ in range(len(self._reports)))

    @property
    def held_back(self) -> dict[TableId, str]:
        """Mutation tables with entries that several commits in a row have held back; each with a sentence on the
        missing offsets.
        """
        return self._gate.waits

    @property
    def key_cache_bytes(self) -> dict[str, int]:
        """Bytes in the key cache, by table."""
        return self.resolvers.cache_bytes

    def look(self, table: TableId) -> None:
        """Look at a table between its commits (R2a).

        :raises UnavailableError: the catalog gives no clear answer.
        """
        ledger = look(self._catalog, table, self._style.key(table))
        if ledger is not None:
            self._note(table, ledger)

    def _note_rollback(self, table: TableId) -> None:
        """A table that takes nothing is not committed, so a look notes what it lacks."""
        try:
            self.look(table)
        except UnavailableError as error:
            log.info("table %s cannot be looked at: %s", ".".join(table), error)

    def take_read(self) -> frozenset[TableId]:
        """The tables that were read since the last call."""
        tables = frozenset(self._read)
        self._read -= tables
        return tables

    def _note(self, table: TableId, ledger: Ledger) -> None:
        self._read.add(table)
        rollback = RolledBack.of(ledger.unanswered, ledger.doubt)
        if rollback is None:
            self.rolled_back.pop(table, None)
        else:
            self.rolled_back[table] = rollback

    def commit(self, request: CommitTables) -> Iterable[tuple[TableId, Committed | Failed]]:
        """:raises NewerVersionError: a later version has written a table."""
        jobs = {
            table: partial(self._settle, table, ParkedCommit(entries, request.read, request.progress), request)
            for table, entries in request.tables.items()
        }
        for table, result in self._attempts.run(jobs):
            if isinstance(result, UnfinishedAttempt):
                log.warning("table %s: %s; its files stay buffered", ".".join(table), result.reason)
                late = TableCommit(".".join(table), "late", 0.0, reason=result.reason, commit_id=str(request.commit_id))
                self._reports.append(late)
                yield table, Failed(result.reason)
            elif isinstance(result, Raised) and isinstance(result.error, NewerVersionError):
                raise result.error
            elif isinstance(result, Raised):
                # The next attempt finds out from the table whether this one has made its commit.
                name, why = ".".join(table), f"{type(result.error).__name__}: {result.error}"
                log.error("table %s: an error after its commit: %s", name, why, exc_info=result.error)
                self._reports.append(TableCommit(name, "failed", 0.0, reason=why, commit_id=str(request.commit_id)))
                yield table, Failed(why)
            else:
                yield table, result

    def _settle(self, table: TableId, latest: ParkedCommit, request: CommitTables) -> Committed | Failed:
        report = Report(".".join(table), request.commit_id)
        outcome = self._settled(table, latest, request, report)
        commit = report.value(outcome)
        if commit.mutations is not None:
            times = ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in commit.steps.items())
            log.info("table %s: %s; %s", commit.table, commit.mutations, times)
        self._reports.append(commit)
        return outcome

    def _settled(
        self, table: TableId, latest: ParkedCommit, request: CommitTables, report: Report
    ) -> Committed | Failed:
        reference = TableReference(self._catalog_name, table[:-1], table[-1])
        try:
            if not latest.entries and table not in request.parked and self._is_gone(table):
                return Committed(reference, None)
            done, mark = self._commit_one(table, latest, request, report)
        except WentBackError as error:
            return Failed(str(error), lost=True)
        except SupersededError as error:
            return Failed(f"table {'.'.join(table)}: {error}", lost=True)
        except NewerVersionError as error:
            raise NewerVersionError(f"table {'.'.join(table)}: {error}") from error
        except OtherSettingsError as error:
            # Do not park these entries: only a coordinator with their settings knows their order.
            log.warning("%s; they stay buffered", error)
            return Failed(str(error), waits=True)
        except Exception as error:  # one table's failure must not affect the others
            if isinstance(error, UnansweredRollbackError):
                self._note_rollback(table)
            log.warning("table %s was not committed, its files stay buffered: %s", ".".join(table), error)
            parked, held_back = self._park(table, latest, request)
            return Failed(str(error), parked=parked, held_back=held_back)
        self._note(table, done.admitted.ledger)
        self._watch_holes(table, done, request.progress)
        admitted = done.admitted
        self._gate.settled(table, admitted)
        if admitted.held_back:
            log.info("table %s: %s", ".".join(table), waiting(admitted))
        return Committed(reference, done.snapshot_id, mark, admitted.elsewhere, admitted.held_back)

    def _is_gone(self, table: TableId) -> bool:
        """Whether a table without entries does not exist. That is no failure, because the table may have been dropped
        on purpose.
        """
        if find_table(self._catalog, table) is not None:
            return False
        log.warning(
            "table %s, which this sink has committed, does not exist: it was dropped, or a restored catalog does not"
            " have it; after a restore stop all workers and bring the catalog forward: `calving recover FILE` reads its"
            " records again only if no other table has been committed since",
            ".".join(table),
        )
        return True

    def _park(
        self, table: TableId, commit: ParkedCommit, request: CommitTables
    ) -> tuple[str | None, tuple[Envelope, ...]]:
        """The file with the parked commit, or None; and the entries that are not in it."""
        if table not in request.park:
            return None, ()
        held_back: tuple[Envelope, ...] = ()
        is_mutation = self._style.mutations(table) is not None
        if not is_mutation and commit.changes_rows:  # as with OtherSettingsError, their order may count
            return None, ()
        if is_mutation or not request.has_read:
            commit, held_back = commit.in_order()
        if not commit.entries:
            return None, ()
        try:
            last = self._parking.park(table, commit, request.parked.get(table), self._folders.get(table))
        except Exception as error:  # the entries then stay buffered
            log.warning("the files of table %s could not be parked: %s", ".".join(table), error)
            return None, ()
        entries = counted(len(commit.entries), "entry with its files is", "entries with their files are")
        log.warning("table %s: %s parked in %s", ".".join(table), entries, last)
        return last, held_back

    def _watch_holes(self, table: TableId, done: Settled, progress: SourceProgress) -> None:
        """Log each offset range that two commits in a row lack, but only once. Keep it in ``missing`` while it is
        missing.
        """
        if done.snapshot_id is None:
            return
        before, now = self._holes.get(table, {}), passed_over(done.admitted.ledger, progress)
        self._holes[table] = now
        if not now or now != before:
            self.missing.pop(table, None)
            return
        self.missing[table] = text_of(now)
        if (table, text_of(now)) not in self._told:
            self._told.add((table, text_of(now)))
            log.error(
                "table %s does not hold %s, though it holds later offsets: the control log has lost entries, or"
                " somebody moved the positions of the sink's group; stop all workers and run `calving recover FILE`;"
                " after a move that you meant, `calving offsets FILE --accept`",
                ".".join(table),
                text_of(now),
            )

    def _commit_one(
        self, table: TableId, latest: ParkedCommit, request: CommitTables, report: Report
    ) -> tuple[Settled, TableMark | None]:
        parked = request.parked.get(table)
        self._parking.clear(table, parked)
        mark = self._parking.mark(table, request.marks.get(table))
        if parked is None:
            return self._make(table, latest, request, mark, report)
        snapshot_id = None
        for commit in chain(self._parking.commits(table, parked), [latest]):
            commit = commit.judged_by(request.progress.restarted)
            done, mark = self._make(table, commit, request, mark, report)
            if commit.files:
                refuse_other_parking(table, self._style.group, done.admitted.held_back)
            self._parking.made(table, commit, mark)
            snapshot_id = done.snapshot_id or snapshot_id
        self._parking.served(table, parked)
        return replace(done, snapshot_id=snapshot_id), mark

    def _waiting(self, table: TableId, request: CommitTables) -> Iterable[Envelope]:
        parked = request.parked.get(table)
        commits = self._parking.commits(table, parked) if parked is not None else ()
        return chain(*(commit.entries for commit in commits), request.tables.get(table, ()))

    def _make(
        self,
        table: TableId,
        commit: ParkedCommit,
        request: CommitTables,
        mark: TableMark | None,
        report: Report,
    ) -> tuple[Settled, TableMark | None]:
        style = self._style
        key, mutations = style.key(table), style.mutations(table)
        refuse_disputed(request, table, style.group, commit.entries, key.branch)
        summary = {COMMIT_ID: str(request.commit_id), TASK_ID: style.task_id, **engine()}
        if request.valid_through_us is not None:
            summary[VALID_THROUGH] = java_date_time(request.valid_through_us)
        uuids = {e.event.table.table_uuid for e in commit.entries if isinstance(e.event, DataWritten)}
        expected = frozenset(str(u) for u in uuids if u is not None)
        target = IcebergTarget(
            catalog=self._catalog,
            table=table,
            branch=key.branch,
            key=key,
            summary=summary,
            expected_uuids=expected,
            mark=mark,
            watch=report.watch,
            resolver=self.resolvers.of(table),
            equality=mutations is not None and mutations.row_deletes == "equality",
            doubtful=doubtful_files(commit.entries),
            files=style.files,
            entries=commit.entries,
            form=request.form,
            on_rollback=style.on_rollback(table),
            extent=LogExtent(request.read, request.progress.covered, partial(self._waiting, table, request)),
        )
        deciding = partial(report.watch.step, "resolve")
        in_order = mutations is not None or commit.changes_rows or not (request.has_read or commit.files)
        loop = CommitLoop(target, key, MAX_TRIES, in_order=in_order, deciding=deciding)
        try:
            done = loop.settle(commit.entries, commit.read, commit.progress)
        finally:
            if target.folder is not None:
                self._folders[table] = target.folder
        report.settled(done, target.head, target.counts)
        if done.snapshot_id is not None and target.io is not None:
            unused = target.unused.get(done.snapshot_id, ())
            self.resolvers.discard_later(table, request.commit_id, unused, target.io)
        return done, target.mark
