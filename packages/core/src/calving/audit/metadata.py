"""The metadata file of a table, and what is wrong in itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.transforms import result_kind
from calving.audit.values import TableColumn, column_paths, primitive_columns

_GZIP = b"\x1f\x8b"
MAIN = "main"
_EARLIER = 20
"""How many earlier versions of the metadata are read, at most."""


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """A snapshot as the metadata describes it."""

    id: int
    parent: int | None
    sequence: int
    manifest_list: str | None
    summary: Mapping[str, str]
    schema_id: int | None
    first_row_id: int | None
    added_rows: int | None
    time: int | None

    @property
    def lasting(self) -> Mapping[str, object]:
        """What no later version of the metadata changes, by name."""
        of_summary = {f"{name} in its summary": text for name, text in self.summary.items()}
        return {
            "sequence number": self.sequence,
            "manifest list": self.manifest_list,
            "parent": self.parent,
            "schema": self.schema_id,
            "first row id": self.first_row_id,
            "time": self.time,
            **of_summary,
        }

    def changed(self, before: SnapshotState) -> str | None:
        """What is not as in an earlier version of the metadata. The expiry of a parent may remove its id."""
        now = self.lasting
        return next(
            (
                name
                for name, was in before.lasting.items()
                if now.get(name) != was and not (name == "parent" and self.parent is None)
            ),
            None,
        )

    @property
    def name(self) -> str:
        """The snapshot in a text."""
        return f"snapshot {self.id}"


@dataclass(frozen=True, slots=True)
class SpecField:
    """A field of a partition spec. ``kind``: the type of its values; empty if the source column is not known."""

    name: str
    source_id: int
    transform: str
    source_kind: str
    kind: str


class TableMetadataFile:
    """One version of a table's metadata."""

    def __init__(self, location: str, raw: Mapping[str, Any]) -> None:
        self.location, self._raw = location, raw
        self.version: int = raw["format-version"]
        self.properties: Mapping[str, str] = raw.get("properties") or {}
        self.snapshots = {each.id: each for each in map(_snapshot, raw.get("snapshots") or ())}
        self.next_row_id: int | None = raw.get("next-row-id")
        self.columns: Mapping[int, TableColumn] = primitive_columns(raw.get("schemas") or [raw["schema"]])

    @classmethod
    def load(cls, store: AuditedStore, location: str) -> TableMetadataFile:
        """:raises DamagedFileError: it is no metadata of a table. For other errors see ``AuditedStore``."""
        content = store.read(location)
        try:
            return cls(location, json.loads(gzip.decompress(content) if content[:2] == _GZIP else content))
        except Exception as error:  # whatever is in it
            raise DamagedFileError(f"it is no metadata of a table: {type(error).__name__}: {error}") from error

    @property
    def schema(self) -> Mapping[str, Any]:
        """The current schema."""
        current = self._raw.get("current-schema-id")
        found: Mapping[str, Any] = next(
            (each for each in self._raw.get("schemas") or () if each.get("schema-id") == current), {}
        )
        return found or self._raw["schema"]

    @cached_property
    def paths(self) -> Mapping[int, Sequence[int]]:
        """By the id of each column that any schema has: the ids of the structs around it, and its own."""
        schemas = [*(self._raw.get("schemas") or ()), self.schema]
        return {number: path for schema in schemas for number, path in column_paths(schema)}

    @cached_property
    def specs(self) -> Mapping[int, Sequence[SpecField]]:
        """The fields of each partition spec."""
        raw = self._raw.get("partition-specs") or [{"spec-id": 0, "fields": self._raw.get("partition-spec") or []}]
        return {each["spec-id"]: [self._field(field) for field in each["fields"]] for each in raw}

    def _field(self, raw: Mapping[str, Any]) -> SpecField:
        source = raw["source-id"] if "source-id" in raw else raw["source-ids"][0]
        column = self.columns.get(source)
        kind = column.kind if column is not None else ""
        return SpecField(raw["name"], source, raw["transform"], kind, result_kind(raw["transform"], kind))

    @property
    def heads(self) -> Mapping[str, int]:
        """The snapshot of each branch and tag. Early metadata of version 1 know no refs."""
        refs = {name: ref["snapshot-id"] for name, ref in (self._raw.get("refs") or {}).items()}
        current = self.current
        return refs if MAIN in refs or current is None else {**refs, MAIN: current}

    @property
    def branches(self) -> Sequence[str]:
        """The names of the branches."""
        refs = self._raw.get("refs") or {}
        return [name for name in self.heads if refs.get(name, {}).get("type", "branch") == "branch"]

    @property
    def current(self) -> int | None:
        """The id of the current snapshot."""
        current = self._raw.get("current-snapshot-id")
        return None if current in (None, -1) else int(current)

    def line(self, head: int | None) -> Iterator[SnapshotState]:
        """A snapshot and its ancestors, as far as they are there."""
        seen: set[int] = set()
        while head in self.snapshots and head not in seen:
            seen.add(head)
            yield self.snapshots[head]
            head = self.snapshots[head].parent

    @cached_property
    def _definitions(self) -> Mapping[str, object]:
        """What schemas and partition specs mean, by name, without what writers put differently."""
        schemas = {
            f"schema {each.get('schema-id')}": {
                number: (column.name, column.kind.replace(" ", ""))
                for number, column in primitive_columns([each]).items()
            }
            for each in self._raw.get("schemas") or ()
        }
        specs = {
            f"partition spec {number}": [(field.source_id, field.transform) for field in fields]
            for number, fields in self.specs.items()
        }
        return {**schemas, **specs}

    def judge_history(self, store: AuditedStore) -> Iterator[AuditFinding]:
        """Snapshots, schemas and partition specs never change: each is as in the earlier versions of the metadata that
        are still there.
        """
        told: set[object] = set()
        for place in [each["metadata-file"] for each in self._raw.get("metadata-log") or ()][-_EARLIER:]:
            try:
                before = TableMetadataFile.load(store, place)
            except (FileNotFoundError, DamagedFileError):
                continue  # catalogs delete earlier versions, and nothing needs them
            for snapshot_id, snapshot in before.snapshots.items():
                now = self.snapshots.get(snapshot_id)
                if now is None or snapshot_id in told:
                    continue
                if (changed := now.changed(snapshot)) is not None:
                    told.add(snapshot_id)
                    yield self._wrong(f"{now.name} has another {changed} than in {place}")
            for name, was in before._definitions.items():
                if name not in told and self._definitions.get(name, was) != was:
                    told.add(name)
                    yield self._wrong(f"{name} is another one than in {place}")

    def judge(self) -> Iterator[AuditFinding]:
        """What is wrong without a look at other files."""
        for name, snapshot_id in self.heads.items():
            if snapshot_id not in self.snapshots:
                yield self._wrong(f"{name} is at snapshot {snapshot_id}, which is not there")
        if self.heads.get(MAIN) != self.current:
            yield self._wrong(f"the current snapshot is {self.current}, and main is at {self.heads.get(MAIN)}")
        if len(self.snapshots) != len(self._raw.get("snapshots") or ()):
            yield self._wrong("two snapshots have one id")
        for snapshot in self.snapshots.values():
            yield from self._judge_snapshot(snapshot)

    def _judge_snapshot(self, snapshot: SnapshotState) -> Iterator[AuditFinding]:
        last = self._raw.get("last-sequence-number") or 0
        schemas = {each.get("schema-id") for each in self._raw.get("schemas") or ()}
        if snapshot.sequence > last:
            yield self._wrong(f"{snapshot.name} has sequence number {snapshot.sequence}, above the last one, {last}")
        if snapshot.schema_id is not None and schemas and snapshot.schema_id not in schemas:
            yield self._wrong(f"{snapshot.name} has schema {snapshot.schema_id}, which is not there")
        parent = self.snapshots.get(snapshot.parent) if snapshot.parent is not None else None
        if self.version > 1 and parent is not None and parent.sequence >= snapshot.sequence > 0:
            yield self._wrong(
                f"{snapshot.name} has sequence number {snapshot.sequence}, and its parent has {parent.sequence}"
            )
        yield from self._judge_row_ids(snapshot, parent)

    def _judge_row_ids(self, snapshot: SnapshotState, parent: SnapshotState | None) -> Iterator[AuditFinding]:
        if snapshot.first_row_id is None:
            return
        end = snapshot.first_row_id + (snapshot.added_rows or 0)
        if self.next_row_id is None or end > self.next_row_id:
            yield self._row_ids(f"{snapshot.name} has row ids up to {end}, and the next one is {self.next_row_id}")
        if parent is not None and parent.first_row_id is not None:
            before = parent.first_row_id + (parent.added_rows or 0)
            if snapshot.first_row_id < before:
                text = f"{snapshot.name} has row ids from {snapshot.first_row_id}, and its parent up to {before}"
                yield self._row_ids(text)

    def _wrong(self, text: str) -> AuditFinding:
        return AuditFinding(FindingKind.METADATA, self.location, text)

    def _row_ids(self, text: str) -> AuditFinding:
        return AuditFinding(FindingKind.ROW_IDS, self.location, text)


def _snapshot(raw: Mapping[str, Any]) -> SnapshotState:
    return SnapshotState(
        id=raw["snapshot-id"],
        parent=raw.get("parent-snapshot-id"),
        sequence=raw.get("sequence-number") or 0,
        manifest_list=raw.get("manifest-list"),
        summary=raw.get("summary") or {},
        schema_id=raw.get("schema-id"),
        first_row_id=raw.get("first-row-id"),
        added_rows=raw.get("added-rows"),
        time=raw.get("timestamp-ms"),
    )
