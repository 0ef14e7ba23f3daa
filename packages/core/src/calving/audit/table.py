"""The audit of one table: everything that its metadata name, in bounded memory."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from calving.audit.batches import BatchJudge, SparkQuery
from calving.audit.content import FileJudge
from calving.audit.deletes import DeleteJudge
from calving.audit.entries import ADDED, DATA, POSITION_DELETES, AuditedEntry
from calving.audit.findings import AuditFinding
from calving.audit.ledgers import Partition
from calving.audit.lines import LineJudge, SinkLine, sink_lines
from calving.audit.manifests import ManifestReader
from calving.audit.metadata import SnapshotState, TableMetadataFile
from calving.audit.snapshots import DeleteApplication, SnapshotFacts, SnapshotJudge, judge_row_ids, read_snapshot
from calving.audit.storage import AuditedStore

_PUFFIN = "PUFFIN"
_AT_ONCE, _WAITING = 8, 64
"""How many files are read at the same time, and how many wait for it."""


@dataclass
class TableAudit:
    """What was found about a table. ``rows``: those of the data files of the head, with deleted ones."""

    table: str
    location: str
    head: int | None
    snapshots: int = 0
    files: int = 0
    contents: int = 0
    """How many files were read as a whole."""
    rows: int = 0
    findings: list[AuditFinding] = field(default_factory=list)
    lines: list[SinkLine] = field(default_factory=list)
    queries: list[SparkQuery] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was compared with the records of the topics, and what could not be."""
    bad: Mapping[Partition, Set[int]] = field(default_factory=dict)
    """The offsets of bad records, if the topics were read."""

    def json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "table": self.table,
            "metadata": self.location,
            "head": self.head,
            "snapshots": self.snapshots,
            "files": self.files,
            "contents": self.contents,
            "rows": self.rows,
            "sound": not self.findings,
            "notes": self.notes,
            "findings": [each.json() for each in self.findings],
            "sinks": [
                {"sink": line.owner, "branch": line.branch, "snapshots": [each.json() for each in line.taken]}
                for line in self.lines
            ],
            "queries": [each.json() for each in self.queries],
        }


