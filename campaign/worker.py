"""A worker of a campaign: that of the harness, whose catalog can hang, and which may be sabotaged.

``HANG = <file>``: while it exists. ``SABOTAGE``: one of the names below; each makes the sink wrong in one way that the
campaign must find.
"""

from __future__ import annotations

import os
import runpy
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyroaring import BitMap64

from calving.backend import Claim, Encoded, Publication
from calving.iceberg import delete_files, version_updates
from calving.iceberg.commit import IcebergCommitter
from calving.iceberg.partial_updates import PartialUpdates
from calving.iceberg.target import IcebergTarget
from calving.maintenance import expirer
from calving.maintenance.compactor import Compactor
from calving.maintenance.expirer import Expirer
from calving.maintenance.named import UnnamedFiles, files_of
from calving.model.tables import RowMutations
from calving.protocol.commit import Admitted
from calving.protocol.ledger_key import LedgerKey
from calving.protocol.worker import WorkerMachine
from calving.runtime.tally import Tally
from calving.runtime.worker import WorkerLoop
from calving.settings.load import Sink
from calving.writing.changes import LastChanges
from calving_kafka import session as kafka
from calving_redis import scripts
from calving_zookeeper import session as zookeeper

_AFTER = 5
"""So many times a part works as it should."""


def hang(flag: Path) -> None:
    """The catalog neither answers nor refuses while ``flag`` exists."""

    def waiting(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            while flag.exists():
                time.sleep(0.05)
            return original(*args, **kwargs)

        return call

    SqlCatalog.load_table = waiting(SqlCatalog.load_table)  # type: ignore[method-assign]
    Table._do_commit = waiting(Table._do_commit)  # type: ignore[method-assign]


def _dropped_file() -> None:
    attempt, times = IcebergTarget.attempt, iter(range(1 << 30))

    def dropping(self: IcebergTarget, state: Any, admitted: Admitted) -> int:
        if next(times) >= _AFTER:
            first, *others = admitted.steps or (None,)
            steps = () if first is None else (replace(first, data_files=first.data_files[1:]), *others)
            admitted = replace(admitted, data_files=admitted.data_files[1:], steps=steps)
        return attempt(self, state, admitted)

    IcebergTarget.attempt = dropping  # type: ignore[method-assign]


def _doubled_file() -> None:
    attempt = IcebergTarget.attempt
    before: dict[str, Admitted] = {}

    def doubling(self: IcebergTarget, state: Any, admitted: Admitted) -> int:
        known = before.setdefault(str(self._table), admitted)
        if known is not admitted:
            admitted = replace(admitted, data_files=(*admitted.data_files, *known.data_files))
        return attempt(self, state, admitted)

    IcebergTarget.attempt = doubling  # type: ignore[method-assign]


def _dropped_keys() -> None:
    """Rows that others replace stay, and deletes do nothing."""
    attempt, times = IcebergTarget.attempt, iter(range(1 << 30))

    def keeping(self: IcebergTarget, state: Any, admitted: Admitted) -> int:
        if next(times) >= _AFTER:
            admitted = replace(admitted, steps=tuple(replace(step, delete_files=()) for step in admitted.steps))
        return attempt(self, state, admitted)

    IcebergTarget.attempt = keeping  # type: ignore[method-assign]


def _first_changes() -> None:
    """Of the changes of a key in a batch the first counts, not the last."""
    order = LastChanges._order

    def turned(self: LastChanges, changes: pa.RecordBatch) -> pa.Array:
        return order(self, changes).take(pa.array(range(changes.num_rows)[::-1], pa.int64()))

    LastChanges._order = turned  # type: ignore[method-assign]
    LastChanges._in_order = lambda self, changes: None  # type: ignore[method-assign]


def _ignored_order() -> None:
    """Where a column decides which change is the last, the later record wins all the same."""
    mutations = Sink.mutations

    def without(self: Sink, table: str) -> RowMutations | None:
        found = mutations(self, table)
        return found and replace(found, order_field=None)

    Sink.mutations = without  # type: ignore[method-assign]


def _ignored_truncates() -> None:
    """The rows of a source that was emptied stay."""
    mutations = Sink.mutations

    def without(self: Sink, table: str) -> RowMutations | None:
        found = mutations(self, table)
        return found and replace(found, on_truncate="skip", truncate_field=None)

    Sink.mutations = without  # type: ignore[method-assign]


def _forgotten_columns() -> None:
    """An update that lacks columns finds no row in the files of the table."""
    PartialUpdates._stored = lambda self, *found: iter(())  # type: ignore[method-assign]


def _endless_versions() -> None:
    """No change ends the version before it, unless both come in one batch."""
    version_updates.revised = lambda versions, changes, *, is_ordered: iter(())  # type: ignore[attr-defined]


def _forgotten_deletes() -> None:
    """New deletes of a data file replace the earlier ones."""
    delete_files.Deletions._read = lambda self, path: BitMap64()  # type: ignore[method-assign]


def _deaf_cursor() -> None:
    """It hears no entry after its first publication of files: its backlog waits until it is large."""
    heard, published, deaf = WorkerMachine.heard, WorkerMachine.published, threading.Event()

    def publishing(self: WorkerMachine) -> None:
        if self.unpublished:
            deaf.set()
        published(self)

    WorkerMachine.published = publishing  # type: ignore[method-assign]
    WorkerMachine.heard = lambda self, envelope: None if deaf.is_set() else heard(self, envelope)  # type: ignore[method-assign]


def _stuck_worker() -> None:
    step, times = WorkerLoop.step, iter(range(1 << 30))

    def stuck(self: WorkerLoop, timeout: float) -> None:
        if next(times) >= 20 * _AFTER:
            threading.Event().wait()
        step(self, timeout)

    WorkerLoop.step = stuck  # type: ignore[method-assign]


def _wrong_time() -> None:
    commit = IcebergCommitter.commit

    def telling(self: IcebergCommitter, request: Any) -> Any:
        through = request.valid_through_us
        return commit(self, replace(request, valid_through_us=through and through + 60_000_000))

    IcebergCommitter.commit = telling  # type: ignore[method-assign]


def _uncounted_records() -> None:
    """It does not count what it filters."""
    added_to = Tally.added_to
    Tally.added_to = lambda self, *others: added_to(replace(self, filtered=Counter()), *others)  # type: ignore[method-assign]


def _uncompared_positions() -> None:
    """Whatever position a store has, a publication moves it."""
    compared = "stored ~= ARGV[at + 1]"
    assert compared in scripts.PUBLISH
    scripts.PUBLISH = scripts.PUBLISH.replace(compared, "false")
    for session in (kafka, zookeeper):
        setattr(session, "check_starts", lambda publication, stored: None)  # noqa: B010 - it is imported there
    # A Kafka broker also compares the publisher's membership, and a successor ends its transactions.
    append = kafka.KafkaSession.append

    def unclaimed(self: kafka.KafkaSession, publication: Publication, encoded: Encoded, claim: Claim) -> None:
        assert isinstance(claim.token, bytes)
        # As librdkafka writes it: 7 letters, the generation in 4 bytes, the group, the member.
        group, _, rest = claim.token[11:].split(b"\0", 2)
        nobody = b"\0".join((claim.token[:7] + struct.pack("<i", -1) + group, b"", rest))
        append(self, publication, encoded, replace(claim, token=nobody))

    kafka.KafkaSession.append = unclaimed  # type: ignore[method-assign]
    kafka.KafkaSession.take_over = lambda self, partitions: None  # type: ignore[method-assign]


def _unchecked_expiry() -> None:
    """Files of expired snapshots are deleted at once, whoever else names them. No compaction replaces them before."""

    def named_by(io: FileIO, table: TableMetadata, gone: Sequence[Snapshot]) -> dict[str, int]:
        return files_of(io, table.model_copy(update={"snapshots": [*gone]}), gone)

    expirer.files_of = named_by  # type: ignore[assignment, attr-defined]
    due = Expirer._due_lists
    Expirer._due_lists = lambda self, table, now_ms: due(self, table, now_ms + self._grace_ms)  # type: ignore[method-assign]
    UnnamedFiles.strike = lambda self, metadata: None  # type: ignore[method-assign]
    Compactor.refusal = lambda self, table: "files stay"  # type: ignore[method-assign]


def _unnoticed_rollbacks() -> None:
    """A table whose head goes back says nothing of it."""
    LedgerKey._less_what_is_gone = lambda self, found, properties: found  # type: ignore[method-assign]


SABOTAGE: dict[str, Callable[[], None]] = {
    "dropped file": _dropped_file,
    "doubled file": _doubled_file,
    "dropped keys": _dropped_keys,
    "first changes": _first_changes,
    "ignored order": _ignored_order,
    "ignored truncates": _ignored_truncates,
    "forgotten columns": _forgotten_columns,
    "endless versions": _endless_versions,
    "forgotten deletes": _forgotten_deletes,
    "deaf cursor": _deaf_cursor,
    "stuck worker": _stuck_worker,
    "unnoticed rollbacks": _unnoticed_rollbacks,
    "uncounted records": _uncounted_records,
    "unchecked expiry": _unchecked_expiry,
    "uncompared positions": _uncompared_positions,
    "wrong time": _wrong_time,
}

if __name__ == "__main__":
    if "HANG" in os.environ:
        hang(Path(os.environ["HANG"]))
    if "SABOTAGE" in os.environ:
        SABOTAGE[os.environ["SABOTAGE"]]()
    runpy.run_module("harness.worker", run_name="__main__", alter_sys=True)
