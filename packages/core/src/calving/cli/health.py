"""Derives the health of a sink from its control log and its tables, whether the sink runs or not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.catalogs.foreign import refusal
from calving.errors import UnavailableError
from calving.iceberg.catalog import look_for, table_id
from calving.iceberg.history import ancestors
from calving.iceberg.summary import mutations_in
from calving.iceberg.target import LoadedTable
from calving.model.events import DataWritten, Envelope
from calving.model.offsets import Coverage
from calving.protocol.held_back import DEGRADED
from calving.protocol.ledger_key import COMMIT_ID, VALID_THROUGH, LedgerKey
from calving.protocol.rollback import RolledBack
from calving.runtime.log_view import ControlLogView
from calving.runtime.preflight import ledger_key, own_tables, routed_tables
from calving.settings.load import Sink


@dataclass(frozen=True, slots=True)
class TableHealth:
    """``state``: ok; waiting for the next commit; missing, if there is no such table; or DEGRADED. A table is DEGRADED
    if several cycles have not committed its files, entries are parked, offsets are missing, it was rolled back, or it
    cannot be loaded.
    """

    name: str
    state: str
    records: str = ""
    committed_at: float | None = None
    """When the sink last committed to the table."""
    cycles: int = 0
    """Commit cycles that have ended without committing the waiting files."""
    files: int = 0
    missing: Coverage = field(default_factory=dict)
    valid_through: str = ""
    parked: int = 0
    """Control entries that are parked."""
    mutations: Mapping[str, int] = field(default_factory=dict)
    """Row mutations and their times in the last commit that reports them, by name."""
    changed_by: str = ""
    """The id of that commit."""
    rolled_back: RolledBack | None = None
    """A rollback that nobody has answered."""
    why: str = ""
    """Why the table cannot be loaded, or cannot take the waiting files; empty if the reason is not known here."""


def health(sink: Sink, catalog: Catalog, heard: ControlLogView, topics: Collection[str]) -> list[TableHealth]:
    """The health of every table in the settings, with records of the sink, or with uncommitted files."""
    known, routed = [*own_tables(sink), *heard.tables], routed_tables(catalog, sink, topics)
    states = [_health(sink, name, table, heard) for name, table in look_for(catalog, [*known, *routed.names]).items()]
    others = ((name, error) for name, error in routed.unreadable.items() if name not in known)
    return [*states, *(TableHealth(name, "DEGRADED", why=str(error)) for name, error in others)]


def _health(sink: Sink, name: str, table: Table | UnavailableError | None, heard: ControlLogView) -> TableHealth:
    parked = heard.parked(table_id(name))
    if table is None or isinstance(table, UnavailableError):
        waiting = heard.waiting(table_id(name), {})
        cycles = heard.cycles(waiting)
        if table is not None:
            # It is unknown which of the announced files the table holds already.
            return TableHealth(name, "DEGRADED", parked=parked, why=str(table))
        state = "DEGRADED" if cycles >= DEGRADED or parked else "missing"
        why = f"table {name} does not exist"
        return TableHealth(name, state, cycles=cycles, files=_files(waiting), parked=parked, why=why)
    key = ledger_key(sink, heard.log_id, name)
    loaded = LoadedTable(table, key.branch)
    ledger = key.read(loaded.line, loaded.properties)
    waiting, rolled_back = heard.waiting(table_id(name), ledger.control), RolledBack.of(ledger.gone, ledger.doubt)
    cycles, missing = heard.cycles(waiting), heard.passed_over(key, table)
    head = next(iter(loaded.ancestry), {})
    changed = next((summary for summary in loaded.ancestry if mutations_in(summary)), {})
    refused = refusal(table.metadata, rewrites=sink.mutations(name) is not None)
    return TableHealth(
        name=name,
        state="DEGRADED"
        if cycles >= DEGRADED or missing or parked or refused or rolled_back
        else "waiting"
        if waiting
        else "ok",
        records=head.get("total-records", "0"),
        committed_at=_last_commit(table, key),
        cycles=cycles,
        files=_files(waiting),
        missing=missing,
        valid_through=next((s[VALID_THROUGH] for s in loaded.ancestry if VALID_THROUGH in s), "-"),
        parked=parked,
        mutations=mutations_in(changed),
        changed_by=changed.get(COMMIT_ID, ""),
        why="" if refused is None else f"table {name} takes no rows: {refused}",
        rolled_back=rolled_back,
    )


def _files(entries: Iterable[Envelope]) -> int:
    return sum(len(e.event.data_files) + len(e.event.delete_files) for e in entries if isinstance(e.event, DataWritten))


def _last_commit(table: Table, key: LedgerKey) -> float | None:
    for snapshot in ancestors(table.metadata, key.branch):
        if snapshot.summary is not None and key.offsets in snapshot.summary.additional_properties:
            return snapshot.timestamp_ms / 1000
    return None
