"""Wrong bounds, as a version of calving before 0.2.0 wrote some, are corrected; no row and no file changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, StructType

from calving.errors import TableTroubleError
from calving.iceberg.attempts import Attempts
from calving.iceberg.catalog import open_catalog, table_id
from calving.iceberg.commit import CommitStyle, IcebergCommitter
from calving.iceberg.locations import FileRules
from calving.iceberg.maintenance import Maintenance
from calving.iceberg.manifests import FIRST_ROW_ID, at, read_entries, read_manifest_list
from calving.iceberg.mending import Mending, doubtful_files, right_bounds
from calving.iceberg.parking import CatalogStorage, ParkedCommit, Parking
from calving.iceberg.target import IcebergTarget
from calving.model.events import DataWritten, Envelope, Parked, TableReference
from calving.model.files import DataFile, FileContent
from calving.model.offsets import Span, TopicPartition
from calving.model.tables import Branches
from calving.protocol.commit import CommitLoop
from calving.protocol.coordinator import Committed
from calving.protocol.effects import CommitTables
from calving.protocol.ledger import SourceProgress
from calving.protocol.ledger_key import LedgerKey
from calving.settings.load import Sink, load
from harness.duckdb_extensions import connected
from tests.cli.maintaining import lines
from tests.protocol.lines import line_of
from tests.writing import written

_F = NestedField
ROWS = 4500
"""The rows of a batch: enough that the writer does not join batches."""
LONG = "zz" * 2500
SCHEMA = Schema(
    _F(1, "id", LongType(), required=True),
    _F(2, "msg", StringType(), required=False),
    _F(3, "o", StructType(_F(4, "raw", BinaryType(), required=False)), required=False),
)
KEY = LedgerKey("control", "connect-x", "log-1")
SOURCE = TopicPartition("s", 0)
OLD = {"kafka.connect.commit-id": "c", "engine-name": "calving", "engine-version": "0.1.0"}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def catalog(warehouse: Path) -> Catalog:
    made = open_catalog("iceberg", {"type": "embedded", "warehouse": str(warehouse)})
    made.create_namespace("db")
    return made


def tell(table: Table) -> list[Any]:
    """What a correction must not change of each live entry."""
    found = entries(table)
    told = [(e.data_file.file_path, e.snapshot_id, e.sequence_number, e.file_sequence_number) for e in found]
    return sorted(zip(told, [at(e.data_file, FIRST_ROW_ID) for e in found], strict=True))


def create(catalog: Catalog, schema: Schema = SCHEMA, version: int = 2) -> Table:
    return catalog.create_table("db.t", schema, properties={"format-version": str(version)})


def written_files(
    table: Table, *texts: Sequence[str | None], content: FileContent = FileContent.DATA
) -> list[DataFile]:
    """A Parquet file whose row group has several batches of these texts; with ids from 0 on."""
    schema = table.schema()
    batches = []
    for number, some in enumerate(texts):
        columns: dict[str, Sequence[Any]] = {
            "id": range(number * ROWS, number * ROWS + len(some)),
            "msg": some,
            "o": [{"raw": text and text.encode()} for text in some],
        }
        batches.append(written.rows(schema, {field.name: columns[field.name] for field in schema.fields}))
    spec = PartitionSpec(spec_id=table.spec().spec_id)
    target = written.table(Path(table.location().removeprefix("file://")), schema, spec)
    return [replace(file, content=content) for file in written.write(target, *batches)]


def texts(*special: tuple[int, str], start: int = 0) -> list[str | None]:
    found: list[str | None] = [f"m{start + i:06d}" for i in range(ROWS)]
    for place, text in special:
        found[place] = text
    return found


def with_wrong_bounds(file: DataFile, column: int = 2, lower: bytes = b"m004500") -> DataFile:
    """The bounds that a version before 0.2.0 told, if only the second batch had a long value."""
    return replace(file, lower_bounds={**(file.lower_bounds or {}), column: lower})


def wrong_file(table: Table) -> DataFile:
    (file,) = written_files(table, texts((5, "alpha")), texts((7, LONG), start=ROWS))
    return with_wrong_bounds(with_wrong_bounds(file), 4)


class Commits:
    """Commits files as a sink's coordinator does."""

    def __init__(self, catalog: Catalog, summary: Mapping[str, str] = OLD, name: str = "db.t", **given: Any) -> None:
        self._catalog, self._summary, self._table, self._given = catalog, summary, table_id(name), given
        self._count = 0

    def __call__(self, *files: DataFile, deletes: Sequence[DataFile] = (), writer: str | None = "0.2.0") -> None:
        event = DataWritten(
            uuid4(), TableReference("iceberg", self._table[:-1], self._table[-1]), files, tuple(deletes)
        )
        spans = {SOURCE: (Span(self._count, self._count + 1),)}
        entry = Envelope(0, self._count, event, spans, writer=writer)
        self._count += 1
        given = {"doubtful": doubtful_files([entry]), **self._given}
        target = IcebergTarget(self._catalog, self._table, "main", KEY, self._summary, sleep=lambda _: None, **given)
        progress = SourceProgress({SOURCE: (Span(0, self._count),)}, {})
        in_order = bool(self._given)
        CommitLoop(target, KEY, 5, in_order=in_order).settle([entry], {0: self._count}, progress)


