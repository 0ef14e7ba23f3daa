"""The changes of a table whose rows change, as ``calving audit --full`` replays them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from calving.audit.comparison import RowComparison
from calving.audit.ledgers import Partition
from calving.audit.metadata import TableMetadataFile
from calving.audit.replay import KeyChange, KeyReplay
from calving.audit.rows import PlainRow, key_of, row_digest
from calving.audit.versions import VersionedChange, VersionIds, VersionReplay
from calving.audit.whole_rows import PartialChange, WholeRows
from calving.model.tables import VERSION_COLUMNS, RowMutations, TableSpec
from calving.records.fields import table_schema
from calving.records.positions import order_keys
from calving.runtime.reread import RereadRows
from calving.writing.changes import DELETE, INSERT, TRUNCATE, identity_of
from calving.writing.kept_columns import kept_ids, kept_steps
from calving.writing.sources import truncate_column

Paths = list[tuple[int, ...]]


class _Record(NamedTuple):
    """A record, and its row. ``order``: the value of the order field."""

    partition: Partition
    offset: int
    row: PlainRow
    order: Any


@dataclass(frozen=True, slots=True)
class AuditedChanges:
    """``paths``: those of the id columns. ``source``: that of the truncate-field, if the table has one. ``whole``: the
    rows of a table whose updates may lack columns. ``versions``: of a table that keeps the versions of its rows, whose
    changes ``replay`` does not get.
    """

    spec: TableSpec
    mutations: RowMutations
    paths: Paths
    source: Paths
    replay: KeyReplay
    whole: WholeRows | None
    versions: VersionReplay | None

    @staticmethod
    def of(spec: TableSpec | None, metadata: TableMetadataFile, *, is_whole: bool) -> AuditedChanges | None:
        """None: rows are only appended. ``is_whole``: all records that have made rows are read, and nobody else has."""
        if spec is None or spec.mutations is None:
            return None
        mutations, schema = spec.mutations, table_schema(spec.schema_json)
        paths = [tuple(metadata.paths[number]) for number in identity_of(spec).ids]
        truncate = truncate_column(spec.name, schema, mutations)
        source = [] if truncate is None else [tuple(metadata.paths[truncate.field_id])]
        whole, versions = None, None
        if mutations.keeps:
            whole = WholeRows(metadata.paths, mutations.on_missing_row == "skip", is_whole)
        ordered = mutations.order_field is not None
        if mutations.has_versions:
            ids = (schema.find_field(name, case_sensitive=False).field_id for name in VERSION_COLUMNS)
            versions = VersionReplay(VersionIds(*ids), ordered=ordered)
        replay = KeyReplay(ordered=ordered)
        return AuditedChanges(spec, mutations, paths, source, replay=replay, whole=whole, versions=versions)

    @property
    def ordered(self) -> bool:
        """Whether an order field decides."""
        return self.mutations.order_field is not None

    @property
    def appends(self) -> bool:
        """Whether inserts leave earlier rows of their keys."""
        return self.mutations.inserts == "append"

    @property
    def made(self) -> str:
        """What is compared, in plural."""
        return "keys have a row" if self.versions is None else "versions of rows"

    def named(self, row: PlainRow) -> bytes:
        """The digests of a row's key and of the row."""
        return key_of(row, self.paths) + row_digest(row)

    def see(self, part: RereadRows, rows: list[PlainRow]) -> None:
        """The changes that records make."""
        partition = part.tp.topic, part.tp.partition
        order = identity_of(self.spec).order
        orders = (
            [None] * len(rows)
            if order is None
            else order_keys(order.of(part.rows), self.mutations.order_type).to_pylist()
        )
        operations, kept = part.operations or [], part.kept or []
        for offset, row, operation, lacks, value in zip(part.offsets, rows, operations, kept, orders, strict=True):
            record = _Record(partition, offset, row, value)
            if operation == TRUNCATE:
                self._empty(record)
            else:
                is_gone = operation == DELETE and self.mutations.delete_mode == "hard"
                replaces = operation != INSERT or not self.appends
                self._change(record, is_gone=is_gone, replaces=replaces, lacks=lacks)

    def _empty(self, record: _Record) -> None:
        partition, offset = record.partition, record.offset
        self.replay.empty(partition, offset, self._source(record.row))
        if self.whole is not None:
            self.whole.see(PartialChange(partition, offset, None))

    def _change(self, record: _Record, *, is_gone: bool, replaces: bool, lacks: str | None) -> None:
        """``lacks``: the text of what a partial row lacks."""
        partition, offset, row, order = record
        key = key_of(row, self.paths)
        if self.versions is not None:
            self.versions.see(key, VersionedChange(partition, offset, row, is_gone, order))
        elif self.whole is not None:
            self.whole.see(PartialChange(partition, offset, key, None if is_gone else row, _lacking(lacks)))
        else:
            digest = None if is_gone else row_digest(row)
            self.replay.see(key, KeyChange(partition, offset, digest, replaces, order, self._source(row)))

    def _source(self, row: PlainRow) -> bytes | None:
        return key_of(row, self.source) if self.source else None

    def expect(self, comparison: RowComparison, *, is_whole: bool, is_alone: bool) -> None:
        """The rows that all changes leave. ``is_alone``: no other writer changes rows of their keys."""
        if is_alone and is_whole and not (comparison.unread and self.appends):
            comparison.keys = self.replay if self.versions is None else self.versions
        if self.whole is not None:
            self._complete(self.whole)
        unknown = self._unknown()
        comparison.leave_out(unknown)
        for key, outcomes in self._rows(is_whole=is_whole):
            if key not in unknown:
                comparison.expect(outcomes, key)

    def _complete(self, whole: WholeRows) -> None:
        for key, made in whole.replayed():
            digest = None if made.row is None else row_digest(made.row)
            self.replay.see(key, KeyChange(made.partition, made.offset, digest))

    def _rows(self, *, is_whole: bool) -> Iterator[tuple[bytes, Sequence[KeyChange]]]:
        if self.versions is None:
            yield from self.replay.rows(whole=is_whole)
            return
        for key, made in self.versions.rows():
            yield key, [KeyChange(made.partition, made.offset, row_digest(made.row))]

    def _unknown(self) -> set[bytes]:
        """The keys whose rows the records alone do not tell."""
        if self.versions is not None:
            return self.versions.unknown()
        return set() if self.whole is None else self.whole.unknown()


def _lacking(text: str | None) -> Collection[int] | None:
    """The columns that a row lacks; None if it lacks parts of lists."""
    if text is None:
        return ()
    return None if kept_steps(text) else kept_ids(text)
