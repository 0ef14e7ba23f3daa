"""Blocks of records that are short and within the limits, but take much memory together or as text."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from google.protobuf import descriptor_pb2
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, NestedField, StringType

from calving.casting.table import TableConverter
from calving.model.record_path import ConverterSpec, Evolution, Limits, RecordPath, Routing, TopicConverters
from calving.records.cells import CELL, TOGETHER, FullBlockError
from calving.records.values import Payloads, Values
from calving.tasks.decode import Decoders
from calving.tasks.spec import TaskSpec
from harness.registry import framed, serialized
from tests.fuzz.work_typed import zigzag

CELLS = 30_000
"""The limit, which is low: a case is cheap then, and what it takes is compared with the limit."""
F = descriptor_pb2.FieldDescriptorProto


def case(chance: Random, registry: Any) -> Callable[[], object]:
    """A function that decodes and converts a block, and raises if it takes more than it may."""
    columns = chance.choice((20, 100, 300))
    elements = chance.randint(1, CELLS // columns)
    count, schemas = chance.randint(1, 20), chance.choice((1, 20))
    if chance.random() < 0.5:
        name, options = "json", {"schemas.enable": "true"}
        length = chance.choice((1, 30, 300))
        values = [_envelope(columns, elements, length, i % schemas) for i in range(count)]
    else:
        name, options = "protobuf", {"schema.registry.url": registry.url}
        number = registry.register("h", _file(columns), "PROTOBUF")
        values = [framed(number, zigzag(1) + zigzag(1 + i % schemas) + b"\x0a\0" * elements) for i in range(count)]
    spec = ConverterSpec(name, options)
    path = RecordPath({}, Routing(), converters={"": TopicConverters(key=spec, value=spec)}, limits=Limits(cells=CELLS))
    decoders, payloads = Decoders(TaskSpec(0, (), path, {}, {})), Payloads.of(values)
    kind: IcebergType = chance.choice((StringType(), ListType(2, StringType(), element_required=False)))
    is_key = chance.random() < 0.5

    def run() -> None:
        parts = decoders.keys("t", payloads) if is_key else decoders.decode("t", "", payloads, None)
        places: list[int] = []
        for part in parts:
            taken = sum(each.data.nbytes for each in part.values if not isinstance(each.data, list))
            if taken > 1.1 * TOGETHER * CELL * CELLS and len(part.values) > 1:
                raise AssertionError(f"{taken} bytes stand together")
            for each in part.values:
                places += each.index
                _convert(kind, each)
            places += [bad.index for bad in part.bad]
        if sorted(places) != [*range(count)]:
            raise AssertionError(f"of {count} records come {places}")

    return run


def _convert(kind: IcebergType, values: Values) -> None:
    table = TableConverter(
        "db.t", Schema(NestedField(1, "r0", kind, required=False)), Evolution(evolve=False), {}, Limits(cells=CELLS)
    )
    try:
        rows = table.convert(values).rows
    except FullBlockError:
        half = len(values) // 2
        _convert(kind, values.choose(range(half)))
        _convert(kind, values.choose(range(half, len(values))))
        return
    if rows is not None and rows.nbytes > 1.1 * TOGETHER * CELL * CELLS + 2 * CELL * CELLS:
        raise AssertionError(f"{rows.nbytes} bytes of text stand together")


def _envelope(columns: int, elements: int, length: int, schema: int) -> bytes:
    fields = [{"field": f"f{i}" + "x" * length, "type": "int64", "optional": True} for i in range(columns)]
    items = {"type": "array", "field": "r0", "items": {"type": "struct", "fields": fields}}
    declared = {"type": "struct", "name": f"s{schema}", "fields": [items]}
    return json.dumps({"schema": declared, "payload": {"r0": [{}] * elements}}).encode()


def _file(columns: int) -> str:
    """A file of 24 messages with a list of wide elements, and the element."""
    file = descriptor_pb2.FileDescriptorProto(name="h.proto", package="h", syntax="proto3")
    element = file.message_type.add(name="Element")
    for i in range(columns):
        element.field.add(name=f"f{i}", number=i + 1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    for i in range(24):
        field = file.message_type.add(name=f"M{i}").field.add(name="r0", number=1, type=F.TYPE_MESSAGE)
        field.label, field.type_name = F.LABEL_REPEATED, ".h.Element"
    return serialized(file)