def entries(table: Table) -> list[Any]:
    head = table.current_snapshot()
    assert head is not None
    return [e for m in read_manifest_list(table.io, head.manifest_list) for e in read_entries(table.io, m)]


def pyiceberg_finds(table: Table, text: str = "alpha") -> int:
    return table.scan(row_filter=f"msg = '{text}'").to_arrow().num_rows


def duckdb_finds(table: Table, text: str = "alpha") -> int:
    where = table.metadata_location.removeprefix("file://")
    (count,) = connected().execute(f"select count(*) from iceberg_scan('{where}') where msg = ?", [text]).fetchall()[0]
    return int(count)


def sink(tmp_path: Path, **more: str) -> Sink:
    config = tmp_path / "sink.json"
    keys = {
        "name": "x",
        "topics": "t",
        "iceberg.tables": "db.t",
        "kafka.bootstrap.servers": "localhost:1",
        "iceberg.catalog.type": "embedded",
        "iceberg.catalog.warehouse": str(tmp_path / "warehouse"),
        **more,
    }
    config.write_text(json.dumps(keys))
    return load(config)


@pytest.mark.parametrize("version", [1, 2])
def test_rows_that_filters_miss_are_found_after_the_command(catalog: Catalog, tmp_path: Path, version: int) -> None:
    table, commit = create(catalog, version=version), Commits(catalog)
    commit(*written_files(table, texts((1, "b"))))
    commit(wrong_file(table))
    table = table.refresh()
    before, head = tell(table), table.current_snapshot()
    assert (pyiceberg_finds(table), duckdb_finds(table)) == (0, 0)

    (would,) = lines(sink(tmp_path), [], ["bounds"], dry_run=True)
    assert would == "table db.t: bounds of 1 file would be corrected (msg, o.raw), 2 files looked at"
    assert table.refresh().current_snapshot() == head

    (done,) = lines(sink(tmp_path), [], ["bounds"], dry_run=False)
    assert done == "table db.t: bounds of 1 file corrected (msg, o.raw), 2 files looked at"
    table.refresh()
    assert (pyiceberg_finds(table), duckdb_finds(table)) == (1, 1)
    now = table.current_snapshot()
    assert now is not None and now.summary is not None and head is not None and head.summary is not None
    assert now.summary.operation is Operation.REPLACE
    ledgers = [KEY.read(line_of(each.summary.additional_properties), {}) for each in (now, head) if each.summary]
    assert ledgers[0] == ledgers[1]
    assert now.summary.additional_properties["total-records"] == head.summary.additional_properties["total-records"]

    assert tell(table) == before
    assert lines(sink(tmp_path), ["db.t"], ["bounds"], dry_run=False) == [
        "table db.t: no wrong bounds, 2 files looked at"
    ]


