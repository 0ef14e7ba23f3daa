"""Shows what would become of some records: tables, partitions, bad records. Only a temporary folder is written.

The records are processed as usual, but are written into copies of the tables without data.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote_plus

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2

from calving.engine.interface import LocalEngine
from calving.errors import ConfigError, UnavailableError
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.iceberg.rules import TableRules
from calving.iceberg.tables import Tables
from calving.model.dead_letters import DeadLetter
from calving.model.events import TableFiles
from calving.model.offsets import Span, TopicPartition
from calving.model.record_path import RecordPath, Tolerance
from calving.model.tables import PARTITIONED
from calving.model.text import counted
from calving.runtime import components
from calving.runtime.batch import BatchRunner, ErrorLimits
from calving.runtime.checks import check_settings
from calving.runtime.parts import record_path, table_rules
from calving.settings.load import Sink
from calving.source.interface import Source

_PLACES = ("write.data.path", "write.metadata.path", "write.object-storage.enabled", "format-version")
"""Properties that would make files outside of the temporary folder, or need a REST catalog."""
_EVERYTHING = 10**9


@dataclass(frozen=True, slots=True)
class TablePreview:
    """A table as it would be after these records. ``before`` is None if the table would be created."""

    name: str
    before: Schema | None
    after: Schema
    rows: int
    partitions: Mapping[str, int]
    """Rows by partition, named like the partition's folders; for landed rows, those into which they are moved later. An
    unpartitioned table has one entry with an empty name.
    """


@dataclass(frozen=True, slots=True)
class UnreadableTable:
    """A table that cannot be loaded now, so that nobody can say what would become of its ``records``."""

    name: str
    why: str
    records: int


@dataclass(frozen=True, slots=True)
class Preview:
    """The outcome for the records that were read."""

    read: int
    tables: tuple[TablePreview, ...]
    filtered: Mapping[str, int]
    bad: tuple[DeadLetter, ...]
    unreadable: tuple[UnreadableTable, ...] = ()


def preview(sink: Sink, records: int) -> Preview:
    """The preview of at most ``records`` of the newest records.

    :raises CalvingError: the settings are wrong, or the broker or the catalog cannot be reached.
    """
    check_settings(sink)
    topics = components.source(sink)
    every = topics.partitions()
    if not every:
        raise ConfigError(f"topics.regex = {sink.keys.topics_regex} matches no topic")
    spans = newest(topics, every, records)
    theirs = components.catalog(sink)
    with tempfile.TemporaryDirectory(prefix="calving-preview-") as folder:
        copies = _Copies(theirs, Path(folder))
        runner = BatchRunner(LocalEngine(), _Tables(copies, _rules(sink, topics)), _path(sink), _NO_LIMITS)
        try:
            outcome = runner.run(spans)
            filtered = dict(runner.totals.records.filtered)
        finally:
            runner.close()
        tables = [copies.shown(".".join(table.identifier), files) for table, files in outcome.written.items()]
        tables.sort(key=lambda t: t.name)
        return _told(Preview(outcome.records, tuple(tables), filtered, outcome.dead_letters), copies.unreadable)


def _told(found: Preview, why: Mapping[str, UnavailableError]) -> Preview:
    """The preview without guesses about tables that cannot be loaded: their records went to new tables instead, or were
    bad for want of a table.
    """
    records = Counter({table.name: table.rows for table in found.tables if table.name in why})
    bad: list[DeadLetter] = []
    for letter in found.bad:
        name = next((n for n in why if letter.reason.startswith((f"table {n} ", f"table {n}:"))), None)
        if name is None:
            bad.append(letter)
        else:
            records[name] += 1
    return replace(
        found,
        tables=tuple(table for table in found.tables if table.name not in why),
        bad=tuple(bad),
        unreadable=tuple(UnreadableTable(name, str(error), records[name]) for name, error in sorted(why.items())),
    )


_NO_LIMITS = ErrorLimits(per_batch=_EVERYTHING, share=1.0)


def newest(topics: Source, every: Collection[TopicPartition], records: int) -> dict[TopicPartition, Span]:
    """The last offsets of the partitions, about the same number of each. If a partition has fewer, the others get
    more.
    """
    bounds = topics.bounds(every)
    spans: dict[TopicPartition, Span] = {}
    left = records
    by_size = sorted(every, key=lambda tp: (bounds.ends[tp] - bounds.begins[tp], tp))
    for number, tp in enumerate(by_size):
        count = min(bounds.ends[tp] - bounds.begins[tp], left // (len(by_size) - number))
        left -= count
        if count:
            spans[tp] = Span(bounds.ends[tp] - count, bounds.ends[tp])
    return spans


def _path(sink: Sink) -> RecordPath:
    """The sink's record path, but without settings that would stop at an error, so that all errors are shown."""
    path = record_path(sink)
    routing = path.routing
    if routing.unrouted == "fail":
        routing = replace(routing, unrouted="dead-letter")
    if routing.missing_table == "fail":
        routing = replace(routing, missing_table="dead-letter")
    return replace(path, routing=routing, tolerance=Tolerance("topic", path.tolerance.table, _EVERYTHING))


