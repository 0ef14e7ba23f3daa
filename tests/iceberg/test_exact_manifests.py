"""A manifest that is read and written again has the same partition values and bounds, to the bit."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    LongType,
    NestedField,
    UUIDType,
)

from calving.model.record_path import Limits
from calving.protocol.commit import Step
from calving.records.fields import arrow_schema
from calving.writing.table import TableWriter
from tests.iceberg.histories import MutationTable, create

DENORMAL, LEAST = 1e-310, 5e-324
DOUBLES = [DENORMAL, -DENORMAL, LEAST, -LEAST, 0.0, -0.0, math.inf, -math.inf, math.nan, 2.0**-1022, 1.7e308, 0.1]
FLOATS = [1e-40, -1e-40, 1e-45, 0.0, -0.0, math.inf, math.nan, 3.4e38]
KINDS: dict[str, tuple[IcebergType, list[Any]]] = {
    "double": (DoubleType(), DOUBLES),
    "float": (FloatType(), FLOATS),
    "decimal": (DecimalType(38, 10), [-(10**27), 10**27, -1, 0]),
    "binary": (BinaryType(), [b"", b"\0", b"\xff" * 20, b"a"]),
    "uuid": (UUIDType(), [b"\0" * 16, b"\xff" * 16]),
    "long": (LongType(), [-(2**63), 2**63 - 1, 0]),
}


def append(table: MutationTable, values: list[Any], first: int) -> None:
    schema = arrow_schema(table.table.schema())
    columns = [pa.array(range(first, first + len(values)), pa.int64()), pa.array(values, schema.field("v").type)]
    writer = TableWriter(table.spec(), 0, Limits())
    writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
    table.commit(Step(tuple(writer.close()), ()))


def entries(table: MutationTable) -> dict[Any, Any]:
    """By file: the status, and all else that its entry says, as bytes where a comparison might not tell them apart."""
    found = {}
    head = table.table.current_snapshot()
    assert head is not None
    for manifest in head.manifests(table.table.io):
        with table.table.io.new_input(manifest.manifest_path).open() as stream:
            for entry in fastavro.reader(stream):  # type: ignore[arg-type]
                file = entry["data_file"]  # type: ignore[index, call-overload]
                found[file["file_path"]] = entry["status"], _exact(file)  # type: ignore[index, call-overload]
    return found


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _exact(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted(map(_exact, value), key=repr)
    return struct.pack("<d", value) if isinstance(value, float) else value


@pytest.mark.parametrize("kind", KINDS)
def test_a_manifest_that_is_written_again_says_the_same_of_each_file(catalog: Catalog, kind: str) -> None:
    iceberg_type, values = KINDS[kind]
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", iceberg_type, required=False))
    table = create(catalog, ["v"], 2, schema=schema)
    append(table, [*values, None], 0)
    before = entries(table)
    assert {status for status, _ in before.values()} == {1}
    table.commit(table.step([], [{"id": 0}]))  # its file has no row left, so the manifest is written again
    after = entries(table)
    assert sorted(status for status, _ in after.values()) == [0] * len(values) + [2]
    assert {path: file for path, (_, file) in after.items()} == {path: file for path, (_, file) in before.items()}


def test_manifests_that_are_merged_say_the_same_of_each_file(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "v", DoubleType(), required=False))
    table = create(catalog, ["v"], 2, schema=schema)
    with table.table.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    append(table, DOUBLES[:6], 0)
    before = entries(table)
    append(table, DOUBLES[6:], 10)
    after = entries(table)
    assert {path: after[path] for path in before} == {path: (0, file) for path, (_, file) in before.items()}


def test_doubles_of_any_bits_are_read_as_they_are() -> None:
    from pyiceberg.avro.decoder import new_decoder

    from calving.iceberg.manifests import _EXACT_DOUBLE

    chance = random.Random(7)
    bits = [chance.getrandbits(64) for _ in range(20_000)] + [chance.getrandbits(52) for _ in range(20_000)]
    raw = struct.pack(f"<{len(bits)}Q", *bits)
    decoder = new_decoder(raw)
    read = [_EXACT_DOUBLE.read(decoder) for _ in bits]
    assert struct.pack(f"<{len(bits)}d", *read) == raw
