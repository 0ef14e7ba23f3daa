"""Whatever is falsified in a table is found, and nothing is found in the same table before."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.audit.findings import FindingKind
from calving.iceberg.lineage import new_snapshot
from tests.audit.conftest import found
from tests.audit.sabotage import Record, Records, Sabotage, local
from tests.iceberg.histories import create
from tests.iceberg.lake import Lake

FORMATS = ("parquet", "orc", "avro")


def kinds(table: Table, sample: int | None = None) -> set[str]:
    return {each.kind for each in found(table, sample)}


def rows(catalog: Catalog, file_format: str = "parquet", layout: str = "flat", version: int = 2) -> Table:
    """Two commits of rows, the second of which replaces and deletes some."""
    made = create(catalog, layout, version, file_format=file_format)
    before = [{"id": key, "name": f"name {key}", "g": key % 2} for key in range(8)]
    made.commit(made.step([], inserts=before))
    made.commit(made.step([{"id": 1, "name": "another", "g": 1}], [{"id": 2, "name": "", "g": 0}]))
    return made.table


def ledgers(catalog: Catalog) -> Table:
    lake = Lake(catalog, "2", "main")
    for start in range(0, 400, 100):
        lake.commit(start, start + 100)
    return lake.table


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("layout", ["flat", "by key"])
def test_nothing_is_found_in_a_sound_table(catalog: Catalog, file_format: str, layout: str) -> None:
    assert found(rows(catalog, file_format, layout)) == []


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("layout", ["flat", "by key"])
def test_nothing_is_found_in_a_sound_table_of_version_3(rest: Catalog, file_format: str, layout: str) -> None:
    assert found(rows(rest, file_format, layout, 3)) == []


def test_nothing_is_found_in_a_sound_table_with_ledgers(catalog: Catalog) -> None:
    assert found(ledgers(catalog)) == []


def _dropped(records: Records) -> Records:
    return records[1:]


def _doubled(records: Records) -> Records:
    return [*records, records[0]]


def _changed(records: Records) -> Records:
    return [records[0] | {"id": 10**6}, *records[1:]]


def _nulled(records: Records) -> Records:
    return [records[0] | {"name": None}, *records[1:]]


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("change", [_dropped, _doubled])
def test_a_row_too_few_or_too_many_is_found_without_reading_columns(
    catalog: Catalog, file_format: str, change: Callable[[Records], Records]
) -> None:
    table = rows(catalog, file_format)
    Sabotage(table).change_rows(change)
    assert kinds(table, sample=0) == {FindingKind.FILE}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("change", [_changed, _nulled])
def test_a_value_that_its_entry_excludes_is_found_in_what_is_read(
    catalog: Catalog, file_format: str, change: Callable[[Records], Records]
) -> None:
    table = rows(catalog, file_format)
    Sabotage(table).change_rows(change)
    assert kinds(table, sample=100) == {FindingKind.CONTENT}


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_row_in_another_partition_is_found(catalog: Catalog, file_format: str) -> None:
    table = rows(catalog, file_format, "moving")
    Sabotage(table).change_rows(lambda records: [each | {"g": 5} for each in records])
    assert "rows have partition g" in " ".join(each.text for each in found(table))


def _bounds(file: Record, which: str, column: int, value: bytes) -> None:
    file[which] = [
        {"key": each["key"], "value": value if each["key"] == column else each["value"]} for each in file[which]
    ]


def _counts(file: Record, which: str, column: int, by: int) -> None:
    file[which] = [
        {"key": each["key"], "value": each["value"] + (by if each["key"] == column else 0)} for each in file[which]
    ]


LIES: dict[str, tuple[FindingKind, Callable[[Record], object]]] = {
    "lower bound": (FindingKind.CONTENT, lambda e: _bounds(e["data_file"], "lower_bounds", 1, struct.pack("<q", 99))),
    "upper bound": (FindingKind.CONTENT, lambda e: _bounds(e["data_file"], "upper_bounds", 1, struct.pack("<q", -1))),
    "bound of a text": (FindingKind.CONTENT, lambda e: _bounds(e["data_file"], "upper_bounds", 2, b"A")),
    "bound of another type": (FindingKind.CONTENT, lambda e: _bounds(e["data_file"], "lower_bounds", 1, b"\0\0\0")),
    "value count": (FindingKind.CONTENT, lambda e: _counts(e["data_file"], "value_counts", 1, 1)),
    "null count": (FindingKind.CONTENT, lambda e: _counts(e["data_file"], "null_value_counts", 2, 1)),
    "row count": (FindingKind.FILE, lambda e: e["data_file"].update(record_count=e["data_file"]["record_count"] + 1)),
    "file size": (FindingKind.FILE, lambda e: e["data_file"].update(file_size_in_bytes=1)),
    "file": (FindingKind.FILE, lambda e: e["data_file"].update(file_path=f"{e['data_file']['file_path']}.gone")),
    "format": (FindingKind.FILE, lambda e: e["data_file"].update(file_format="ORC")),
    "content": (FindingKind.MANIFEST, lambda e: e["data_file"].update(content=1)),
    "sequence number": (FindingKind.MANIFEST, lambda e: e.update(sequence_number=9)),
    "snapshot": (FindingKind.MANIFEST, lambda e: e.update(snapshot_id=9)),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("which", [0, -1])
def test_a_lie_of_an_entry_about_its_file_is_found(catalog: Catalog, lie: str, which: int) -> None:
    table = rows(catalog)
    sabotage = Sabotage(table)
    kind, change = LIES[lie]
    manifest, place, _ = sabotage.files()[which]
    sabotage.change_entry(manifest, change, place)
    assert kind in kinds(table)


@pytest.mark.parametrize("which", [0, -1])
def test_a_file_that_is_removed_from_a_manifest_is_found(catalog: Catalog, which: int) -> None:
    table = rows(catalog, layout="by key")
    sabotage = Sabotage(table)
    manifest, place, _ = sabotage.files()[which]
    sabotage.change_manifest(manifest, lambda records: records[:place] + records[place + 1 :])
    assert kinds(table) == {FindingKind.SNAPSHOT}


def test_a_manifest_that_is_removed_from_a_list_is_found(catalog: Catalog) -> None:
    table = ledgers(catalog)
    Sabotage(table).change_list(lambda records: records[1:])
    assert kinds(table) == {FindingKind.SNAPSHOT}


def test_a_file_that_is_twice_in_a_manifest_is_found(catalog: Catalog) -> None:
    table = rows(catalog)
    sabotage = Sabotage(table)
    manifest, place, _ = sabotage.files()[0]
    sabotage.change_manifest(manifest, lambda records: [*records, records[place]])
    assert any("twice" in each.text for each in found(table))


@pytest.mark.parametrize(
    "name", ["added_files_count", "added_rows_count", "manifest_length", "min_sequence_number", "sequence_number"]
)
def test_a_number_in_a_list_that_is_not_that_of_its_manifest_is_found(catalog: Catalog, name: str) -> None:
    table = ledgers(catalog)
    Sabotage(table).change_list(lambda records: [records[0] | {name: records[0][name] + 1}, *records[1:]])
    assert found(table)


def test_partition_bounds_in_a_list_that_hide_a_file_are_found(catalog: Catalog) -> None:
    table = rows(catalog, layout="moving")

    def hide(records: Records) -> Records:
        for listed in records:
            for bounds in listed["partitions"]:
                bounds["upper_bound"] = struct.pack("<q", 0)
        return records

    Sabotage(table).change_list(hide)
    Sabotage(table).change_list(hide, 0)
    assert any("outside of the bounds" in each.text for each in found(table))


@pytest.mark.parametrize("what", ["manifest list", "manifest", "data file"])
def test_a_file_that_is_gone_is_found(catalog: Catalog, what: str) -> None:
    table = rows(catalog)
    sabotage = Sabotage(table)
    paths = {
        "manifest list": sabotage.lists[0],
        "manifest": sabotage.manifests()[0],
        "data file": sabotage.files()[0][2]["file_path"],
    }
    local(paths[what]).unlink()
    assert [each.where for each in found(table) if "missing" in each.text] == [paths[what]]


@pytest.mark.parametrize("what", ["manifest list", "manifest", "data file"])
def test_a_file_that_is_cut_off_is_found(catalog: Catalog, what: str) -> None:
    table = rows(catalog)
    sabotage = Sabotage(table)
    paths = {
        "manifest list": sabotage.lists[0],
        "manifest": sabotage.manifests()[0],
        "data file": sabotage.files()[0][2]["file_path"],
    }
    place = local(paths[what])
    place.write_bytes(place.read_bytes()[:-20])
    assert paths[what] in [each.where for each in found(table)]


@pytest.mark.parametrize("name", ["total-records", "total-data-files", "added-records", "total-position-deletes"])
def test_a_falsified_total_is_found(catalog: Catalog, name: str) -> None:
    table = rows(catalog)
    Sabotage(table).change_summary(name, lambda said: str(int(said) + 1))
    assert kinds(table) == {FindingKind.SNAPSHOT}


def merged(catalog: Catalog) -> tuple[Table, Sabotage, str, int]:
    """The second snapshot has one manifest with the files of both; and where the first file is in it."""
    lake = Lake(catalog, "2", "main")
    for start in (0, 100):
        lake.commit(start, start + 100)
    sabotage = Sabotage(lake.table)
    manifest, older = sabotage.manifests()
    (entry,) = sabotage.entries(older)
    kept = {**entry, "status": 0, "sequence_number": 1, "file_sequence_number": 1}
    sabotage.change_list(lambda records: [each for each in records if each["manifest_path"] != older])
    sabotage.change_manifest(manifest, lambda records: [*records, kept])
    sabotage.change_list(lambda records: [each | {"min_sequence_number": 1} for each in records])
    return lake.table, sabotage, manifest, 1


def test_nothing_is_found_where_a_manifest_has_the_files_of_another(catalog: Catalog) -> None:
    assert found(merged(catalog)[0]) == []


COPIES: dict[str, Callable[[Record], object]] = {
    "lower bound": lambda e: e["data_file"].update(lower_bounds=[{"key": 1, "value": struct.pack("<q", 99)}]),
    "null count": lambda e: e["data_file"].update(null_value_counts=[{"key": 1, "value": 5}]),
    "row count": lambda e: e["data_file"].update(record_count=99),
    "sequence number": lambda e: e.update(sequence_number=2, file_sequence_number=2),
}


@pytest.mark.parametrize("lie", COPIES)
def test_a_lie_in_a_later_manifest_about_a_file_that_an_earlier_one_names_is_found(catalog: Catalog, lie: str) -> None:
    table, sabotage, manifest, place = merged(catalog)
    sabotage.change_entry(manifest, COPIES[lie], place)
    assert found(table)


LISTED: dict[str, Callable[[Record], Record]] = {
    "content": lambda m: {"content": 1},
    "min_sequence_number": lambda m: {"min_sequence_number": m["min_sequence_number"] + 1},
    "sequence_number": lambda m: {"sequence_number": m["sequence_number"] + 1},
    "added_snapshot_id": lambda m: {"added_snapshot_id": 7},
    "partition_spec_id": lambda m: {"partition_spec_id": 7},
    "partitions": lambda m: {"partitions": [each | {"upper_bound": struct.pack("<q", -1)} for each in m["partitions"]]},
}


@pytest.mark.parametrize("name", LISTED)
def test_a_lie_of_a_later_list_about_an_earlier_manifest_is_found(catalog: Catalog, name: str) -> None:
    """The oldest list, which names the manifest too, says what is so."""
    made = create(catalog, "moving", 2)
    for key in (1, 2):
        made.commit(made.step([], inserts=[{"id": key, "name": "", "g": key}]))
    table = made.table
    assert found(table) == []
    Sabotage(table).change_list(lambda records: [*records[:-1], records[-1] | LISTED[name](records[-1])])
    assert found(table)


def test_row_ids_that_a_later_list_gives_once_more_are_found(rest: Catalog) -> None:
    made = create(rest, "flat", 3)
    for key in (1, 2):
        made.commit(made.step([], inserts=[{"id": key, "name": "", "g": key}]))
    table = made.table
    assert found(table) == []
    ids = [each["first_row_id"] for each in Sabotage(table).listed()]
    Sabotage(table).change_list(
        lambda records: [each | {"first_row_id": i} for each, i in zip(records, ids[::-1], strict=True)]
    )
    assert any("first row id" in each.text for each in found(table))


def _deletes(table: Table) -> Iterator[tuple[Sabotage, str, int, Record]]:
    sabotage = Sabotage(table)
    yield from ((sabotage, *each) for each in sabotage.files(content=1))


def _vector(table: Table) -> tuple[Sabotage, str, int, Record]:
    return next(iter(_deletes(table)))


def _write(path: str, offset: int, content: bytes) -> None:
    place = local(path)
    raw = bytearray(place.read_bytes())
    raw[offset : offset + len(content)] = content
    place.write_bytes(raw)


def test_a_vector_with_a_flipped_bit_is_found(rest: Catalog) -> None:
    table = rows(rest, version=3)
    _, _, _, file = _vector(table)
    at = file["content_offset"] + file["content_size_in_bytes"] - 6
    raw = local(file["file_path"]).read_bytes()
    _write(file["file_path"], at, bytes([raw[at] ^ 1]))
    assert kinds(table) == {FindingKind.DELETES}


def test_a_vector_with_other_positions_is_found(rest: Catalog) -> None:
    """The bitmap's last two bytes are the last position, and the checksum agrees."""
    table = rows(rest, version=3)
    _, _, _, file = _vector(table)
    start, size = file["content_offset"], file["content_size_in_bytes"]
    blob = bytearray(local(file["file_path"]).read_bytes()[start : start + size])
    blob[-6:-4] = struct.pack("<H", 1000)
    blob[-4:] = struct.pack(">I", zlib.crc32(bytes(blob[4:-4])))
    _write(file["file_path"], start, bytes(blob))
    assert any("a delete of row 1000 is in it" in each.text or "positions" in each.text for each in found(table))


