"""Derives the health of a sink from its control log and its tables, whether the sink runs or not. The worker that leads
is asked why the sink is DEGRADED, and how long its commits took: only the leader knows this.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.catalogs.foreign import refusal
from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import table_id
from calving.iceberg.history import LoadedTable, ancestors
from calving.iceberg.loading import look_for
from calving.iceberg.summary import mutations_in
from calving.model.events import DataWritten, Envelope, Leader
from calving.model.offsets import Coverage, is_moment
from calving.model.text import natural
from calving.protocol.held_back import DEGRADED
from calving.protocol.ledger_key import COMMIT_ID, VALID_THROUGH, LedgerKey
from calving.protocol.rollback import RolledBack
from calving.runtime.log_view import ControlLogView
from calving.runtime.preflight import ledger_key, ledger_of, own_tables
from calving.runtime.routed import routed_tables
from calving.settings.keys import LOOPBACK, SinkKeys
from calving.settings.load import Sink
from calving.threads import LateError, within


@dataclass(frozen=True, slots=True)
class TableHealth:
    """``state``: ok; waiting for the next commit; missing, if there is no such table; or DEGRADED. A table is DEGRADED
    if several cycles have not committed its files, entries are parked, offsets are missing, it was rolled back, or it
    cannot be loaded.
    """

    name: str
    state: str
    records: int | None = None
    committed_at: float | None = None
    """When the sink last committed to the table."""
    cycles: int = 0
    """Commit cycles that have ended without committing the waiting files."""
    files: int = 0
    buffered_since: float | None = None
    """When the oldest of the waiting files was announced, in seconds since the epoch; None if nothing waits, or if the
    control log does not tell.
    """
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
        since, files = _since(waiting), _files(waiting)
        return TableHealth(name, state, cycles=cycles, files=files, buffered_since=since, parked=parked, why=why)
    key = ledger_key(sink, heard.log_id, name)
    loaded = LoadedTable(table, key.branch)
    try:
        ledger = ledger_of(key, table)
    except ConfigError as error:  # it is unknown which of the announced files the table holds already
        return TableHealth(name, "DEGRADED", parked=parked, why=str(error))
    waiting, rolled_back = heard.waiting(table_id(name), ledger.control), RolledBack.of(ledger.unanswered, ledger.doubt)
    cycles, missing = heard.cycles(waiting), heard.passed_over(key, table)
    head = next(iter(loaded.ancestry), {})
    changed = next((summary for summary in loaded.ancestry if mutations_in(summary)), {})
    refused = refusal(table.metadata, rewrites=sink.mutations(name) is not None, branch=key.branch)
    return TableHealth(
        name=name,
        state="DEGRADED"
        if cycles >= DEGRADED or missing or parked or refused or rolled_back
        else "waiting"
        if waiting
        else "ok",
        records=natural(head.get("total-records", "0")),
        committed_at=_last_commit(table, key),
        cycles=cycles,
        files=_files(waiting),
        buffered_since=_since(waiting),
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


def _since(entries: Iterable[Envelope]) -> float | None:
    return min((each.at_us / 1e6 for each in entries if each.at_us and is_moment(each.at_us // 1000)), default=None)


def _last_commit(table: Table, key: LedgerKey) -> float | None:
    for snapshot in ancestors(table.metadata, key.branch):
        if snapshot.summary is not None and key.offsets in snapshot.summary.additional_properties:
            return snapshot.timestamp_ms / 1000
    return None


_SECONDS, _ALL_SECONDS = 2.0, 5.0
"""The time for each part of an answer, and for all of it."""
_MOST_BYTES = 4 * 1024 * 1024
_UNREADABLE = (OSError, HTTPException, LateError, ValueError, LookupError, TypeError, OverflowError, RecursionError)
"""What a server that is none of calving's has an answer fail with: the control log may name any."""


def read_token(leader: Leader | None, keys: SinkKeys) -> str | None:
    """The token with which this machine may read from the leader's status server. The leader's URL comes from the
    control log, so only a server that the settings name, too, gets it.
    """
    if leader is None:
        return None
    try:
        url = urlsplit(leader.url)
        is_here = url.hostname in LOOPBACK and url.port == keys.http_port
    except ValueError:  # no URL, or no port
        return None
    is_named = url.hostname in {name.lower() for name in keys.http_allowed_hosts}
    return keys.http_read_token if is_here or is_named else None