def _rules(sink: Sink, topics: Source) -> TableRules:
    rules = table_rules(sink, topics)
    return replace(
        rules,
        write_properties=_staying(rules.write_properties),
        create_properties=_staying(rules.create_properties),
        tables={name: replace(t, location=None, landing=PARTITIONED) for name, t in rules.tables.items()},
        defaults=replace(rules.defaults, landing=PARTITIONED),
        tolerates=True,
    )


def _staying(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in _PLACES}


class _Copies:
    """A catalog with empty copies of the tables to which records go."""

    def __init__(self, theirs: Catalog, folder: Path) -> None:
        self._theirs, self._folder = theirs, folder
        self.catalog = open_catalog("preview", {"type": "embedded", "warehouse": str(folder)})
        self._before: dict[str, Schema | None] = {}
        self.unreadable: dict[str, UnavailableError] = {}
        """Tables that cannot be loaded, and why. They have no copies."""

    def copy(self, name: str) -> None:
        """Make the copy of a table once, if the table exists."""
        if name in self._before or name in self.unreadable:
            return
        try:
            original = find_table(self._theirs, table_id(name))
        except UnavailableError as error:
            self.unreadable[name] = error
            return
        self._before[name] = None if original is None else original.schema()
        if original is None:
            return
        *namespace, _ = table_id(name)
        for depth in range(1, len(namespace) + 1):
            with suppress(NamespaceAlreadyExistsError):
                self.catalog.create_namespace(tuple(namespace[:depth]))
        where = f"file://{self._folder}/copies/{len(self._before)}"
        place = f"{where}/metadata/00000-copy.metadata.json"
        ToOutputFile.table_metadata(_empty(original, where), load_file_io({}, place).new_output(place))
        self.catalog.register_table(table_id(name), place)

    def shown(self, name: str, written: Sequence[TableFiles]) -> TablePreview:
        after = self.catalog.load_table(table_id(name)).schema()
        rows: Counter[str] = Counter()
        for file in (file for files in written for file in files.data_files):
            folders = f"{file.file_path.rpartition('/')[0]}/".rpartition("/data/")[2].strip("/")
            rows[unquote_plus(folders)] += file.record_count
        return TablePreview(name, self._before.get(name), after, sum(rows.values()), dict(rows))


def _empty(table: Table, where: str) -> TableMetadata:
    """The table's metadata without data, at another location. It has format version 2, which every catalog accepts."""
    raw = table.metadata.model_dump(by_alias=True, mode="json")
    gone = ("snapshots", "snapshot-log", "metadata-log", "refs", "statistics", "partition-statistics")
    raw |= {name: {} if name == "refs" else [] for name in gone}
    raw |= {"location": where, "format-version": 2, "current-snapshot-id": None, "last-sequence-number": 0}
    raw["properties"] = _staying(raw["properties"])
    return TableMetadataV2.model_validate(raw)


class _Tables(Tables):
    """Tables of the copies. A copy is made at its first use."""

    def __init__(self, copies: _Copies, rules: TableRules) -> None:
        super().__init__(copies.catalog, "preview", rules)
        self._copies = copies

    def refresh(self, names: Iterable[str]) -> None:
        wanted = sorted(names)
        for name in wanted:
            self._copies.copy(name)
        super().refresh(wanted)


def as_text(found: Preview, *, tolerates: bool) -> Iterator[str]:
    """The preview as text for people. ``tolerates``: whether bad records become dead letters."""
    newest = counted(found.read, "record, the newest one", "records, the newest ones")
    yield f"read {newest}; nothing was written"
    for table in found.tables:
        yield from ("", *_table_text(table))
    for each in found.unreadable:
        yield from ("", f"{each.why}; its records were not looked at: {each.records}")
    if found.filtered:
        yield from ("", "filtered: " + ", ".join(f"{count} {cause}" for cause, count in found.filtered.items()))
    if found.bad:
        fate = "dead letters" if tolerates else "errors.tolerance = none: the first of them stops the sink"
        yield from ("", f"bad records: {len(found.bad)} ({fate})")
        yield from (
            f"  {letter.topic}[{letter.partition}] offset {letter.offset}: {letter.reason}"
            for letter in found.bad[:_SHOWN]
        )
        if len(found.bad) > _SHOWN:
            yield f"  and {len(found.bad) - _SHOWN} more"


_SHOWN = 10


def _table_text(table: TablePreview) -> Iterator[str]:
    """The text about a table. A plus marks new columns, and an exclamation mark columns whose type changes."""
    before = {} if table.before is None else {f.name: f for f in table.before.fields}
    lines = []
    for field in table.after.fields:
        known = before.get(field.name)
        sign = "+" if known is None else " " if str(known.field_type) == str(field.field_type) else "!"
        lines.append((sign, f"  {sign} {field.name} {field.field_type}{' required' if field.required else ''}"))
    changes = sum(sign != " " for sign, _ in lines)
    state = "would be created" if table.before is None else f"exists, columns that change: {changes}"
    yield f"table {table.name}: {state}, rows: {table.rows}"
    yield from (line for _, line in lines)
    if [*table.partitions] not in ([], [""]):
        yield f"  partitions: {len(table.partitions)}"
        largest = sorted(table.partitions.items(), key=lambda item: (-item[1], item[0]))
        yield from (f"    {name}, rows: {rows}" for name, rows in largest[:_SHOWN])
        if len(largest) > _SHOWN:
            yield f"    and {len(largest) - _SHOWN} more"