@pytest.mark.parametrize(
    "lie",
    [
        {"record_count": 1},
        {"content_offset": 5},
        {"content_size_in_bytes": 20},
        {"referenced_data_file": "file:///another"},
        {"referenced_data_file": None},
    ],
)
def test_an_entry_that_lies_about_its_vector_is_found(rest: Catalog, lie: dict[str, Any]) -> None:
    table = rows(rest, version=3)
    sabotage, manifest, place, _ = _vector(table)
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(lie), place)
    assert kinds(table) & {FindingKind.DELETES, FindingKind.MANIFEST}


def test_a_vector_in_a_file_with_a_compressed_footer_is_sound(rest: Catalog) -> None:
    """The specification allows LZ4 there."""
    table = rows(rest, version=3)
    sabotage, manifest, place, file = _vector(table)
    raw = local(file["file_path"]).read_bytes()
    size = int.from_bytes(raw[-12:-8], "little")
    begin = len(raw) - 12 - size
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "lz4") as out:
        out.write(raw[begin:-12])
    footer = packed.getvalue().to_pybytes()
    trailer = struct.pack("<II", len(footer), 1) + raw[-4:]
    local(file["file_path"]).write_bytes(raw[:begin] + footer + trailer)
    size = local(file["file_path"]).stat().st_size
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(file_size_in_bytes=size), place)
    assert found(table) == []


