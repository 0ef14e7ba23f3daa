"""Searches for orphan files in tables that a sink of a control log in memory writes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import Session
from calving.backend.memory import MemorySession, MemoryStore
from calving.iceberg.catalog import table_id
from calving.iceberg.locations import OWN_LOCATIONS, FileRules
from calving.maintenance.orphan_search import AT_ONCE, OrphanSearch, delete
from calving.model.events import DataComplete, DataWritten, Publication, TableReference
from calving.model.files import DataFile, file_name
from calving.model.offsets import Advance, Span, TopicPartition
from calving.model.sink import Claim

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
OWNER = "control.connect-x"


def log_store() -> MemoryStore:
    return MemoryStore(1, identity="log-1")


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def age(folder: str | Path, days: float = 4) -> None:
    """All files below are as old as this, by the clock of the tests."""
    at = NOW_MS / 1000 - days * 86_400
    for path in path_of(str(folder)).rglob("*"):
        os.utime(path, (at, at))


def left_over(table: Table, name: str = "", folder: str = "data") -> Path:
    """A file that nothing names; as old as all others."""
    path = path_of(table.location()) / folder / (name or file_name(0, uuid4(), 1, "", "parquet"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"left")
    age(path_of(table.location()))
    return path


def data_file(path: Path | str) -> DataFile:
    return DataFile(f"file://{path}" if isinstance(path, Path) else path, "PARQUET", 1, 4)


def publish(store: MemoryStore, table: Table, *files: Path | str, is_whole: bool = True, at: int = 0) -> None:
    reference = TableReference("c", table.name()[:-1], table.name()[-1], table.metadata.table_uuid)
    written = DataWritten(uuid4(), reference, tuple(map(data_file, files)))
    source = TopicPartition("orders", 0)
    events = (written, DataComplete(written.commit_id)) if is_whole else (written,)
    advances, spans = {source: Advance(at or None, at + 1)}, {source: (Span(at, at + 1),)}
    MemorySession(store, "w").publish(Publication(events, advances, spans), Claim("w", 1))


def searching(
    catalog: Catalog,
    name: str,
    logs: Mapping[str, MemoryStore] | None = None,
    rules: FileRules = OWN_LOCATIONS,
    at_once: int = AT_ONCE,
) -> OrphanSearch:
    stores = {OWNER: log_store()} if logs is None else logs
    sessions: dict[str, Session] = {owner: MemorySession(store, "o") for owner, store in stores.items()}
    return OrphanSearch(catalog, table_id(name), rules, sessions, at_once=at_once)


def orphans(search: OrphanSearch, days: int = 3) -> set[str]:
    """The names of the orphan files."""
    return {f.path.rpartition("/")[2] for part in search.orphans(days * DAY_MS, NOW_MS) for f in part}


def deleted(search: OrphanSearch, table: Table, days: int = 3) -> int:
    return sum(delete(table.io, part).count for part in search.orphans(days * DAY_MS, NOW_MS))
