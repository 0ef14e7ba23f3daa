"""Files against their entries: they are there, and rows, counts, bounds and partition are as the entries say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calving.audit.data_files import Columns, column_parts, count_rows
from calving.audit.entries import DATA, AuditedEntry
from calving.audit.extents import Extents, is_spatial
from calving.audit.findings import AuditFinding, FindingKind
from calving.audit.metadata import SpecField, TableMetadataFile
from calving.audit.storage import AuditedStore, DamagedFileError
from calving.audit.transforms import transform_of
from calving.audit.values import PlainValue, TableColumn, from_avro, from_bound, has_order, is_nan, is_same

FILE_PATH, POSITION = 2_147_483_546, 2_147_483_545
"""The columns of a position-delete file."""
RESERVED = {
    FILE_PATH: TableColumn("file_path", "string", repeated=False),
    POSITION: TableColumn("pos", "long", repeated=False),
}


class FileJudge:
    """Judges files one at a time; several threads may ask it."""

    def __init__(self, store: AuditedStore, metadata: TableMetadataFile) -> None:
        self._store, self._metadata = store, metadata
        self._columns = {**metadata.columns, **RESERVED}
        self.without_ids: list[str] = []
        """The files whose columns have no field ids, so that nobody knows which ones they are."""

    def judge(self, entry: AuditedEntry, *, content: bool) -> Iterator[AuditFinding]:
        """``content``: also of all its columns."""
        kind = FindingKind.FILE
        try:
            size = self._store.size(entry.path)
            if size != entry.size:
                yield AuditFinding(kind, entry.path, f"it has {size} bytes, and its entry says {entry.size}")
            if entry.file_format == "PUFFIN":
                return
            with self._store.open(entry.path) as stream:
                rows = count_rows(entry.file_format, stream)
            if rows != entry.records:
                yield AuditFinding(kind, entry.path, f"it has {rows} rows, and its entry says {entry.records}")
            if content:
                kind = FindingKind.CONTENT
                with self._store.open(entry.path) as stream:
                    texts = self._judge_columns(entry, column_parts(entry.file_format, stream, self._columns))
                    yield from (AuditFinding(kind, entry.path, text) for text in texts)
        except FileNotFoundError:
            yield AuditFinding(FindingKind.FILE, entry.path, "it is missing")
        except DamagedFileError as error:
            yield AuditFinding(kind, entry.path, str(error))

    def _judge_columns(self, entry: AuditedEntry, parts: Iterator[tuple[int, Columns]]) -> Iterator[str]:
        sums: dict[int, _ColumnSum] = {}
        fields = self._metadata.specs.get(entry.spec_id, ())
        partition = _Partition(entry, fields) if entry.content == DATA else None
        rows = 0
        for number, columns in parts:
            rows += number
            for column_id, part in columns.items():
                sums.setdefault(column_id, _summed(self._columns[column_id].kind)).add(part)
            if partition is not None:
                partition.see(columns)
        if rows != entry.records:
            yield f"{rows} rows can be read, and its entry says {entry.records}"
        if rows and not sums:
            self.without_ids.append(entry.path)
        for column_id, found in sums.items():
            column = self._columns[column_id]
            yield from (f"column {column.name}: {text}" for text in found.judged(column_id, column.kind, entry))
        if partition is not None:
            yield from partition.wrong.values()


class _ColumnSum:
    """Counts and bounds of a column of one file."""

    def __init__(self) -> None:
        self._rows = self._nulls = self._absent = self._nans = 0
        self._low: Any = None
        self._high: Any = None

    def add(self, part: Any) -> None:
        self._rows += part.rows
        self._nulls += part.nulls
        self._absent += part.absent
        self._nans += part.nans
        if part.low is not None:
            self._low = part.low if self._low is None else min(self._low, part.low)
            self._high = part.high if self._high is None else max(self._high, part.high)

    def judged(self, column_id: int, kind: str, entry: AuditedEntry) -> Iterator[str]:
        # Writers do not agree whether a column has a null where the struct around it is null.
        counts = (
            ("values", entry.value_counts, self._rows, self._absent),
            ("nulls", entry.null_counts, self._nulls, self._absent),
            ("NaN", entry.nan_counts, self._nans, 0),
        )
        for what, said, found, absent in counts:
            if said.get(column_id, found) not in (found, found - absent):
                yield f"it has {found} {what}, and its entry says {said[column_id]}"
        if not has_order(kind) or self._low is None:
            return
        if (low := entry.lower.get(column_id)) is not None and self._low < from_bound(kind, low):
            yield f"its least value {_shown(self._low)} is below the lower bound {_shown(from_bound(kind, low))}"
        if (high := entry.upper.get(column_id)) is not None and self._high > from_bound(kind, high):
            yield f"its greatest value {_shown(self._high)} is above the upper bound {_shown(from_bound(kind, high))}"


class _GeoSum(_ColumnSum):
    """Counts of a column of geometries, and the extents of these."""

    def __init__(self) -> None:
        super().__init__()
        self._extents = Extents()

    def add(self, part: Any) -> None:
        super().add(part)
        self._extents.add(part.distinct())

    def judged(self, column_id: int, kind: str, entry: AuditedEntry) -> Iterator[str]:
        yield from super().judged(column_id, kind, entry)
        if column_id in entry.lower and column_id in entry.upper:
            yield from self._extents.outside(entry.lower[column_id], entry.upper[column_id])


def _summed(kind: str) -> _ColumnSum:
    return _GeoSum() if is_spatial(kind) else _ColumnSum()


def _shown(value: PlainValue) -> str:
    return repr(value if len(repr(value)) <= 60 else f"{value!r:.57}...")


class _Partition:
    """Whether all rows of a file are in its partition."""

    def __init__(self, entry: AuditedEntry, fields: Sequence[SpecField]) -> None:
        known = [
            (field, from_avro(field.kind, raw), transform_of(field.transform, field.source_kind))
            for field, raw in zip(fields, entry.partition, strict=False)
        ]
        self._fields = [(field, value, made) for field, value, made in known if made is not None and field.source_kind]
        self.wrong: dict[str, str] = {}

    def see(self, columns: Mapping[int, Any]) -> None:
        for field, value, made in self._fields:
            part = columns.get(field.source_id)
            if part is None or field.name in self.wrong:
                continue
            found: list[PlainValue | None] = [made(each) for each in part.distinct()]
            if field.transform != "void":
                found += [None] * bool(part.nulls) + [float("nan")] * bool(part.nans)
            other = next((each for each in found if not is_same(each, value)), value)
            if not is_same(other, value) and not (is_nan(value) and is_nan(other)):
                text = f"rows have partition {field.name} = {_text(other)}, and the file is in {_text(value)}"
                self.wrong[field.name] = text


def _text(value: PlainValue | None) -> str:
    return "null" if value is None else _shown(value)