def test_a_second_vector_for_a_data_file_is_found(rest: Catalog) -> None:
    table = rows(rest, version=3)
    sabotage, manifest, place, file = _vector(table)
    sabotage.change_manifest(
        manifest,
        lambda records: [*records, {**records[place], "data_file": {**file, "file_path": f"{file['file_path']}2"}}],
    )
    local(f"{file['file_path']}2").write_bytes(local(file["file_path"]).read_bytes())
    assert any("several deletion vectors" in each.text for each in found(table))


def test_a_delete_of_a_row_that_its_file_does_not_have_is_found(catalog: Catalog) -> None:
    table = rows(catalog)
    sabotage, manifest, place, file = _vector(table)
    there = pq.read_table(local(file["file_path"]))
    positions = there.column("pos").to_pylist()
    changed = there.set_column(1, there.schema.field(1), pa.array([*positions[:-1], 77], pa.int64()))
    pq.write_table(changed, local(file["file_path"]))
    size = local(file["file_path"]).stat().st_size
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(file_size_in_bytes=size), place)
    assert any("a delete of row 77" in each.text for each in found(table))


def _moved(entry: Record) -> None:
    partition = entry["data_file"]["partition"]
    entry["data_file"]["partition"] = {name: value + 1 for name, value in partition.items()}