class TableAuditor:
    """``sample``: how many files are read as a whole; None: all. ``chance``: gives numbers by which they are chosen."""

    def __init__(
        self,
        store: AuditedStore,
        metadata: TableMetadataFile,
        sample: int | None = 0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._metadata, self._sample, self._chance = store, metadata, sample, chance
        self._chosen: list[tuple[float, int, AuditedEntry]] = []
        self._files = FileJudge(store, metadata)
        self._deletes = DeleteJudge(store)
        self._seen: set[int] = set()
        self._judged: set[int] = set()
        """What entries claim of files: a later manifest may say something else of the same one."""
        self._waiting: deque[Future[list[AuditFinding]]] = deque()

    def audit(self, name: str, at: int | None = None) -> TableAudit:
        """Judge all snapshots that are there; with ``at`` that one and its ancestors.

        :raises UnavailableError: the store does not give a file.
        """
        metadata = self._metadata
        head = metadata.current if at is None else at
        found = TableAudit(name, metadata.location, head)
        found.findings += [*metadata.judge(), *metadata.judge_history(self._store)]
        ends = {*metadata.heads.values()} if at is None else {at}
        rows: dict[int, int] = {}
        begins: dict[int, bool] = {}
        judge = SnapshotJudge(metadata)
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="calving-audit") as pool:
            reader = ManifestReader(
                self._store, metadata, found.findings.append, lambda entry: self._see(pool, entry, found)
            )
            late: list[SnapshotFacts] = []
            deleting: list[SnapshotFacts] = []
            for facts in self._read(reader, at, found):
                snapshot = facts.snapshot
                found.findings += judge.judge(facts)
                rows[snapshot.id] = facts.changed("rows", ADDED, DATA)
                begins[snapshot.id] = bool(facts.begins)
                if snapshot.id == head:
                    found.rows = facts.rows
                if snapshot.id in ends:
                    late.append(facts)
                if facts.changed("files", ADDED, POSITION_DELETES):
                    deleting.append(facts)
            for _, _, entry in self._chosen:
                self._submit(pool, entry, found, content=True)
            self._wait(0, found)
        for facts in late:
            found.findings += self._judge_head(facts)
        for facts in deleting:
            found.findings += DeleteApplication(facts, self._deletes.reaches).judge_added()
        found.findings += self._judge_ledgers(found, at, rows, begins)
        found.findings = list(dict.fromkeys(found.findings))
        found.files = len(self._seen)
        if number := len(self._files.without_ids):
            found.notes.append(f"columns not judged, of files without field ids: {number}")
        return found

    def _judge_ledgers(
        self, found: TableAudit, at: int | None, rows: Mapping[int, int], begins: Mapping[int, bool]
    ) -> Iterator[AuditFinding]:
        """Those of sinks and of Spark's queries, which ``found`` gets."""
        metadata = self._metadata
        found.lines = sink_lines(metadata, at)
        for line in found.lines:
            end = at if at is not None else metadata.heads.get(line.branch)
            yield from LineJudge(metadata, line, rows, begins).judge(end)
        for branch in metadata.branches if at is None else [""]:
            batches = BatchJudge(metadata, branch)
            yield from batches.judge(metadata.heads[branch] if at is None else at)
            found.queries += batches.queries.values()

    def _read(self, reader: ManifestReader, at: int | None, found: TableAudit) -> Iterator[SnapshotFacts]:
        for snapshot in self._snapshots(at):
            found.snapshots += 1
            for each in read_snapshot(self._store, reader, snapshot):
                if isinstance(each, AuditFinding):
                    found.findings.append(each)
                else:
                    yield each

    def _snapshots(self, at: int | None) -> Iterable[SnapshotState]:
        """Parents before their children."""
        chosen = self._metadata.snapshots.values() if at is None else self._metadata.line(at)
        waiting = {each.id: each for each in chosen}
        ordered: dict[int, SnapshotState] = {}
        for each in waiting.values():
            path = []
            for ancestor in self._metadata.line(each.id):
                if ancestor.id in ordered:
                    break
                path.append(ancestor)
            ordered.update((ancestor.id, ancestor) for ancestor in reversed(path))
        return ordered.values()

    def _see(self, pool: ThreadPoolExecutor, entry: AuditedEntry, found: TableAudit) -> None:
        claims = entry.claims
        if claims in self._judged:
            return
        self._judged.add(claims)
        self._seen.add(entry.key)
        self._submit(pool, entry, found, content=self._sample is None and entry.file_format != _PUFFIN)
        if self._sample and entry.file_format != _PUFFIN:
            heapq.heappush(self._chosen, (self._chance(), len(self._judged), entry))
            if len(self._chosen) > self._sample:
                heapq.heappop(self._chosen)

    def _submit(self, pool: ThreadPoolExecutor, entry: AuditedEntry, found: TableAudit, *, content: bool) -> None:
        found.contents += content
        self._waiting.append(pool.submit(lambda: list(self._judge_file(entry, content=content))))
        self._wait(_WAITING, found)

    def _judge_file(self, entry: AuditedEntry, *, content: bool) -> Iterator[AuditFinding]:
        yield from self._files.judge(entry, content=content)
        if entry.content == POSITION_DELETES:
            yield from self._deletes.judge(entry)

    def _wait(self, most: int, found: TableAudit) -> None:
        while len(self._waiting) > most:
            found.findings += self._waiting.popleft().result()

    def _judge_head(self, facts: SnapshotFacts) -> Iterator[AuditFinding]:
        yield from judge_row_ids(facts, self._metadata.next_row_id)
        if any(manifest.deletes for manifest in facts.manifests):
            yield from DeleteApplication(facts, self._deletes.reaches).judge()
