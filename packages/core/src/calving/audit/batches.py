"""What Spark's jobs have written into a branch, by the entries that each of their snapshots has in its summary."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.metadata import MAIN, SnapshotState, TableMetadataFile

SPARK_BATCH, SPARK_WRITE = "calving.spark-batch.", "calving.spark-write."


@dataclass
class SparkQuery:
    """The last batch of a streaming query that a branch holds, and the snapshot that has brought it. ``batches``: how
    many of the snapshots that are left have brought one.
    """

    sink: str
    branch: str
    query: str
    batch: int
    snapshot: int
    batches: int = 1

    def json(self) -> dict[str, Any]:
        """For programs."""
        names = ("sink", "branch", "query", "batch", "snapshot", "batches")
        return {name: getattr(self, name) for name in names}


class BatchJudge:
    """Judges the entries of one branch, from its oldest snapshot to its head. ``branch``: empty if only a snapshot is
    known.
    """

    def __init__(self, metadata: TableMetadataFile, branch: str) -> None:
        self._metadata, self._branch = metadata, branch
        self.queries: dict[str, SparkQuery] = {}
        """By the name of their sink."""
        self._batches: dict[tuple[str, str], int] = {}

    def judge(self, head: int | None) -> Iterator[AuditFinding]:
        """What is wrong. Fills ``queries``."""
        snapshots = list(self._metadata.line(head))[::-1]
        for snapshot in snapshots:
            for name, text in snapshot.summary.items():
                if name.startswith(SPARK_BATCH):
                    yield from (
                        AuditFinding(FindingKind.LEDGER, snapshot.name, wrong)
                        for wrong in self._see(snapshot, name.removeprefix(SPARK_BATCH), text)
                    )
        if self._branch:
            known = {str(each.id): each.summary for each in snapshots}
            for wrong in self._properties(known):
                yield AuditFinding(FindingKind.LEDGER, self._metadata.location, wrong)

    def _see(self, snapshot: SnapshotState, sink: str, text: str) -> Iterator[str]:
        found = _batch(text)
        if found is None:
            yield f"{SPARK_BATCH}{sink} is not what a query writes: {text[:80]!r}"
            return
        query, batch = found
        before = self._batches.get((sink, query))
        if before is not None and batch < before:
            yield f"the last batch of query {query}, sink {sink}, went from {before} to {batch}"
        self._batches[sink, query] = batch
        last = self.queries.get(sink)
        if last is None or (last.query, last.batch) != found:  # later snapshots repeat an entry
            batches = 1 if last is None else last.batches + 1
            self.queries[sink] = SparkQuery(sink, self._branch, query, batch, snapshot.id, batches)

    def _properties(self, known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
        """Whether each entry in the table properties is that of the snapshot that it names."""
        end = "" if self._branch == MAIN else f"@{self._branch}"
        for stored, text in self._metadata.properties.items():
            name = stored.removesuffix(end)
            if not stored.startswith((SPARK_BATCH, SPARK_WRITE)) or (end and name == stored):
                continue
            summary = known.get(_place(text))
            if summary is None:
                continue  # it has expired, or the branch was rolled back
            if name not in summary:
                yield f"{stored} names a snapshot that does not have this entry"
            elif name.startswith(SPARK_BATCH) and _batch(text) != _batch(summary[name]):
                yield f"{stored} says another batch than the snapshot that it names"


def _batch(text: str) -> tuple[str, int] | None:
    try:
        said = json.loads(text)
        return str(said["query"]), int(said["batch"])
    except (ValueError, KeyError, TypeError):
        return None


def _place(text: str) -> str:
    try:
        return str(json.loads(text)["snapshot"]).partition(":")[0]
    except (ValueError, KeyError, TypeError):
        return ""