@pytest.mark.parametrize("version", [2, 3])
def test_a_delete_in_another_partition_than_its_data_file_is_found(rest: Catalog, version: int) -> None:
    """Readers that follow the specification do not apply it, and the deleted rows come back."""
    table = rows(rest, "parquet", "by key", version)
    sabotage, manifest, place, _ = _vector(table)
    sabotage.change_entry(manifest, _moved, place)
    assert any("in another partition than the file" in each.text for each in found(table))


def test_a_delete_of_rows_of_a_file_that_its_table_has_not_is_found(catalog: Catalog) -> None:
    table = rows(catalog)
    sabotage, manifest, place, file = _vector(table)
    there = pq.read_table(local(file["file_path"]))
    paths = pa.array([f"{each}2" for each in there.column("file_path").to_pylist()])
    pq.write_table(there.set_column(0, there.schema.field(0), paths), local(file["file_path"]))
    size = local(file["file_path"]).stat().st_size
    lie = {"file_size_in_bytes": size, "referenced_data_file": None}
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(lie), place)
    assert any("a file that is not in there" in each.text for each in found(table))


def test_row_ids_that_two_files_have_are_found(rest: Catalog) -> None:
    table = rows(rest, version=3)
    sabotage = Sabotage(table)
    manifest, place, _ = sabotage.files()[0]
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(first_row_id=0), place)
    manifest, place, _ = sabotage.files()[-1]
    sabotage.change_entry(manifest, lambda entry: entry["data_file"].update(first_row_id=0), place)
    assert FindingKind.ROW_IDS in kinds(table)