def reasons_of(leader: Leader | None, sink: str, token: str | None = None) -> list[tuple[str, str, str]] | None:
    """The cause, the subject and the sentence of each reason, from the leader's status server; None if the server does
    not answer.
    """
    with contextlib.suppress(*_UNREADABLE):
        connector = _fetched(leader, f"connectors/{quote(sink, safe='')}/status", token)
        reasons = connector["calving"]["reasons"]
        return [(str(each["cause"]), str(each["subject"]), str(each["text"])) for each in reasons]
    return None


def commit_seconds_of(leader: Leader | None, token: str | None = None) -> dict[tuple[str, str], float] | None:
    """How long the catalog took for the last commit of each table that changed rows, by the table and the id of the
    commit. The times come from the leader's status server; None if the server does not answer, or has a version without
    these times.
    """
    with contextlib.suppress(*_UNREADABLE):
        changes = [each["last_change"] for each in _fetched(leader, "api/tables", token)]
        said = {(str(c["table"]), str(c["commit_id"])): float(c["steps"]["commit"]) for c in changes if c is not None}
        return {commit: seconds for commit, seconds in said.items() if math.isfinite(seconds)}
    return None


def last_cycle_of(leader: Leader | None, token: str | None = None) -> dict[str, Any] | None:
    """The last commit cycle of the leader, with the seconds of its steps, from its status server; None if the server
    does not answer, or has a version that does not tell the steps, or no cycle has ended since the leader leads.
    """
    with contextlib.suppress(*_UNREADABLE):
        cycle = _fetched(leader, "api/commits", token)[0]
        steps = {str(step): float(seconds) for step, seconds in cycle["steps"].items()}
        return {
            "outcome": str(cycle["outcome"]),
            "seconds": float(cycle["seconds"]),
            "steps": {step: seconds for step, seconds in steps.items() if math.isfinite(seconds)},
        }
    return None


@dataclass(frozen=True, slots=True)
class Maintained:
    """What the leader's maintenance does at a table, and did last. Times are seconds since the epoch."""

    running_since: float | None
    task: str = ""
    outcome: str = ""
    text: str = ""
    ended_at: float | None = None
    due_since: float | None = None
    due_files: int = 0
    due_bytes: int = 0


def maintained_of(sink: Sink, leader: Leader | None, token: str | None = None) -> dict[str, Maintained] | None:
    """The maintenance of each table at which the leader has looked, from its status server; None if the sink asks for
    none, or the server does not answer, or has a version without maintenance.
    """
    if not sink.maintains_any:
        return None
    with contextlib.suppress(*_UNREADABLE):
        tables = [(str(each["table"]), each["maintenance"]) for each in _fetched(leader, "api/tables", token)]
        return {table: _maintained(told) for table, told in tables if told is not None}
    return None


def _maintained(told: Mapping[str, Any]) -> Maintained:
    since, last, due = told["running_since"], told["last"], told.get("due")
    found = Maintained(None if since is None else float(since))
    if last is not None:
        task, outcome, text = (str(last[name]) for name in ("task", "outcome", "text"))
        found = replace(found, task=task, outcome=outcome, text=text, ended_at=float(last["ended_at"]))
    if due is not None:  # an earlier version of the leader does not tell it
        found = replace(found, due_since=float(due["since"]), due_files=int(due["files"]), due_bytes=int(due["bytes"]))
    return found


def _fetched(leader: Leader | None, path: str, token: str | None) -> Any:
    """The server's answer.

    :raises Exception: one of ``_UNREADABLE``, if the server does not answer.
    """
    if leader is None or not _reachable(leader):
        raise OSError("there is nobody to ask")
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    request = Request(f"{leader.url.rstrip('/')}/{path}", headers=headers)  # noqa: S310 - see below
    return json.loads(within(_ALL_SECONDS, "calving-leader", lambda: _read(request)))


def _read(request: Request) -> bytes:
    with _OPENER.open(request, timeout=_SECONDS) as answer:
        return bytes(answer.read(_MOST_BYTES))


class _NoRedirects(HTTPRedirectHandler):
    """Fails on a redirect. Another server would get the token, too."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)


def _reachable(leader: Leader) -> bool:
    """Whether the URL is an http URL without a query, which this machine can reach. A loopback address works only on
    the leader's machine.
    """
    url = urlsplit(leader.url)
    local = url.hostname in LOOPBACK
    is_plain = url.scheme in ("http", "https") and not (url.query or url.fragment)
    return is_plain and (not local or leader.host == socket.gethostname())
