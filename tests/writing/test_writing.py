"""Writers take a block whole or not at all, hold little, and say beforehand what files cannot hold."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pyarrow.orc as po
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    UUIDType,
)

from calving.errors import BadRecordError, ConfigError
from calving.model.files import DataFile
from calving.model.record_path import Limits
from calving.records.fields import arrow_schema
from calving.storage_errors import store_error
from calving.tasks.shuffle import ShuffleWriter
from calving.writing.table import TableWriter, Waiting
from harness import memory
from tests.writing.written import rows, table, write

FORMATS = ("parquet", "orc", "avro")
EARLY = Schema(NestedField(1, "p", LongType(), required=False), NestedField(2, "ts", TimestampType(), required=False))
BY_P = PartitionSpec(PartitionField(source_id=1, field_id=1000, transform=IdentityTransform(), name="p"))
ORC = {"write.format.default": "orc"}


def read(file: DataFile) -> list[Any]:
    """The rows of a file by its own reader."""
    path = file.file_path.removeprefix("file://")
    if file.file_format == "AVRO":
        with Path(path).open("rb") as source:
            return list(fastavro.reader(source))
    found = pq.read_table(path) if file.file_format == "PARQUET" else po.ORCFile(path).read()
    return list(found.to_pylist())


INNER = StructType(
    NestedField(2, "i", StructType(NestedField(3, "x", LongType(), required=False)), required=False),
    NestedField(4, "b", BinaryType(), required=False),
)
NESTED = Schema(NestedField(1, "o", INNER, required=False))


@pytest.mark.parametrize("name", FORMATS)
def test_a_null_struct_in_a_struct_does_not_move_the_values_of_other_rows(name: str, tmp_path: Path) -> None:
    found = [{"i": None, "b": b"1"}, {"i": {"x": 5}, "b": None}, {"i": {"x": 6}, "b": b"3"}]
    (file,) = write(table(tmp_path, NESTED, properties={"write.format.default": name}), rows(NESTED, {"o": found}))
    assert [row["o"] for row in read(file)] == found


def test_text_that_ends_before_the_surrogates_has_an_upper_bound_after_them(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "s", StringType(), required=False))
    for tail, bound in (("\ud7ff", "\ue000"), ("a", "b"), ("\U0010ffff", None)):
        (file,) = write(table(tmp_path, schema), rows(schema, {"s": ["x" * 15 + tail + "more"]}))
        expected = "x" * 15 + bound if bound else "x" * 14 + "y"
        assert (file.upper_bounds or {})[1] == expected.encode()
        assert (file.lower_bounds or {})[1] == ("x" * 15 + tail).encode()


def test_what_cannot_be_exceeded_has_no_upper_bound(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "s", StringType(), required=False), NestedField(2, "b", BinaryType(), required=False)
    )
    (file,) = write(table(tmp_path, schema), rows(schema, {"s": ["\U0010ffff" * 20], "b": [b"\xff" * 20]}))
    assert (file.upper_bounds, file.lower_bounds) == ({}, {1: ("\U0010ffff" * 16).encode(), 2: b"\xff" * 16})


UUIDS = Schema(NestedField(1, "l", ListType(2, UUIDType(), element_required=False), required=False))


@pytest.mark.parametrize("name", FORMATS)
def test_a_null_list_of_uuids_has_no_elements(name: str, tmp_path: Path) -> None:
    found = [[b"a" * 16, None], None, [], [b"b" * 16]]
    for given_rows, counts in ((found, (3, 1)), ([None], (0, 0))):
        batch = rows(UUIDS, {"l": given_rows})
        (file,) = write(table(tmp_path, UUIDS, properties={"write.format.default": name}), batch)
        assert ((file.value_counts or {})[2], (file.null_value_counts or {})[2]) == counts
        assert [row["l"] is None for row in read(file)] == [row is None for row in given_rows]


REQUIRED = Schema(NestedField(1, "m", MapType(2, StringType(), 3, UUIDType(), value_required=True), required=False))


def lying(values: list[bytes | None]) -> pa.RecordBatch:
    """Arrow takes maps for equal whose values are nullable and whose values are not, if they are UUIDs."""
    uuids = pa.array(values, pa.binary(16)).cast(pa.uuid())
    count = len(values)
    column = pa.MapArray.from_arrays(pa.array(range(count + 1)), pa.array(["k"] * count), uuids)
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(REQUIRED))
    kind = batch.column(0).type
    assert pa.types.is_map(kind) and kind.item_field.nullable
    return batch


def test_a_file_is_as_nullable_as_its_table(tmp_path: Path) -> None:
    (file,) = write(table(tmp_path, REQUIRED), lying([b"a" * 16, b"b" * 16]))
    path = file.file_path.removeprefix("file://")
    assert [[k for k, _ in row["m"]] for row in pq.read_table(path).to_pylist()] == [["k"], ["k"]]
    assert duckdb.execute("select count(*), min(m['k']) from read_parquet(?)", [path]).fetchall()[0][0] == 2


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_value_of_a_required_field_is_bad_and_nothing_is_taken(name: str, tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, REQUIRED, properties={"write.format.default": name}), 0, Limits())
    with pytest.raises(BadRecordError, match=re.escape("column 'm.value' is required")):
        writer.write(lying([b"a" * 16, None]))
    assert (writer.rows, writer.close()) == (0, [])


@pytest.mark.parametrize("name", FORMATS)
def test_a_required_field_of_a_null_struct_needs_no_value(name: str, tmp_path: Path) -> None:
    inner = StructType(NestedField(2, "x", StringType(), required=True))
    schema = Schema(NestedField(1, "o", inner, required=False))
    strings = pa.array(["a", None, "c"])
    kind = arrow_schema(schema).field(0).type
    assert pa.types.is_struct(kind)
    fields = kind.fields
    column = pa.StructArray.from_arrays([strings], fields=fields, mask=pa.array([False, True, False]))
    batch = pa.RecordBatch.from_arrays([column], schema=arrow_schema(schema))
    (file,) = write(table(tmp_path, schema, properties={"write.format.default": name}), batch)
    assert [row["o"] for row in read(file)] == [{"x": "a"}, None, {"x": "c"}]


def early() -> pa.RecordBatch:
    return rows(EARLY, {"p": [1, 2], "ts": [0, -500_000]})


def test_a_block_with_a_value_that_files_cannot_hold_is_not_taken_at_all(tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, EARLY, BY_P, properties=ORC), 0, Limits())
    with pytest.raises(BadRecordError, match="column 'ts': ORC files cannot hold"):
        writer.write(early())
    writer.write(rows(EARLY, {"p": [3], "ts": [1]}))
    assert [file.record_count for file in writer.close()] == [1] == [writer.rows]


def test_rows_that_the_other_end_could_not_write_are_not_sent(tmp_path: Path) -> None:
    outbox = ShuffleWriter(table(tmp_path, EARLY, BY_P, properties=ORC))
    with pytest.raises(BadRecordError, match="column 'ts': ORC files cannot hold"):
        outbox.write(early())
    outbox.finish()
    assert (outbox.rows, outbox.take()) == (0, [])


def test_a_trial_raises_what_writing_would_and_leaves_nothing(tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, EARLY, BY_P, properties=ORC), 0, Limits())
    with pytest.raises(BadRecordError, match="column 'ts': ORC files cannot hold"):
        writer.trial(early())
    writer.trial(rows(EARLY, {"p": [3], "ts": [1]}))
    assert (writer.rows, writer.buffered_bytes, writer.close(), list(tmp_path.iterdir())) == (0, 0, [], [])


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_without_columns_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("table db.t: it has no columns")):
        TableWriter(table(tmp_path, Schema(), properties={"write.format.default": name}), 0, Limits())


def test_a_struct_without_fields_is_refused_where_files_cannot_hold_it(tmp_path: Path) -> None:
    outer = StructType(NestedField(2, "e", StructType(), required=False))
    schema = Schema(NestedField(1, "o", outer, required=False))
    with pytest.raises(ConfigError, match=re.escape("table db.t: column 'o.e': Parquet files cannot hold a struct")):
        TableWriter(table(tmp_path, schema), 0, Limits())


SEVERAL = st.lists(st.integers(0, 5), max_size=30)
ONE = st.builds(lambda number, count: [number] * count, st.integers(0, 5), st.integers(0, 30))


@given(
    st.lists(SEVERAL | ONE, max_size=12), st.lists(st.sampled_from(["full", "half", "no"]), min_size=12, max_size=12)
)
def test_rows_that_waited_leave_once_and_in_their_order(blocks: list[list[int]], steps: list[str]) -> None:
    waiting = Waiting(enough=160)
    expected: defaultdict[int, list[int]] = defaultdict(list)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for i, (numbers, step) in enumerate(zip(blocks, steps, strict=False)):
        ids = [i * 100 + j for j in range(len(numbers))]
        for number, row in zip(numbers, ids, strict=True):
            expected[number].append(row)
        (*others, first) = set(numbers) or {0}
        waiting.add(
            pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64())}),
            pa.array(numbers, pa.int32()) if others else first,
        )
        for number, part in {"full": waiting.full, "half": waiting.half, "no": list}[step]():
            found[number] += part["id"].to_pylist()
    for number, part in waiting.all():
        found[number] += part["id"].to_pylist()
    assert (found, waiting.bytes) == (expected, 0)


DEEP = Schema(
    NestedField(1, "p", LongType(), required=False),
    NestedField(2, "id", LongType(), required=False),
    NestedField(3, "m", MapType(4, StringType(), 5, LongType(), value_required=True), required=False),
    NestedField(6, "l", ListType(7, LongType(), element_required=True), required=False),
)


@pytest.mark.parametrize("name", FORMATS)
def test_large_blocks_of_one_file_keep_their_rows_and_order(name: str, tmp_path: Path) -> None:
    """They are not joined: those of mixed partitions are divided, and those of one partition are taken as they are."""
    size, expected = 10_000, defaultdict[int, list[int]](list)
    writer = TableWriter(table(tmp_path, DEEP, BY_P, properties={"write.format.default": name}), 0, Limits())
    for block in range(6):
        ids = range(block * size, (block + 1) * size)
        wanted = [0 if block % 2 else i % 2 for i in ids]
        for p, i in zip(wanted, ids, strict=True):
            expected[p].append(i)
        maps, lists = [{"a": i} if i % 3 else None for i in ids], [[i] * (i % 3) for i in ids]
        writer.write(rows(DEEP, {"p": wanted, "id": list(ids), "m": maps, "l": lists}))
    for file in writer.close():
        found = read(file)
        (p,) = (int(str(value)) for value in file.partition.values)
        assert [row["id"] for row in found] == expected.pop(p)
        assert all(row["l"] == [row["id"]] * (row["id"] % 3) for row in found)
        assert all(_entries(row["m"]) == ([("a", row["id"])] if row["id"] % 3 else None) for row in found)
    assert not expected


def _entries(found: Any) -> list[tuple[str, int]] | None:
    """The entries of a map, as the reader of any format gives them."""
    return found and [tuple(each.values()) if isinstance(each, dict) else each for each in found]


WIDE = Schema(NestedField(1, "p", LongType(), required=False), NestedField(2, "s", StringType(), required=False))


def test_relief_closes_a_large_file_before_it_makes_many_small_ones(tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, WIDE, BY_P), 0, Limits(open_files=8))
    for block in range(12):
        size = 40_000
        texts = [f"{i * 2654435761 % 2**32:08x}{block}" * 12 for i in range(size)]
        writer.write(rows(WIDE, {"p": [i % 20_000 if i < 20_000 else -1 for i in range(size)], "s": texts}))
    writer.flush_largest()
    assert [file.partition.values[0] for file in writer.done] == [-1]
    writer.discard()


def test_files_beyond_what_may_be_open_are_closed(tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, WIDE, BY_P), 0, Limits(open_files=2))
    for _ in range(2):
        writer.write(rows(WIDE, {"p": [i % 4 for i in range(4000)], "s": ["x" * 20_000] * 4000}))
    assert len(writer.done) >= 2
    assert sum(file.record_count for file in writer.close()) == 8000


def test_rows_of_many_blocks_share_a_row_group(tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, WIDE, UNPARTITIONED_PARTITION_SPEC), 0, Limits())
    for _ in range(50):
        writer.write(rows(WIDE, {"p": range(1000), "s": ["x" * 1000] * 1000}))
    (file,) = writer.close()
    assert pq.read_metadata(file.file_path.removeprefix("file://")).num_row_groups <= 4


@pytest.mark.parametrize("file_format", FORMATS)
def test_many_partitions_do_not_fill_the_memory(file_format: str) -> None:
    found = memory.measure(1_000, 16_000, file_format)
    assert found["files"] == 1_000
    assert int(str(found["peak_mib"])) < 128


def test_a_writer_that_gives_up_ignores_files_that_cannot_be_deleted(tmp_path: Path) -> None:
    writer = TableWriter(table(tmp_path, WIDE, BY_P), 0, Limits(open_files=2))
    for _ in range(2):
        writer.write(rows(WIDE, {"p": [i % 4 for i in range(4000)], "s": ["x" * 20_000] * 4000}))
    for file in writer.done:
        Path(file.file_path.removeprefix("file://")).unlink()
    writer.discard()
    assert writer.buffered_bytes == 0


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_is_named_with_the_file_that_it_has_no_room_for(name: str, tmp_path: Path) -> None:
    io = {"py-io-impl": "tests.writing.full_disk.FullDisk"}
    target = replace(table(tmp_path, EARLY, properties={"write.format.default": name}), io_properties=io)
    with pytest.raises(OSError) as raised:
        write(target, rows(EARLY, {"p": [1], "ts": [None]}))
    assert re.fullmatch(
        rf"no space is left for file://{re.escape(str(tmp_path))}/data/\S+\.{name}: make room on its volume",
        str(store_error(raised.value)),
    )
