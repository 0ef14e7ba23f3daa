"""The record path alone: decode, transform, convert and write in this process, on one core, without Kafka and Spark."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType, TimestamptzType
from rich.console import Console
from rich.table import Table

from calving.model.offsets import Range
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.model.tables import TableSpec
from calving.records.foreign import VARIANT
from calving.tasks.pipeline import Pipeline
from calving.tasks.selection import Timings
from calving.tasks.spec import TaskSpec
from harness.blocks import MILLIS, Given
from harness.registry import SchemaRegistry, framed, serialized, serving

_BLOCK = 8_000
_TYPES = ("click", "view", "buy")
_COLUMNS = {
    "id": LongType(),
    "ts": TimestamptzType(),
    "user": StringType(),
    "type": StringType(),
    "amount": DoubleType(),
    "payload": StringType(),
}

Fields = dict[str, Any]
FLAT = Schema(*(NestedField(i, n, k, required=False) for i, (n, k) in enumerate(_COLUMNS.items(), 1)))


def _inside(kind: IcebergType) -> Schema:
    """A table with one column, which takes all fields."""
    return Schema(NestedField(100, "v", kind, required=False))


STRUCT, VARIANTS = _inside(FLAT.as_struct()), _inside(VARIANT)


def fields(number: int) -> Fields:
    """Six columns, as in the bench of the whole sink."""
    return {
        "id": number,
        "ts": MILLIS + number,
        "user": f"user-{number * 7919 % 100_000}",
        "type": _TYPES[number % 3],
        "amount": number % 100_000 / 100,
        "payload": f"{number * 2654435761 % 2**32:08x}" * 10,
    }


_JSON = ConverterSpec("json")


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    values: Sequence[bytes]
    value: ConverterSpec = _JSON
    transforms: tuple[TransformSpec, ...] = ()
    evolve: bool = False
    schema: Schema = FLAT


def measure(folder: Path, records: int, console: Console) -> list[dict[str, object]]:
    """Every converter and transform; records/s of the path without fetching, and microseconds by stage."""
    folder.mkdir(parents=True, exist_ok=True)
    table = Table(title="The record path on one core, without fetching")
    for column in ("case", "records/s", "us a record", "by stage, us"):
        table.add_column(column)
    results = []
    with serving() as registry:
        cases = _cases(records, registry)
        _run(cases[0], folder)  # warm
        for case in cases:
            seconds, stages = _run(case, folder)
            count = len(case.values)
            shares = {name: round(spent / count * 1e6, 2) for name, spent in stages.items()}
            result = {"case": case.name, "records_per_second": round(count / seconds), "stages_us": shares}
            results.append(result)
            by_stage = ", ".join(f"{name} {share}" for name, share in shares.items())
            table.add_row(case.name, f"{count / seconds:,.0f}", f"{seconds / count * 1e6:.2f}", by_stage)
    console.print(table)
    return results


def _run(case: Case, folder: Path) -> tuple[float, dict[str, float]]:
    target = TableSpec(
        "bench.t",
        case.schema.model_dump_json(),
        UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
        f"file://{folder}",
        {},
        {},
    )
    path = RecordPath(
        {},
        Routing((RouteRule("bench.t"),), unrouted="skip"),
        Evolution(evolve=case.evolve),
        {"": TopicConverters(value=case.value)},
        case.transforms,
        Tolerance("topic"),
    )
    spec = TaskSpec(0, (), path, {"bench.t": target}, {})
    stages = Timings()
    pipeline = Pipeline(spec, stages)
    blocks = [_block(case.values, start) for start in range(0, len(case.values), _BLOCK)]
    gc.collect()
    gc.disable()  # as in a task
    started = time.thread_time()
    for block in blocks:
        accounts = pipeline.run(block)
        if accounts.written + len(accounts.bad) + sum(accounts.filtered.values()) != len(block):
            raise RuntimeError(f"{case.name}: records were lost")
    pipeline.writers.close()
    seconds = time.thread_time() - started
    gc.enable()
    if pipeline.changes:
        raise RuntimeError(f"{case.name}: the table does not fit: {[*pipeline.changes.values()]}")
    pipeline.writers.discard()
    return seconds, stages.seconds


def _block(values: Sequence[bytes], start: int) -> Given:
    """A block as the reader makes it: its columns stand in Arrow before they are decoded."""
    values = values[start : start + _BLOCK]
    block = Given(Range("bench", 0, start, start + len(values)), start, values)
    for column in (block.values.column, block.keys.column, block.headers):
        len(column)
    return block


def _cases(count: int, registry: SchemaRegistry) -> list[Case]:
    rows = [fields(i) for i in range(count)]
    plain = [_json(row) for row in rows]
    return [*_converters(rows, plain, registry), *_poisoned(plain), *_transforms(rows, plain)]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _converters(rows: Sequence[Fields], plain: Sequence[bytes], registry: SchemaRegistry) -> list[Case]:
    url = {"schema.registry.url": registry.url}
    kinds = {"id": "int64", "ts": "int64", "user": "string", "type": "string", "amount": "double", "payload": "string"}
    logical = {"ts": {"name": "org.apache.kafka.connect.data.Timestamp"}}
    described = [{"field": n, "type": k, **logical.get(n, {})} for n, k in kinds.items()]
    envelope = {"type": "struct", "fields": described}
    avro = fastavro.parse_schema(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "user", "type": "string"},
                {"name": "type", "type": "string"},
                {"name": "amount", "type": "double"},
                {"name": "payload", "type": "string"},
            ],
        }
    )
    number = registry.register("bench-avro", json.dumps(avro))
    inside = [_json({"v": row}) for row in rows]
    return [
        Case("json", plain),
        Case("json, schema evolution on", plain, evolve=True),
        Case("json into a struct", inside, schema=STRUCT),
        Case("json into a variant", inside, schema=VARIANTS),
        Case("json, epoch and text mixed in one column", [*plain[::2], *(_json({**r, "id": "7"}) for r in rows[1::2])]),
        Case("json, exact path (1e400 in every block)", _with(plain, 64, _json(rows[0]).replace(b"0.0", b"1e400"))),
        Case(
            "json with the Connect envelope",
            [_json({"schema": envelope, "payload": row}) for row in rows],
            ConverterSpec("json", {"schemas.enable": "true"}),
        ),
        Case("avro", [framed(number, _avro(avro, row)) for row in rows], ConverterSpec("avro", url)),
        Case("protobuf", _protobuf(rows, registry), ConverterSpec("protobuf", url)),
        Case(
            "string, HoistField",
            [row["payload"].encode() for row in rows],
            ConverterSpec("string"),
            (TransformSpec("t", "HoistField", {"field": "payload"}),),
        ),
        Case(
            "bytes, HoistField, dropped",
            [row["payload"].encode() for row in rows],
            ConverterSpec("bytes"),
            (TransformSpec("t", "HoistField", {"field": "other"}),),
        ),
    ]


def _avro(schema: Any, row: Fields) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, schema, row)
    return out.getvalue()


def _protobuf(rows: Sequence[Fields], registry: SchemaRegistry) -> list[bytes]:
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    message = file.message_type.add(name="R")
    types = {
        "id": kind.TYPE_INT64,
        "user": kind.TYPE_STRING,
        "type": kind.TYPE_STRING,
        "amount": kind.TYPE_DOUBLE,
        "payload": kind.TYPE_STRING,
        "ts": kind.TYPE_INT64,
    }
    for i, (name, type_) in enumerate(types.items(), 1):
        message.field.add(name=name, number=i, type=type_, label=kind.LABEL_OPTIONAL)
    number = registry.register("bench-protobuf", serialized(file), "PROTOBUF")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.R"))
    return [framed(number, b"\x00" + made(**row).SerializeToString()) for row in rows]


def _with(values: Sequence[bytes], every: int, other: bytes) -> list[bytes]:
    return [other if i % every == 5 else value for i, value in enumerate(values)]


def _poisoned(plain: Sequence[bytes]) -> list[Case]:
    return [
        Case("json, 1 of 10,000 is no JSON", _with(plain, 10_000, b'{"id":')),
        Case("json, 1 of 10,000 does not fit its column", _with(plain, 10_000, b'{"id":"x"}')),
        Case("json, 1 of 100 is no JSON", _with(plain, 100, b'{"id":')),
    ]


def _transforms(rows: Sequence[Fields], plain: Sequence[bytes]) -> list[Case]:
    def one(kind: str, values: Sequence[bytes] = plain, name: str = "", **options: str) -> Case:
        spec = TransformSpec("t", kind, {key.replace("_", "."): text for key, text in options.items()})
        return Case(name or kind, values, transforms=(spec,))

    three = tuple(
        TransformSpec(name, kind, options)
        for name, kind, options in (
            ("a", "ReplaceField", {"renames": "kind:type"}),
            ("b", "InsertField", {"topic.field": "topic"}),
            ("c", "MaskField", {"fields": "user", "replacement": "x"}),
        )
    )
    debezium = [_json(_event(row)) for row in rows]
    dms = [_json(_dms(row)) for row in rows]
    nested = [_json({"a": row}) for row in rows]
    text = [_json(json.dumps(row)) for row in rows]
    return [
        Case("chain of three: ReplaceField, InsertField, MaskField", plain, transforms=three),
        one("Cast", spec="id:string"),
        one("ExtractField", nested, field="a"),
        one("Flatten", nested, delimiter="_"),
        one("HoistField", field="a"),
        one("InsertField", offset_field="id"),
        one("MaskField", fields="user"),
        one("ReplaceField", exclude="payload"),
        one("SetSchemaMetadata", schema_name="x"),
        one("TimestampConverter", field="ts", target_type="string", format="yyyy-MM-dd HH:mm:ss"),
        one("ValueToKey", fields="id"),
        one("HeaderFrom", fields="user", headers="user", operation="copy"),
        one("InsertHeader", header="a", value_literal="b"),
        one("DropHeaders", headers="a"),
        one("RegexRouter", regex="(.*)", replacement="$1-x"),
        one("TimestampRouter"),
        one("Drop"),
        Case("Filter", plain, transforms=(TransformSpec("t", "Filter"),)),
        one("CopyValue", source_field="id", target_field="other"),
        one("DebeziumTransform", debezium),
        one("DmsTransform", dms),
        Case(
            "JsonToMapTransform",
            text,
            _JSON,
            (TransformSpec("t", "JsonToMapTransform"),),
        ),
        one("KafkaMetadataTransform"),
        one("Sql", query="SELECT id, upper(user) AS user, amount * 2 AS amount FROM records WHERE id % 10 <> 3"),
    ]


def _event(row: Fields) -> Fields:
    source = {"db": "shop", "schema": None, "table": "events"}
    return {"op": "c", "ts_ms": row["ts"], "before": None, "after": row, "source": source}


def _dms(row: Fields) -> Fields:
    about = {
        "timestamp": "2026-01-01T00:00:00Z",
        "operation": "insert",
        "schema-name": "shop",
        "table-name": "events",
    }
    return {"data": row, "metadata": about}