def test_row_ids_of_version_3_stay(rest_uri: str) -> None:
    catalog = open_catalog("iceberg", {"type": "rest", "uri": rest_uri})
    catalog.create_namespace_if_not_exists("bounds")
    name = f"bounds.t{uuid4().hex}"
    table = catalog.create_table(name, SCHEMA, properties={"format-version": "3"})
    commit = Commits(catalog, name=name)
    commit(*written_files(table, texts((1, "b"))))
    commit(wrong_file(table))
    before = tell(table.refresh())
    assert [row_id for _, row_id in before if row_id is not None] and duckdb_finds(table) == 0
    assert Maintenance(catalog, table_id(name), KEY, {}).mend(Mending()) is not None
    assert tell(table.refresh()) == before
    commit(*written_files(table, texts((1, "alpha"))))
    assert pyiceberg_finds(table.refresh()) == duckdb_finds(table) == 2


def test_the_sink_commits_on_after_the_correction(catalog: Catalog, tmp_path: Path) -> None:
    table, commit = create(catalog), Commits(catalog)
    commit(wrong_file(table))
    lines(sink(tmp_path), [], ["bounds"], dry_run=False)
    commit(*written_files(table, texts((1, "alpha"))))
    assert (pyiceberg_finds(table.refresh()), duckdb_finds(table)) == (2, 2)


@pytest.mark.parametrize(
    ("summary", "looked_at"),
    [
        (OLD, 1),
        ({**OLD, "engine-version": "0.2.0.dev0"}, 0),
        ({"kafka.connect.commit-id": "c"}, 1),
        ({"engine-name": "spark", "engine-version": "4.1.1"}, 0),
    ],
    ids=["an old version", "this version", "the Java sink's coordinator", "another engine"],
)
def test_only_files_that_a_version_before_0_2_0_may_have_written_are_read(
    catalog: Catalog, summary: Mapping[str, str], looked_at: int
) -> None:
    table = create(catalog)
    Commits(catalog, summary)(wrong_file(table))
    mending = Mending()
    assert (mending.of(table.refresh(), "main") is not None) == bool(looked_at)
    assert mending.looked_at == looked_at


def test_files_of_expired_snapshots_are_read(catalog: Catalog) -> None:
    table, commit = create(catalog), Commits(catalog, {**OLD, "engine-version": "0.2.0"})
    commit(wrong_file(table))
    commit(*written_files(table, ["x"]))
    table = table.refresh()
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    mending = Mending()
    assert mending.of(table.refresh(), "main") is not None
    assert mending.looked_at == 1


