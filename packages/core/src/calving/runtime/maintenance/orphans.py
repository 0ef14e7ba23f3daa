"""Deletes the orphan files of a sink's tables: files of failed attempts that nothing names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import cached_property
from uuid import uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.backend.interface import Session
from calving.errors import CalvingError, TableTroubleError
from calving.iceberg.catalog import find_table, table_id, tables_of
from calving.iceberg.expiry import GC_ENABLED
from calving.iceberg.loading import look_for
from calving.iceberg.locations import OWN_LOCATIONS
from calving.iceberg.maintenance import rolled_back
from calving.maintenance.orphan_search import OrphanSearch, delete
from calving.maintenance.orphans import StoredFile, folders, owners, table_within
from calving.model.text import bytes_text, counted
from calving.runtime.maintenance.step import MaintenanceStep
from calving.runtime.preflight import file_rules, ledger_key, own_tables, owner_of
from calving.settings.backfills import backfills_among
from calving.settings.load import Sink

ORPHANS = "orphans"
_SHOWN, _IN_JSON = 5, 1_000


class OrphanTask:
    """The task for all tables of one run. ``sinks``: those whose control logs are read, first the tables' own."""

    def __init__(self, catalog: Catalog, sinks: Sequence[Sink], now_ms: int, *, dry_run: bool) -> None:
        self._catalog, self._sinks, self._now_ms, self._dry_run = catalog, sinks, now_ms, dry_run
        self._sessions: dict[str, Session] = {}
        self._open = ExitStack()

    def close(self) -> None:
        self._open.close()

    def run(self, name: str) -> Iterator[MaintenanceStep]:
        """Delete the orphan files of a table, or tell which these are; yields what was done, or why nothing was."""
        table = find_table(self._catalog, table_id(name))
        if table is None:
            yield _step(name, "nothing", "no orphan files")
        elif (why := self._refusal(name, table)) is not None:
            yield _step(name, "left alone", f"orphan files stay: {why}")
        else:
            try:
                yield self._searched(name, table)
            except CalvingError as error:
                yield _step(name, "failed", f"orphan files stay: {error}")

    def _refusal(self, name: str, table: Table) -> str | None:
        metadata, sink = table.metadata, self._sinks[0]
        if metadata.properties.get(GC_ENABLED, "").lower() == "false":
            return f"its property {GC_ENABLED} is false"
        if (why := rolled_back(table, ledger_key(sink, "", name))) is not None:
            return why
        try:
            within = table_within(folders(metadata, file_rules(sink)), self._others(name))
        except CalvingError as error:
            return f"it is unknown whether another table lies in its folders: {error}"
        return None if within is None else f"its location contains files of table {within}"

    def _others(self, name: str) -> Mapping[str, Collection[str]]:
        """The location of each other table of the catalog, and its folders."""
        return {other: places for other, places in self._places.items() if other != name}

    @cached_property
    def _places(self) -> Mapping[str, Collection[str]]:
        """:raises CalvingError: a table cannot be loaded, so it may be anywhere."""
        sink, places, listed = self._sinks[0], {}, tables_of(self._catalog)
        if (dotted := next((table for table in listed if any("." in level for level in table)), None)) is not None:
            raise TableTroubleError(f"table {'.'.join(dotted)} cannot be loaded: a level of its name has a dot")
        for name, table in look_for(self._catalog, map(".".join, listed)).items():
            if isinstance(table, CalvingError):
                raise table
            if table is not None:
                is_own = name in own_tables(sink) or owner_of(sink) in owners(table.metadata)
                rules = file_rules(sink) if is_own else OWN_LOCATIONS
                places[name] = (table.metadata.location, *folders(table.metadata, rules))
        return places

    def _searched(self, name: str, table: Table) -> MaintenanceStep:
        sink = self._sinks[0]
        search = OrphanSearch(self._catalog, table_id(name), file_rules(sink), self._logs(table))
        age = int(sink.maintenance(name, "orphans_older_than_ms"))
        tally = _Tally(name)
        if not self._dry_run:
            search.check_clock(table)
        for part in search.orphans(age, self._now_ms):
            tally.found(part)
            if not self._dry_run:
                done = delete(self._catalog.load_table(table_id(name)).io, part)
                tally.failed += done.failed
                tally.failure = tally.failure or done.failure
        return tally.step(search.looked_at, dry_run=self._dry_run)

    def _logs(self, table: Table) -> Mapping[str, Session]:
        for sink in (*self._sinks, *backfills_among(self._sinks, owners(table.metadata))):
            if owner_of(sink) not in self._sessions:
                # A log that has lost entries may have named files in them: the task stops there.
                settings = sink.backend_settings.model_copy(update={"on_truncation": "fail"})
                session = sink.backend(sink.identity, settings).open(str(uuid4()))
                self._sessions[owner_of(sink)] = self._open.enter_context(closing(session))
        return self._sessions


class _Tally:
    """What was found in a table."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = self._size = self.failed = 0
        self.failure = ""
        self._kinds: Counter[str] = Counter()
        self._oldest: int | None = None
        self._paths: list[str] = []

    def found(self, files: Sequence[StoredFile]) -> None:
        self._count += len(files)
        self._size += sum(file.size for file in files)
        self._kinds.update(map(_kind, files))
        times = [file.modified_ms for file in files if file.modified_ms is not None]
        self._oldest = min((*times, *([self._oldest] if self._oldest is not None else [])), default=None)
        self._paths += [file.path for file in files[: _IN_JSON - len(self._paths)]]

    def step(self, looked_at: int, *, dry_run: bool) -> MaintenanceStep:
        numbers = {"files": self._count, "bytes": self._size, "looked_at": looked_at, "paths": self._paths}
        of_all = f"{counted(looked_at, 'file')} looked at"
        if not self._count or self._oldest is None:
            return _step(self._name, "nothing", f"no orphan files, {of_all}", numbers)
        kinds = ", ".join(counted(count, kind) for kind, count in sorted(self._kinds.items()))
        oldest = datetime.fromtimestamp(self._oldest / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
        text = (
            f"{counted(self._count, 'orphan file')} ({bytes_text(self._size)}: {kinds}; the oldest of {oldest})"
            f" {'would be ' if dry_run else ''}deleted, {of_all}"
        )
        if dry_run:
            shown = "".join(f"\n  {path}" for path in self._paths[:_SHOWN])
            more = f"\n  and {self._count - _SHOWN} more" if self._count > _SHOWN else ""
            return _step(self._name, "planned", f"{text}, because nothing names them:{shown}{more}", numbers)
        if self.failed:
            left = f"{counted(self.failed, 'orphan file')} of {self._count} could not be deleted: {self.failure}"
            return _step(self._name, "failed", left, {**numbers, "failed": self.failed})
        return _step(self._name, "done", text, numbers)


def _kind(file: StoredFile) -> str:
    name = file.path.rpartition("/")[2]
    if name.endswith((".metadata.json", ".avro")) and "/metadata/" in file.path:
        return "metadata file"
    return "data file" if name.endswith((".parquet", ".orc", ".avro")) else "other file"


def _step(name: str, outcome: str, text: str, numbers: Mapping[str, object] | None = None) -> MaintenanceStep:
    return MaintenanceStep(name, ORPHANS, outcome, text, numbers or {})
