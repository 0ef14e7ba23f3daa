"""``calving audit``: which tables are judged, and what is said of them. ``calving.audit`` judges."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.table import Table

from calving.audit.ledgers import CONTROL, Partition, count, named, ranges_text
from calving.audit.lines import SinkLine
from calving.audit.metadata import TableMetadataFile
from calving.audit.records import FoundRecord, find_record
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.table import TableAudit, TableAuditor
from calving.cli.audited_letters import letter_audit
from calving.cli.audited_rows import compare
from calving.errors import CommandFailedError, ConfigError
from calving.iceberg.catalog import find_table, table_id, tables_of
from calving.model.offsets import TopicPartition
from calving.model.text import counted
from calving.runtime import components
from calving.settings.load import Sink
from calving.source.start import record_at

_TRIES = 3
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class AuditOrder:
    """What to audit. ``sample``: how many files of each table are read as a whole. ``at``: a snapshot."""

    tables: Collection[str] = ()
    at: int | None = None
    sample: int = 0
    full: bool = False
    """Whether all files are read as a whole, and the records of the topics once more."""


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """What is said of a table, or of where a record is: for programs, and for people."""

    found: Mapping[str, Any]
    lines: Iterable[str]
    is_well: bool = True


def shown(sink: Sink, order: AuditOrder, record: str | None = None) -> Iterator[AuditAnswer]:
    """The answers of the command. With a ``record``, ``topic:partition=offset``, nothing is judged.

    :raises ConfigError: the options do not go together, or there is no such table, snapshot or record.
    :raises UnavailableError: catalog or store do not answer.
    """
    if order.full and (order.sample or record is not None):
        raise ConfigError("--full reads everything: leave --sample and --offset out")
    if record is None:
        tables = []
        for found in audit(sink, order):
            tables.append(found)
            yield AuditAnswer(found.json(), as_text(found), not found.findings)
        if order.full and not order.tables:
            letters = letter_audit(sink, tables)
            yield AuditAnswer(letters.json(), letters.lines(), letters.is_well)
        return
    is_found = False
    for place in whereabouts(sink, order, *_record_named(record)):
        is_found = True
        yield AuditAnswer(place.json(), place.lines())
    if not is_found:
        yield AuditAnswer({"offset": record, "snapshot": None}, [f"no table has taken {record}"], is_well=False)


def audit(sink: Sink, order: AuditOrder) -> Iterator[TableAudit]:
    """Judge the tables one after the other. A sink that runs meanwhile does no harm.

    :raises ConfigError: there is no such table or snapshot. :raises UnavailableError: catalog or store do not answer.
    """
    for name, table in _tables(sink, order):
        for _ in range(_TRIES):
            metadata, store = _loaded(name, table)
            if order.at is not None and order.at not in metadata.snapshots:
                raise ConfigError(f"--at {order.at}: table {name} has no such snapshot; it may have expired")
            found = TableAuditor(store, metadata, None if order.full else order.sample).audit(name, order.at)
            if order.full:
                compare(sink, store, metadata, found)
            table = _again(sink, name)
            if not found.findings or table.metadata_location == metadata.location:
                break  # otherwise somebody has committed, and may have deleted files
        yield found


def whereabouts(sink: Sink, order: AuditOrder, tp: TopicPartition, offset: int) -> Iterator[FoundRecord]:
    """Where the record of an offset is, by the ledgers of the tables; errors as of ``audit``."""
    partition: Partition = tp.topic, tp.partition
    for name, table in _tables(sink, order):
        metadata, store = _loaded(name, table)
        try:
            yield from find_record(store, metadata, name, partition, offset, order.at)
        except (DamagedFileError, FileNotFoundError) as error:
            raise CommandFailedError(f"table {name}: {error}: `calving audit FILE --table {name}` says more") from error


def _record_named(text: str) -> tuple[TopicPartition, int]:
    """:raises ConfigError: the text names no record."""
    try:
        return record_at(text)
    except ValueError as error:
        raise ConfigError(f"--offset {error}") from error


def _tables(sink: Sink, order: AuditOrder) -> Iterator[tuple[str, Table]]:
    catalog = components.catalog(sink)
    if order.at is not None and len(order.tables) != 1:
        raise ConfigError("--at names a snapshot of one table: name the table with --table")
    for name in order.tables:
        yield name, _present(find_table(catalog, table_id(name)), name)
    if order.tables:
        return
    letters = sink.keys.dead_letter_table
    configured = [*sink.keys.tables, *([] if letters is None else [letters])]
    for name in configured:
        if (table := find_table(catalog, table_id(name))) is not None:
            yield name, table
    if sink.keys.routes_freely:
        for each in tables_of(catalog):
            name = ".".join(each)
            if name not in configured and (table := find_table(catalog, each)) is not None and _is_ours(sink, table):
                yield name, table


def _is_ours(sink: Sink, table: Table) -> bool:
    own = f"{CONTROL}{sink.keys.control_topic}.{sink.group}"
    summaries: list[Mapping[str, str]] = [
        each.summary.additional_properties for each in table.metadata.snapshots if each.summary is not None
    ]
    return any(name == own or name.startswith(f"{own}@") for each in (table.properties, *summaries) for name in each)


def _present(table: Table | None, name: str) -> Table:
    if table is None:
        raise ConfigError(f"--table {name}: there is no such table")
    return table


def _again(sink: Sink, name: str) -> Table:
    return _present(find_table(components.catalog(sink), table_id(name)), name)


def _loaded(name: str, table: Table) -> tuple[TableMetadataFile, AuditedStore]:
    store = AuditedStore(table.io)
    try:
        return TableMetadataFile.load(store, table.metadata_location), store
    except (DamagedFileError, FileNotFoundError) as error:
        raise CommandFailedError(
            f"table {name}: its metadata {table.metadata_location} cannot be read: {error}: restore this file"
        ) from error


def as_text(found: TableAudit) -> Iterator[str]:
    """The audit of a table for people."""
    verdict = "sound" if not found.findings else counted(len(found.findings), "finding")
    whole = f", {found.contents} read as a whole" if found.contents else ""
    yield (
        f"table {found.table}: {verdict}; {counted(found.snapshots, 'snapshot')},"
        f" {counted(found.files, 'file')}{whole}, {counted(found.rows, 'row')}"
    )
    for line in found.lines:
        yield from _line_text(line)
    for query in found.queries:
        where = "" if query.branch in ("", "main") else f", branch {query.branch}"
        yield (
            f"  Spark, sink {query.sink}{where}: batch {query.batch} of query {query.query};"
            f" {counted(query.batches, 'batch', 'batches')} in the snapshots left"
        )
    yield from (f"  {each}" for each in found.notes)
    yield from (f"  {each.line()}" for each in found.findings[:_SHOWN])
    if len(found.findings) > _SHOWN:
        yield f"  and {len(found.findings) - _SHOWN} more, which --json has"


def _line_text(line: SinkLine) -> Iterator[str]:
    where = f"  {line.owner}" + (f", branch {line.branch}" if line.branch not in ("", "main") else "")
    ledger = line.ledger
    if ledger is None or ledger.source is None:
        yield f"{where}: it names no source offsets, as the Java sink does"
        return
    for partition, ranges in sorted(line.held().items()):
        takers = sum(partition in each.offsets for each in line.taken)
        missing = ledger.missing.get(partition, ())
        gone = line.gone.get(partition, ())
        lacks = f"; lacks {ranges_text(missing)}, not committed yet" if missing else ""
        lacks += f"; {ranges_text(gone)} left by a rollback" if gone else ""
        held = f"{ranges_text(ranges) or 'no offset'} of {named(partition)} ({count(ranges)})"
        yield f"{where}: holds {held}, taken by {counted(takers, 'snapshot')} of those left{lacks}"