def test_a_next_row_id_that_is_given_already_is_found(rest: Catalog) -> None:
    table = rows(rest, version=3)
    Sabotage(table).change_metadata(lambda raw: raw.update({"next-row-id": 1}))
    assert FindingKind.ROW_IDS in kinds(table)


OWNER = "kafka.connect.offsets.control.connect-x"


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize(
    ("name", "lie"),
    [
        (OWNER, '{"0":1}'),
        (OWNER, '{"0":1000}'),
        (OWNER, "7"),
        ("calving.source-offsets", '{"orders@id1":[50]}'),
        ("calving.source-offsets", '{"orders@id1":[1000]}'),
        ("calving.source-offsets", "no JSON"),
        ("calving.settled-offsets", '{"orders@id1":[1000]}'),
        ("calving.missing-offsets", '{"orders@id1":{"0":[[1,3]]}}'),
    ],
)
def test_a_falsified_ledger_is_found_in_whichever_snapshot(catalog: Catalog, which: int, name: str, lie: str) -> None:
    table = ledgers(catalog)
    Sabotage(table).change_summary(name, lambda said: lie, which)
    assert found(table)


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        (OWNER, '{"0":1}'),
        ("calving.source-offsets.control.connect-x", '{"orders@id1":[390]}'),
        ("calving.settled-offsets.control.connect-x", '{"orders@id1":[7]}'),
        ("calving.missing-offsets.control.connect-x", "7"),
    ],
)
def test_a_falsified_table_property_is_found(catalog: Catalog, name: str, lie: str) -> None:
    table = ledgers(catalog)
    Sabotage(table).change_metadata(lambda raw: raw["properties"].update({name: lie}))
    assert kinds(table) == {FindingKind.LEDGER}


def test_rows_of_no_record_are_found(catalog: Catalog) -> None:
    """A commit whose files have more rows than it has taken offsets."""
    lake = Lake(catalog, "2", "main")
    lake.commit(0, 100)
    entry = lake.publish(0, 150)
    lake.settle(lake.repeat(entry, *[type(entry.spans[tp][0])(100, 150) for tp in entry.spans]))
    assert kinds(lake.table) == {FindingKind.RECORDS}


@pytest.mark.parametrize(
    "lie",
    [
        {"current-snapshot-id": 7},
        {"last-sequence-number": 1},
        {"refs": {"main": {"snapshot-id": 7, "type": "branch"}}},
        {"current-snapshot-id": None},
    ],
)
def test_falsified_metadata_are_found(catalog: Catalog, lie: dict[str, Any]) -> None:
    table = ledgers(catalog)
    Sabotage(table).change_metadata(lambda raw: raw.update(lie))
    assert FindingKind.METADATA in kinds(table)


def _parent(raw: Record) -> None:
    """The grandparent, without which the snapshot would have the same files."""
    raw["snapshots"][2]["parent-snapshot-id"] = raw["snapshots"][0]["snapshot-id"]


def _earlier(raw: Record) -> None:
    raw["snapshots"][1]["timestamp-ms"] -= 1


def _kind(raw: Record) -> None:
    raw["schemas"][0]["fields"][0]["type"] = "int"


@pytest.mark.parametrize("lie", [_parent, _earlier, _kind])
def test_what_is_not_as_in_an_earlier_version_of_the_metadata_is_found(
    catalog: Catalog, lie: Callable[[Record], object]
) -> None:
    table = ledgers(catalog)
    Sabotage(table).change_metadata(lie)
    assert FindingKind.METADATA in kinds(table)


def test_a_parent_that_a_manifest_list_does_not_know_is_found_without_earlier_metadata(catalog: Catalog) -> None:
    """A snapshot that has added no file would also be that of another parent."""
    lake = Lake(catalog, "2", "main")
    lake.commit(0, 100)
    for _ in range(2):
        lake.change(*new_snapshot(lake.table, {}, "main").prepare()[0])
    lake.drop_history()
    table = lake.table
    assert found(table) == []
    Sabotage(table).change_metadata(_parent)
    assert kinds(table) == {FindingKind.SNAPSHOT}