def test_right_bounds_are_not_changed_and_no_value_is_read(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(catalog)
    (file,) = written_files(table, texts((5, "alpha")), texts(start=ROWS))

    def none(*_: Any, **__: Any) -> None:
        raise AssertionError("values were read")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.iter_batches", none)
    assert right_bounds(table.io, file.file_path, file.lower_bounds or {}, file.upper_bounds or {}) is None


@pytest.mark.parametrize("longest", ["z" * 5000, "\U0010ffff" * 5000, "\ud7ff" * 4000, "é" * 3000])
def test_corrected_bounds_hold_each_value(catalog: Catalog, longest: str) -> None:
    table = create(catalog)
    given = ["m", "n"], [longest, None, "x"], ["b", ""]
    (file,) = written_files(table, *([*some, *[None] * ROWS] for some in given))
    wrong = b"n", b"m"
    right = right_bounds(table.io, file.file_path, dict.fromkeys((2, 4), wrong[0]), dict.fromkeys((2, 4), wrong[1]))
    assert right is not None and right.columns == {2, 4}
    values = [text.encode() for some in given for text in some if text is not None]
    for column in (2, 4):
        assert right.lower[column] <= min(values)
        upper = right.upper.get(column)
        assert (upper is None) == (column == 2 and longest[0] == "\U0010ffff")
        assert upper is None or (upper >= max(values) and len(upper) < 100)


def test_a_column_of_0xff_bytes_has_no_upper_bound(catalog: Catalog) -> None:
    table = create(catalog, Schema(_F(1, "raw", BinaryType(), required=False)))
    batch = written.rows(table.schema(), {"raw": [b"\xff" * 5000, b"a", *[None] * ROWS]})
    (file,) = written.write(written.table(Path(table.location().removeprefix("file://")), table.schema()), batch)
    right = right_bounds(table.io, file.file_path, {1: b"b"}, {1: b"b"})
    assert right is not None and (right.lower, right.upper) == ({1: b"a"}, {})


def test_a_refused_attempt_is_made_again_on_the_newer_head(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table, commit = create(catalog), Commits(catalog)
    commit(wrong_file(table))
    once, others = IcebergTarget.commit, [lambda: commit(wrong_file(table))]

    def beaten(target: IcebergTarget, *given: Any) -> int:
        if others:
            others.pop()()
        return once(target, *given)

    monkeypatch.setattr(IcebergTarget, "commit", beaten)
    mending = Mending()
    done = Maintenance(catalog, table_id("db.t"), KEY, {}, sleep=lambda _: None).mend(mending)
    assert done is not None and len(done.entries) == 2 and mending.looked_at == 2
    assert pyiceberg_finds(table.refresh()) == 2


@pytest.mark.parametrize("lands", [False, True])
def test_a_run_that_ends_around_its_commit_is_harmless(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    table = create(catalog)
    Commits(catalog)(wrong_file(table))
    commit = IcebergTarget.commit

    def killed(*given: Any) -> int:
        if lands:
            commit(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(IcebergTarget, "commit", killed)
        Maintenance(catalog, table_id("db.t"), KEY, {}).mend(Mending())
    assert pyiceberg_finds(table.refresh()) == int(lands)
    done = Maintenance(catalog, table_id("db.t"), KEY, {}).mend(Mending())
    assert (done is None) == lands
    assert pyiceberg_finds(table.refresh()) == 1


def test_a_file_that_cannot_be_read_is_named(catalog: Catalog) -> None:
    table = create(catalog)
    file = wrong_file(table)
    Commits(catalog)(file)
    Path(written.local(file)).unlink()
    with pytest.raises(TableTroubleError, match=f"the bounds of file {file.file_path} cannot be checked"):
        Mending().of(table.refresh(), "main")


NEW = {**OLD, "engine-version": "0.2.0"}


def test_files_that_an_earlier_version_has_published_are_corrected_before_their_commit(catalog: Catalog) -> None:
    table, commit = create(catalog), Commits(catalog, NEW)
    commit(wrong_file(table), writer=None)
    commit(wrong_file(table), writer="0.1.0")
    assert (pyiceberg_finds(table.refresh()), duckdb_finds(table)) == (2, 2)


def test_files_of_this_version_are_not_read_before_their_commit(catalog: Catalog) -> None:
    table, commit = create(catalog), Commits(catalog, NEW)
    commit(wrong_file(table))
    assert pyiceberg_finds(table.refresh()) == 0


def test_a_published_file_that_cannot_be_read_is_committed_without_bounds_of_text(catalog: Catalog) -> None:
    table, commit = create(catalog), Commits(catalog, NEW)
    file = wrong_file(table)
    path = Path(written.local(file))
    path.rename(path.with_suffix(".away"))
    commit(file, writer=None)
    path.with_suffix(".away").rename(path)
    (entry,) = entries(table.refresh())
    assert set(entry.data_file.lower_bounds) == set(entry.data_file.upper_bounds) == {1}
    assert pyiceberg_finds(table) == 1


@pytest.mark.parametrize(("writer", "found"), [(None, 1), ("0.1.0", 1), ("0.2.0", 0)])
def test_files_of_a_parked_commit_that_an_earlier_version_has_published_are_corrected(
    catalog: Catalog, writer: str | None, found: int
) -> None:
    table, name = create(catalog), table_id("db.t")
    published = DataWritten(uuid4(), TableReference("iceberg", name[:-1], name[-1]), (wrong_file(table),))
    entry = Envelope(0, 0, published, {SOURCE: (Span(0, 1),)}, writer=writer)
    progress, files = SourceProgress({SOURCE: (Span(0, 1),)}, {}), FileRules(("file:///",))
    last = Parking(CatalogStorage(catalog, files)).park(name, ParkedCommit((entry,), {0: 1}, progress), None)
    style = CommitStyle("control", "connect-x", "log-1", "x-0", Branches(), lambda _: None, 0, files)
    request = CommitTables(uuid4(), {name: ()}, {0: 1}, progress, None, {}, {name: Parked(last, 1, {})})
    made = dict(IcebergCommitter(catalog, "iceberg", style, Attempts(4, 60)).commit(request))
    assert isinstance(made[name], Committed)
    assert (pyiceberg_finds(table.refresh()), duckdb_finds(table)) == (found, found)


TEXT_KEYS = Schema(
    _F(1, "msg", StringType(), required=True), _F(2, "n", LongType(), required=False), identifier_field_ids=[1]
)


def keyed(table: Table, *batches: Sequence[str]) -> DataFile:
    rows = [written.rows(table.schema(), {"msg": some, "n": range(len(some))}) for some in batches]
    target = written.table(Path(table.location().removeprefix("file://")), table.schema())
    (file,) = written.write(target, *rows)
    return file


@pytest.mark.parametrize("schema", [TEXT_KEYS, Schema(*TEXT_KEYS.fields)], ids=["identifier fields", "id columns"])
def test_keys_that_stand_twice_because_a_wrong_bound_hid_a_row_are_named(
    schema: Schema, catalog: Catalog, tmp_path: Path
) -> None:
    table, commit = create(catalog, schema), Commits(catalog)
    numbered = [f"m{i:06d}" for i in range(2 * ROWS)]
    commit(with_wrong_bounds(keyed(table, ["alpha", *numbered[1:ROWS]], [LONG, *numbered[ROWS + 1 :]]), 1))
    commit(keyed(table, ["alpha", "beta"]))  # the change of alpha did not find the row
    upserts = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.table.db.t.id-columns": "msg"}
    assert lines(sink(tmp_path, **upserts), [], ["bounds"], dry_run=False) == [
        "table db.t: bounds of 1 file corrected (msg), 2 files looked at",
        "table db.t: 1 key with several rows, because wrong bounds hid a row from its change: msg = 'alpha';"
        " delete the older rows",
    ]


def test_bounds_of_equality_deletes_are_corrected(catalog: Catalog) -> None:
    table = create(catalog, TEXT_KEYS)
    numbered = [f"m{i:06d}" for i in range(2 * ROWS)]
    keys = keyed(table, ["alpha", *numbered[1:ROWS]], [LONG, *numbered[ROWS + 1 :]])
    wrong = with_wrong_bounds(
        replace(keys, content=FileContent.EQUALITY_DELETES, equality_ids=(1,), value_counts={}), 1
    )
    commit = Commits(catalog, OLD, equality=True)
    commit(keyed(table, ["alpha", "beta"]))
    commit(deletes=[wrong])
    assert len(entries(table.refresh())) == 2
    done = Maintenance(catalog, table_id("db.t"), KEY, {}).mend(Mending())
    assert done is not None and {key[0] for key in done.entries} == {wrong.file_path}
    (delete,) = (e.data_file for e in entries(table.refresh()) if e.data_file.content.value == 2)
    assert delete.lower_bounds[1] == b"alpha"
