"""Changes as sources write them, and what they leave in a table. The shapes are those of the documentation of Debezium
(its connectors for PostgreSQL, MySQL and MongoDB, and event flattening) and of AWS DMS (Kafka as a target).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from calving.model.record_path import ConverterSpec, Evolution, Routing, TopicConverters, TransformSpec
from calving.model.tables import RowMutations
from harness.registry import SchemaRegistry, avro, framed, serialized, serving
from tests.converters.test_protobuf import class_of, file_of
from tests.mutations.changing import JSON_KEYS, NAME, TOPIC, Changing, Message

Row = dict[str, Any]
Encode = Callable[[Row, Row | None], Message]
"""A key and an event as a message."""
DEBEZIUM = TransformSpec("unwrap", "DebeziumTransform")
CDC = RowMutations("_cdc.op")
BURYING = RowMutations(upsert=True, tombstones="delete")

POSTGRES = {
    "version": "2.7.0.Final",
    "connector": "postgresql",
    "name": "PostgreSQL_server",
    "ts_ms": 1559033904863,
    "snapshot": "true",
    "db": "postgres",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "customers",
    "txId": 555,
    "lsn": 24023128,
    "xmin": None,
}
MYSQL = {
    "version": "2.7.0.Final",
    "connector": "mysql",
    "name": "mysql-server-1",
    "ts_ms": 0,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "table": "customers",
    "server_id": 223344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 154,
    "row": 0,
    "thread": 7,
    "query": None,
}
SOURCES = pytest.mark.parametrize("source", [POSTGRES, MYSQL], ids=["Postgres", "MySQL"])


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    with serving() as found:
        yield found


def kinds(source: Row) -> dict[str, tuple[str, bool]]:
    """Connect's type of each field of the source, and whether it may be null."""
    return {name: ("int64" if isinstance(of, int) else "string", of is None) for name, of in source.items()}


ROW = {"id": ("int64", False), "v": ("string", True), "quantity": ("int32", False)}


def connect(kinds: dict[str, tuple[str, bool]], **more: Any) -> Row:
    fields = [{"field": name, "type": kind, "optional": null} for name, (kind, null) in kinds.items()]
    return {"type": "struct", "fields": fields, "optional": False, **more}


def as_envelope(source: Row) -> Encode:
    key_schema = connect({"id": ("int64", False)}, name="server.customers.Key")
    row = connect(ROW, name="server.customers.Value")
    schema = connect({"op": ("string", False), "ts_ms": ("int64", True)}, name="server.customers.Envelope")
    schema["fields"] += [{**row, "field": side, "optional": True} for side in ("before", "after")]
    schema["fields"].append({**connect(kinds(source)), "field": "source"})

    def encode(key: Row, event: Row | None) -> Message:
        value = None if event is None else {"schema": schema, "payload": event}
        return {"schema": key_schema, "payload": key}, value

    return encode


def as_avro(source: Row, registry: SchemaRegistry) -> Encode:
    names = {"int64": "long", "int32": "int", "string": "string"}

    def record(name: str, kinds: dict[str, tuple[str, bool]]) -> Row:
        fields = [
            {"name": field, "type": ["null", names[kind]] if null else names[kind]}
            for field, (kind, null) in kinds.items()
        ]
        return {"type": "record", "name": name, "namespace": "server.customers", "fields": fields}

    key_schema = record("Key", {"id": ("int64", False)})
    schema = record("Envelope", {"op": ("string", False), "ts_ms": ("int64", True)})
    schema["fields"] += [
        {"name": "before", "type": ["null", record("Value", ROW)]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": record("Source", kinds(source))},
    ]
    of_keys, of_values = (registry.register("s", json.dumps(each)) for each in (key_schema, schema))

    def encode(key: Row, event: Row | None) -> Message:
        return avro(of_keys, key_schema, key), None if event is None else avro(of_values, schema, event)

    return encode


@pytest.fixture(params=["JSON", "JSON with its schema", "Avro"])
def encoding(
    request: pytest.FixtureRequest, registry: SchemaRegistry
) -> tuple[TopicConverters, Callable[[Row], Encode]]:
    """The converters, and how the events of a source are written."""
    match request.param:
        case "JSON":
            return JSON_KEYS, lambda source: lambda key, event: (key, event)
        case "Avro":
            spec = ConverterSpec("avro", {"schema.registry.url": registry.url})
            return TopicConverters(spec, spec), lambda source: as_avro(source, registry)
    spec = ConverterSpec("json", {"schemas.enable": "true"})
    return TopicConverters(spec, spec), as_envelope


def event(source: Row, op: str, before: Row | None, after: Row | None) -> Row:
    return {"op": op, "ts_ms": 1559033904863, "before": before, "after": after, "source": source}


def row(key: int, value: str | None, quantity: int = 1) -> Row:
    return {"id": key, "v": value, "quantity": quantity}


def debezium(folder: Path, mutations: RowMutations | None = CDC, **more: Any) -> Changing:
    return Changing(folder, mutations, transforms=(DEBEZIUM,), **more)


@SOURCES
@pytest.mark.parametrize("tombstones", ["skip", "delete"])
def test_debezium_mirrors_a_table(
    tmp_path: Path, source: Row, tombstones: Any, encoding: tuple[TopicConverters, Callable[[Row], Encode]]
) -> None:
    """A snapshot; updates; deletes, which know only the key, with their tombstones; a row that comes back."""
    converters, written = encoding
    encode = written(source)

    def change(op: str, key: int, value: str | None) -> Message:
        rows = {"c": (None, row(key, value)), "r": (None, row(key, value)), "d": (row(key, None, 0), None)}
        return encode({"id": key}, event(source, op, *rows.get(op, (row(key, "before"), row(key, value)))))

    sink = debezium(tmp_path, RowMutations("_cdc.op", tombstones=tombstones), converters=converters)
    sink.take(*(change("r", key, "snapshot") for key in range(5)))
    outcome = sink.take(
        change("u", 1, "changed"),
        change("d", 2, None),
        encode({"id": 2}, None),
        change("c", 9, "new"),
        change("u", 9, "newer"),
        change("d", 3, None),
        encode({"id": 3}, None),
        change("c", 3, "again"),
        change("u", 4, None),
    )
    assert not outcome.dead_letters
    assert sink.rows("id", "v", "quantity") == [
        (0, "snapshot", 1),
        (1, "changed", 1),
        (3, "again", 1),
        (4, None, 1),
        (9, "newer", 1),
    ]


@SOURCES
def test_a_truncated_source_stops_the_sink_or_is_counted(
    tmp_path: Path, source: Row, encoding: tuple[TopicConverters, Callable[[Row], Encode]]
) -> None:
    converters, written = encoding
    encode = written(source)
    emptied = encode({"id": 0}, event(source, "t", None, None))
    sink = debezium(tmp_path, converters=converters)
    sink.take(encode({"id": 1}, event(source, "c", None, row(1, "a"))))
    outcome = sink.take(encode({"id": 2}, event(source, "c", None, row(2, "a"))), emptied)
    assert sink.reasons(outcome) == [(2, "truncate event")]
    skipping = sink.with_(mutations=RowMutations("_cdc.op", on_truncate="skip"))
    skipping.take(emptied)
    assert (skipping.counts, skipping.rows("id")) == ({"truncate event": 1}, [(1,), (2,)])


EMPTIED = event(POSTGRES, "t", None, None)


def test_a_table_that_is_appended_to_takes_no_notice_of_a_truncated_source(tmp_path: Path) -> None:
    sink = debezium(tmp_path, None, id_columns=())
    outcome = sink.take((None, event(POSTGRES, "c", None, row(1, "a"))), (None, EMPTIED))
    assert (outcome.dead_letters, sink.counts, sink.rows("id")) == ((), {"truncate event": 1}, [(1,)])


def test_a_truncated_source_is_seen_behind_transforms_that_need_a_row(tmp_path: Path) -> None:
    cast = TransformSpec("cast", "TimestampConverter$Value", {"field": "at", "target.type": "Timestamp"})
    flat = TransformSpec("flat", "Flatten$Value", {"delimiter": "_"})
    spec = ConverterSpec("json", {"schemas.enable": "true"})
    sink = Changing(
        tmp_path, RowMutations("_cdc_op"), transforms=(DEBEZIUM, flat, cast), converters=TopicConverters(spec, spec)
    )
    encode = as_envelope(POSTGRES)
    sink.take(encode({"id": 1}, event(POSTGRES, "c", None, row(1, "a"))))
    outcome = sink.take(encode({"id": 0}, EMPTIED))
    assert sink.reasons(outcome) == [(1, "truncate event")]


def test_a_truncated_source_is_told_to_the_table_that_a_field_names(tmp_path: Path) -> None:
    target = {"cdc.target.pattern": "db.t"}
    sink = Changing(
        tmp_path,
        CDC,
        transforms=(TransformSpec("unwrap", "DebeziumTransform", target),),
        routing=Routing(field="_cdc.target", dynamic=True),
    )
    sink.take((None, event(POSTGRES, "c", None, row(1, "a"))))
    assert sink.reasons(sink.take((None, EMPTIED))) == [(1, "truncate event")]


def test_a_source_that_was_truncated_before_its_first_row_has_emptied_nothing(tmp_path: Path) -> None:
    sink = debezium(tmp_path)
    sink.take((None, EMPTIED))
    assert sink.counts == {"truncate event": 1}
    assert sink.reasons(sink.take((None, event(POSTGRES, "c", None, row(1, "a"))), (None, EMPTIED))) == [
        (2, "truncate event")
    ]


@pytest.mark.parametrize(
    ("field", "mode"), [("__op", "rewrite"), ("__deleted", "rewrite"), ("__op", "rewrite-with-tombstone")]
)
@pytest.mark.parametrize("schema", [False, True], ids=["JSON", "JSON with its schema"])
def test_flattened_events_say_what_they_do(tmp_path: Path, field: str, mode: str, schema: bool) -> None:
    """ExtractNewRecordState with ``add.fields=op``."""
    described = connect(ROW | {"__op": ("string", True), "__deleted": ("string", True)})

    def change(op: str, key: int, value: str | None) -> Message:
        found = {**row(key, value), "__op": op, "__deleted": str(op == "d").lower()}
        return None, {"schema": described, "payload": found} if schema else found

    spec = ConverterSpec("json", {"schemas.enable": "true"} if schema else {})
    sink = Changing(tmp_path, RowMutations(field), converters=TopicConverters(ConverterSpec("json"), spec))
    sink.take(*(change("r", key, "snapshot") for key in range(3)))
    tombstones = [({"id": 1}, None)] if "tombstone" in mode else []
    sink.take(change("u", 0, "changed"), change("d", 1, None), *tombstones, change("c", 5, "new"))
    assert sink.rows("id", "v") == [(0, "changed"), (2, "snapshot"), (5, "new")]


def change_message(file: Any) -> None:
    message = file.message_type.add(name="Change")
    message.field.add(name="id", number=1, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64)
    for number, name in enumerate(("op", "v"), 2):
        message.field.add(name=name, number=number, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING)


def operations(registry: SchemaRegistry, kind: str) -> tuple[str, Callable[[int, str | None, str], bytes]]:
    """The converter's name; and a record with an id, a text and an operation, which may be missing."""
    match kind:
        case "Avro":
            optional = ["null", "string"]
            fields = [{"name": "id", "type": "long"}, *({"name": n, "type": optional} for n in ("op", "v"))]
            schema = {"type": "record", "name": "Change", "fields": fields}
            number = registry.register("changes-value", json.dumps(schema))
            return "avro", lambda key, op, v: avro(number, schema, {"id": key, "op": op, "v": v})
        case "JSON Schema":
            kinds = {"id": {"type": "integer"}, "op": {"type": "string"}, "v": {"type": "string"}}
            described = json.dumps({"type": "object", "properties": kinds, "required": ["id"]})
            number = registry.register("changes-value", described, "JSON")

            def written(key: int, op: str | None, v: str) -> bytes:
                record = {"id": key, "v": v} | ({} if op is None else {"op": op})
                return framed(number, json.dumps(record).encode())

            return "json-schema", written
    file = file_of(change_message)
    number, made = registry.register("changes-value", serialized(file), "PROTOBUF"), class_of(file, "t.Change")
    return "protobuf", lambda key, op, v: framed(number, b"\x00" + made(id=key, op=op or "", v=v).SerializeToString())


@pytest.mark.parametrize("kind", ["Avro", "JSON Schema", "Protobuf"])
def test_an_operation_in_a_record_of_any_schema_decides_what_becomes_of_its_row(
    tmp_path: Path, registry: SchemaRegistry, kind: str
) -> None:
    """A record without an operation is an insert."""
    converter, change = operations(registry, kind)
    spec = ConverterSpec(converter, {"schema.registry.url": registry.url})
    sink = Changing(tmp_path, RowMutations("op"), converters=TopicConverters(ConverterSpec("json"), spec))
    sink.take(*((None, change(key, None, "first")) for key in range(4)))
    changes = [change(0, "u", "changed"), change(1, "d", ""), change(7, "c", "new"), change(2, None, "again")]
    outcome = sink.take(*((None, each) for each in changes))
    assert not outcome.dead_letters
    assert sink.rows("id", "v") == [(0, "changed"), (2, "again"), (3, "first"), (7, "new")]


@pytest.mark.parametrize("handling", ["tombstone", "rewrite"])
def test_flattened_events_in_avro_mirror_a_table(tmp_path: Path, registry: SchemaRegistry, handling: str) -> None:
    """``delete.tombstone.handling.mode``: by default a delete is a tombstone alone; or a row that says so."""
    fields = [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}]
    key_schema = {"type": "record", "name": "Key", "fields": fields[:1]}
    marks = [{"name": "__op", "type": ["null", "string"]}, {"name": "__deleted", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Value", "fields": [*fields, *(marks if handling == "rewrite" else [])]}
    of_keys, of_values = (registry.register("flat", json.dumps(each)) for each in (key_schema, schema))

    def change(op: str, key: int, value: str | None) -> Message:
        written = avro(of_keys, key_schema, {"id": key})
        if op == "d" and handling == "tombstone":
            return written, None
        found = {"id": key, "v": value, "__op": op, "__deleted": str(op == "d").lower()}
        return written, avro(of_values, schema, found)

    spec = ConverterSpec("avro", {"schema.registry.url": registry.url})
    mutations = RowMutations("__op") if handling == "rewrite" else BURYING
    sink = Changing(tmp_path, mutations, converters=TopicConverters(spec, spec))
    sink.take(*(change("r", key, "snapshot") for key in range(3)))
    outcome = sink.take(change("u", 0, "changed"), change("d", 1, None), change("c", 5, "new"))
    assert not outcome.dead_letters
    assert sink.rows("id", "v") == [(0, "changed"), (2, "snapshot"), (5, "new")]


def test_dms_mirrors_a_table(tmp_path: Path) -> None:
    """A full load, changes behind it, and a control record."""

    def change(operation: str, data: Row) -> Message:
        about = {
            "timestamp": "2019-01-09T20:00:27.440153Z",
            "record-type": "data",
            "operation": operation,
            "partition-key-type": "primary-key",
            "schema-name": "public",
            "table-name": "customers",
            "transaction-id": 8589934592,
        }
        return None, {"data": data, "metadata": about}

    created = {
        "record-type": "control",
        "operation": "create-table",
        "schema-name": "public",
        "table-name": "customers",
    }
    sink = Changing(tmp_path, CDC, transforms=(TransformSpec("dms", "DmsTransform"),))
    sink.take((None, {"metadata": created}), *(change("load", row(key, "loaded")) for key in range(3)))
    sink.take(change("update", row(0, "changed")), change("delete", {"id": 1}), change("insert", row(5, "new")))
    assert sink.rows("id", "v") == [(0, "changed"), (2, "loaded"), (5, "new")]


@pytest.mark.parametrize("before", [None, "pre-image"])
def test_mongo_mirrors_a_collection(tmp_path: Path, before: str | None) -> None:
    """With and without pre-images; updates come with the whole document."""
    source = {"connector": "mongodb", "name": "fulfillment", "db": "inventory", "rs": "rs0", "collection": "customers"}

    def change(op: str, number: int, name: str | None) -> Message:
        identity = json.dumps({"$numberLong": str(number)})
        document = json.dumps({"_id": {"$numberLong": str(number)}, "name": name})
        old = document if before is not None and op in "ud" else None
        changes = {"removedFields": None, "updatedFields": json.dumps({"name": name})} if op == "u" else None
        value = event(source, op, None, None) | {
            "before": old,
            "after": None if op == "d" else document,
            "updateDescription": changes,
        }
        return {"id": identity}, value

    sink = Changing(
        tmp_path, CDC, ("_id",), transforms=(TransformSpec("documents", "MongoDebeziumTransform"), DEBEZIUM)
    )
    sink.take(*(change("r", number, "snapshot") for number in range(3)))
    outcome = sink.take(change("u", 0, "changed"), change("d", 1, None), ({"id": "1"}, None), change("c", 5, "new"))
    assert not outcome.dead_letters
    assert sink.rows("_id", "name") == [(0, "changed"), (2, "snapshot"), (5, "new")]


def test_tombstones_reach_a_table_whose_name_comes_from_the_topic(tmp_path: Path) -> None:
    """They may be all that a worker reads of the topic after its start."""
    sink = Changing(tmp_path, BURYING, routing=Routing(topic_pattern="db.t"))
    sink.take((None, row(1, "a")), (None, row(2, "a")))
    sink.with_().take(({"id": 1}, None))
    assert sink.rows("id") == [(2,)]


@pytest.mark.parametrize("transforms", [(), (TransformSpec("n", "SetSchemaMetadata", {"schema.name": "x"}),)])
def test_tombstones_delete_rows_of_the_batch_that_creates_their_table(
    tmp_path: Path, transforms: tuple[TransformSpec, ...]
) -> None:
    """Also where another task has read them, which sees no row."""
    sink = Changing(tmp_path, BURYING, slots=2, transforms=transforms)
    rows: list[Message] = [(None, row(key, "a")) for key in range(3_000)]
    sink.take(*rows, *(({"id": key}, None) for key in range(2_999)))
    assert sink.rows("id") == [(2_999,)]


def test_a_key_of_one_value_is_that_of_the_identifier_field(tmp_path: Path) -> None:
    creating = Changing(tmp_path, BURYING)
    creating.take((None, row(1, "a")), (None, row(2, "a")))
    sink = creating.with_(id_columns=())
    sink.take((1, None))
    assert sink.rows("id") == [(2,)]


def test_a_key_of_one_value_is_that_of_an_id_column_inside_of_a_struct(tmp_path: Path) -> None:
    sink = Changing(tmp_path, BURYING, ("k.id",))
    inner = StructType(NestedField(3, "id", LongType(), required=False))
    sink.catalog.create_namespace("db")
    sink.catalog.create_table(
        NAME, Schema(NestedField(1, "k", inner, required=False), NestedField(2, "v", StringType(), required=False))
    )
    sink.take(*((None, {"k": {"id": key}, "v": "a"}) for key in (1, 2)))
    sink.take((1, None))
    assert sink.rows("k", "v") == [({"id": 2}, "a")]


def test_keys_of_tombstones_are_read_as_their_own_topic_says_whatever_it_is_called_then(tmp_path: Path) -> None:
    rename = TransformSpec("rename", "RegexRouter", {"regex": ".*", "replacement": "renamed"})
    other = TopicConverters(ConverterSpec("string"), ConverterSpec("json"))
    sink = Changing(tmp_path, BURYING, transforms=(rename,), converters=other, by_topic={TOPIC: JSON_KEYS})
    sink.take((None, row(1, "a")), (None, row(2, "a")))
    sink.take(({"id": 1}, None))
    assert sink.rows("id") == [(2,)]


def test_plain_records_replace_each_other_whatever_their_fields_say(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations(upsert=True), evolution=Evolution(create=True, evolve=True))
    sink.take(*((None, {"id": key % 3, "v": key, "op": "d"}) for key in range(7)))
    sink.take((None, {"id": 1, "v": 9, "op": "d", "more": "x"}))
    assert sink.rows("id", "v", "more") == [(0, 6, None), (1, 9, "x"), (2, 5, None)]


# Updates of keys


def postgres(op: str, before: Row | None, after: Row | None, **source: Any) -> Row:
    return {"op": op, "ts_ms": 5, "before": before, "after": after, "source": {**POSTGRES, **source}}


@pytest.mark.parametrize("mode", ["hard", "soft"])
@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "batch by batch"])
@pytest.mark.parametrize("slots", [1, 2])
def test_an_update_of_a_key_deletes_the_row_of_the_old_key(
    tmp_path: Path, mode: Any, together: bool, slots: int
) -> None:
    """Rule M11."""
    sink = Changing(tmp_path, RowMutations("_cdc.op", delete_mode=mode), transforms=(DEBEZIUM,), slots=slots)
    events = [
        postgres("c", None, {"id": 1, "v": "a"}),
        postgres("c", None, {"id": 5, "v": "b"}),
        postgres("u", {"id": 1, "v": "a"}, {"id": 2, "v": "c"}),
        postgres("u", {"id": 5, "v": "b"}, {"id": 5, "v": "d"}),
        postgres("u", {"id": 2, "v": "c"}, {"id": 3, "v": "e"}),
    ]
    messages = [({"id": 0}, event) for event in events]
    for batch in [messages] if together else [[message] for message in messages]:
        assert sink.reasons(sink.take(*batch)) == []
    if mode == "hard":
        assert sink.rows("id", "v") == [(3, "e"), (5, "d")]
    else:
        rows = [(1, "a", True), (2, "c", True), (3, "e", False), (5, "d", False)]
        assert sink.rows("id", "v", "_cdc_deleted") == rows


def test_the_account_of_an_update_of_a_key_adds_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rule I1: the record counts once as a row, and once as a delete."""
    sink = Changing(tmp_path, CDC, transforms=(DEBEZIUM,))
    sink.take((None, postgres("c", None, {"id": 1, "v": "a"})))
    with caplog.at_level("INFO"):
        sink.take((None, postgres("u", {"id": 1, "v": "a"}, {"id": 2, "v": "b"})))
    assert "read 1 + copied 1 = written 1, dead letters 0, deleted 1" in caplog.messages


@pytest.mark.parametrize("before", [None, {"id": None, "v": None}, {"v": "a"}, {}], ids=str)
def test_a_before_image_without_the_key_changes_no_key(tmp_path: Path, before: Row | None) -> None:
    sink = Changing(tmp_path, CDC, transforms=(DEBEZIUM,))
    sink.take((None, postgres("c", None, {"id": 1, "v": "a"})), (None, postgres("u", before, {"id": 1, "v": "b"})))
    assert sink.rows("id", "v") == [(1, "b")]


def test_of_a_key_of_several_columns_those_that_the_before_image_lacks_have_not_changed(tmp_path: Path) -> None:
    """As in Postgres, where by default the image has only the primary key."""
    sink = Changing(tmp_path, CDC, ("k.tenant", "id"), transforms=(DEBEZIUM,))
    rows = [{"id": 1, "k": {"tenant": tenant, "x": 1}, "v": tenant} for tenant in ("a", "b")]
    sink.take(*((None, postgres("c", None, row)) for row in rows))
    after = {"id": 2, "k": {"tenant": "a", "x": 1}, "v": "moved"}
    sink.take((None, postgres("u", {"id": 1, "k": {"tenant": None, "x": None}, "v": None}, after)))
    assert sink.rows("id", "v") == [(1, "b"), (2, "moved")]


def test_later_transforms_change_the_before_image_as_they_change_the_row(tmp_path: Path) -> None:
    rename = TransformSpec("rename", "ReplaceField$Value", {"renames": "id:key"})
    sink = Changing(tmp_path, CDC, ("key",), transforms=(DEBEZIUM, rename))
    sink.take((None, postgres("c", None, {"id": 1, "v": "a"})))
    sink.take((None, postgres("u", {"id": 1, "v": "a"}, {"id": 2, "v": "b"})))
    assert sink.rows("key", "v") == [(2, "b")]


@pytest.mark.parametrize("mode", ["hard", "soft"])
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside another"])
def test_an_update_whose_before_image_does_not_fit_brings_no_column(tmp_path: Path, mode: Any, beside: bool) -> None:
    sink = Changing(
        tmp_path,
        replace(CDC, delete_mode=mode, soft_delete_field="gone"),
        transforms=(DEBEZIUM,),
        evolution=Evolution(create=True, evolve=True),
    )
    sink.take((None, postgres("c", None, {"id": 1, "v": "a"})))
    bad = postgres("u", {"id": "x", "v": "a"}, {"id": 1, "v": "b", "new": 5})
    others = [(None, postgres("u", {"id": 1}, {"id": 2, "v": "b", "other": 5}))] if beside else []
    ((offset, reason),) = sink.reasons(sink.take((None, bad), *others))
    assert (offset, reason) == (1, "table db.t: field 'id': 'x' is not a long: not an integer")
    names = {field.name for field in sink.table.schema().fields}
    assert "new" not in names and ("other" in names) == beside


def test_a_row_whose_before_image_a_transform_refuses_is_bad_and_changes_nothing(tmp_path: Path) -> None:
    cast = TransformSpec("cast", "Cast$Value", {"spec": "id:int64"})
    sink = Changing(tmp_path, CDC, transforms=(DEBEZIUM, cast))
    sink.take((None, postgres("c", None, {"id": "1", "v": "a"})))
    outcome = sink.take((None, postgres("u", {"id": "x"}, {"id": "1", "v": "b"})))
    assert [offset for offset, _ in sink.reasons(outcome)] == [1]
    assert sink.rows("id", "v") == [(1, "a")]


@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_by_an_order_field_the_delete_of_an_old_key_counts_by_the_order_of_its_event(tmp_path: Path, mode: Any) -> None:
    """Not by the value of the before image, which is that of the row."""
    mutations = RowMutations("_cdc.op", order_field="n", delete_mode=mode)
    sink = Changing(tmp_path, mutations, transforms=(DEBEZIUM,))
    sink.take((None, postgres("c", None, {"id": 1, "n": 4})))
    sink.take((None, postgres("u", {"id": 1, "n": 3}, {"id": 2, "n": 5})))
    late = (None, postgres("u", {"id": 2, "n": 1}, {"id": 3, "n": 2}))
    sink.take(late)
    live = [key for key, *gone in sink.rows("id", *(["_cdc_deleted"] if mode == "soft" else [])) if gone != [True]]
    assert live == [2, 3]


def test_the_order_value_of_a_before_image_may_be_anything(tmp_path: Path) -> None:
    sink = Changing(tmp_path, RowMutations("_cdc.op", order_field="n"), transforms=(DEBEZIUM,))
    sink.take((None, postgres("c", None, {"id": 1, "n": 4})))
    assert sink.reasons(sink.take((None, postgres("u", {"id": 1, "n": "x"}, {"id": 2, "n": 5})))) == []
    assert sink.rows("id", "n") == [(2, 5)]


def test_a_table_that_is_appended_to_gets_one_row_of_an_update_of_a_key(tmp_path: Path) -> None:
    sink = Changing(tmp_path, None, (), transforms=(DEBEZIUM,))
    sink.take((None, postgres("u", {"id": 1, "v": "a"}, {"id": 2, "v": "b"})))
    assert sink.rows("id", "v") == [(2, "b")]


def dms(operation: str, data: Row, **more: Any) -> Message:
    about = {"operation": operation, "timestamp": "2024", "record-type": "data", "schema-name": "s", "table-name": "t"}
    return None, {"data": data, "metadata": about, **more}


@pytest.mark.parametrize(
    "update",
    [
        dms("update", {"id": 2, "v": "b"}, **{"before-image": {"id": 1}}),
        dms("update", {"id": 2, "v": "b", "BI_id": 1}),
    ],
    ids=["an object", "fields"],
)
def test_a_before_image_of_dms_says_which_key_an_update_has_changed(tmp_path: Path, update: Message) -> None:
    sink = Changing(tmp_path, CDC, transforms=(TransformSpec("dms", "DmsTransform"),))
    sink.take(dms("load", {"id": 1, "v": "a"}), dms("load", {"id": 3, "v": "a"}))
    sink.take(update, dms("update", {"id": 3, "v": "c"}, **{"before-image": {"id": 3}}))
    assert sink.rows("id", "v") == [(2, "b"), (3, "c")]


# Events without a row


@pytest.mark.parametrize(
    ("event", "sentence"),
    [
        (postgres("c", None, '{"_id": 1}'), "'after' is string, not a row: MongoDebeziumTransform has to come first"),  # type: ignore[arg-type]
        (postgres("u", None, 5), "'after' is int64, not a row"),  # type: ignore[arg-type]
        (postgres("u", {"id": 1}, None), "an event of the operation 'u' has no row: 'after' is null"),
        (postgres("r", None, None), "an event of the operation 'r' has no row: 'after' is null"),
        (postgres("d", None, None), "a delete without 'before' does not say which row: the source has to write it"),
        (postgres("d", '{"_id": 1}', None), "'before' is string, not a row: MongoDebeziumTransform has to come first"),  # type: ignore[arg-type]
        ({"status": "BEGIN", "id": "1"}, "there is no field 'op', so this is no change event of Debezium"),
        ({**postgres("c", None, {"id": 1}), "source": None}, "the field 'source' must be an object, not null"),
    ],
)
@pytest.mark.parametrize("mutations", [None, CDC], ids=["append", "mutations"])
def test_an_event_of_debezium_whose_row_is_missing_is_bad(
    tmp_path: Path, event: Row, sentence: str, mutations: RowMutations | None
) -> None:
    sink = Changing(tmp_path, mutations, ("id",) if mutations else (), transforms=(DEBEZIUM,))
    outcome = sink.take((None, event), (None, postgres("c", None, {"id": 1, "v": "a"})), (None, event))
    ((_, reason), (_, again)) = sink.reasons(outcome)
    assert reason == again and sentence in reason
    assert sink.rows("id") == [(1,)]


def test_records_that_are_no_changes_are_filtered_and_counted_by_what_they_are(tmp_path: Path) -> None:
    sink = Changing(tmp_path, CDC, transforms=(DEBEZIUM,))
    message = {"op": "m", "ts_ms": 5, "source": POSTGRES, "message": {"prefix": "p", "content": "eA=="}}
    begun = {"status": "BEGIN", "id": "571:53195829", "ts_ms": 5, "event_count": None, "data_collections": None}
    collections = [{"data_collection": "public.customers", "event_count": 1}]
    ended = {**begun, "status": "END", "event_count": 1, "data_collections": collections}
    changed = {
        "source": MYSQL,
        "ts_ms": 5,
        "databaseName": "inventory",
        "schemaName": None,
        "ddl": "ALTER TABLE t ...",
        "tableChanges": [{"type": "ALTER", "id": '"inventory"."t"', "table": {"columns": []}}],
    }
    records = [{"ts_ms": 5}, message, begun, ended, changed, postgres("c", None, {"id": 1})]
    outcome = sink.take(*((None, each) for each in records))
    kinds = {"heartbeat": 1, "message": 1, "transaction": 2, "schema change": 1}
    assert sink.counts == {f"transform unwrap: {kind}": count for kind, count in kinds.items()}
    assert (outcome.dead_letters, sink.rows("id")) == ((), [(1,)])


def test_a_row_with_the_fields_of_a_transaction_is_a_row(tmp_path: Path) -> None:
    """Only where the record has no operation, it is a message of the connector."""
    sink = Changing(tmp_path, CDC, transforms=(DEBEZIUM,))
    row = {"status": "new", "id": 1, "event_count": 0, "data_collections": "x"}
    sink.take((None, postgres("c", None, row)), (None, {**postgres("c", None, {**row, "id": 2}), **row}))
    assert sink.rows("id", "status") == [(1, "new"), (2, "new")]


@SOURCES
def test_the_time_of_the_source_stands_beside_that_of_the_connector(
    tmp_path: Path, source: Row, encoding: tuple[TopicConverters, Callable[[Row], Encode]]
) -> None:
    converters, written = encoding
    encode = written(source)
    unwrap = TransformSpec("unwrap", "DebeziumTransform", {"cdc.source-ts": "true"})
    sink = Changing(
        tmp_path,
        RowMutations("_cdc.op", metadata_columns=("_cdc.ts", "_cdc.source_ts")),
        transforms=(unwrap,),
        types={"_cdc.ts": "timestamptz", "_cdc.source_ts": "timestamptz"},
        converters=converters,
    )
    sink.take(encode({"id": 1}, event(source, "c", None, row(1, "a"))))
    (((times),),) = sink.rows("_cdc")
    moments = {"ts": 1559033904863, "source_ts": source["ts_ms"]}
    assert times == {
        name: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at) for name, at in moments.items()
    }


@pytest.mark.parametrize(
    "event", [{"data": {"id": 1}}, {"data": None, "metadata": dms("load", {})[1]["metadata"]}, {"a": 1}], ids=str
)
def test_what_is_no_event_of_dms_is_bad(tmp_path: Path, event: Row) -> None:
    sink = Changing(tmp_path, CDC, transforms=(TransformSpec("dms", "DmsTransform"),))
    outcome = sink.take((None, event), dms("load", {"id": 1}))
    assert [offset for offset, reason in sink.reasons(outcome) if "no event of AWS DMS" in reason] == [0]


@pytest.mark.parametrize("op", ["c", "u", "d"])
def test_a_column_of_the_source_named_as_what_debezium_adds_makes_the_row_bad(tmp_path: Path, op: str) -> None:
    row = {"id": 1, "_cdc": "mine"}
    event = postgres(op, None if op == "c" else row, None if op == "d" else row)
    sink = Changing(tmp_path, CDC, transforms=(DEBEZIUM,))
    outcome = sink.take((None, event), (None, postgres("c", None, {"id": 2})))
    assert [at for at, reason in sink.reasons(outcome) if "a column '_cdc' of its own" in reason] == [0]


def test_a_column_of_the_source_named_as_what_dms_adds_makes_the_row_bad(tmp_path: Path) -> None:
    sink = Changing(tmp_path, CDC, transforms=(TransformSpec("dms", "DmsTransform"),))
    outcome = sink.take(dms("insert", {"id": 1, "_cdc": 5}), dms("insert", {"id": 2}))
    assert [at for at, reason in sink.reasons(outcome) if "a column '_cdc' of its own" in reason] == [0]


def mongo(op: str, **more: Any) -> Message:
    event = {"op": op, "before": None, "after": None, "updateDescription": None, "ts_ms": 5}
    source = {"db": "shop", "collection": "orders"}
    return {"id": "1"}, {**event, "source": source, **more}


@pytest.mark.parametrize(
    "update",
    [
        mongo("u", updateDescription={"updatedFields": '{"a": "new"}', "removedFields": None}),
        mongo("u", updateDescription={"truncatedArrays": [{"field": "l", "size": 1}]}),
    ],
    ids=["of a field", "of an array"],
)
def test_a_partial_update_of_mongo_is_bad_in_a_table_whose_rows_change(tmp_path: Path, update: Message) -> None:
    chain = (TransformSpec("documents", "MongoDebeziumTransform"), DEBEZIUM)
    sink = Changing(tmp_path, CDC, ("_id",), transforms=chain)
    sink.take(mongo("c", after='{"_id": 1, "a": "x", "b": "y"}'))
    outcome = sink.take(update)
    ((_, reason),) = sink.reasons(outcome)
    assert "the update has only the changed fields" in reason and "change_streams_update_full" in reason
    assert sink.rows("_id", "b") == [(1, "y")]


def test_a_partial_update_of_mongo_is_a_row_of_a_table_to_which_rows_are_added(tmp_path: Path) -> None:
    chain = (TransformSpec("documents", "MongoDebeziumTransform"), DEBEZIUM)
    sink = Changing(tmp_path, None, (), transforms=chain)
    sink.take(mongo("u", updateDescription={"updatedFields": '{"a": "new"}', "removedFields": None}))
    assert sink.rows("_id", "a") == [(1, "new")]


@pytest.mark.parametrize("together", [False, True])
def test_a_null_and_an_empty_array_of_mongo_do_not_decide_a_type(tmp_path: Path, together: bool) -> None:
    chain = (TransformSpec("documents", "MongoDebeziumTransform"), DEBEZIUM)
    sink = Changing(tmp_path, None, (), transforms=chain, evolution=Evolution(create=True, evolve=True))
    events = [
        mongo("c", after='{"_id": 1, "n": null, "l": [], "o": {"l": [], "n": null}, "m": [null, [null]]}'),
        mongo("c", after='{"_id": 2, "n": 5, "l": [1, null], "o": {"l": [{"$date": 0}], "n": 1.5}, "m": [null, [7]]}'),
    ]
    for batch in [events] if together else [[event] for event in events]:
        assert not sink.take(*batch).dead_letters
    first: tuple[Any, ...] = (
        (1, None, [], {"l": [], "n": None}, [None, [None]]) if together else (1, None, None, None, None)
    )
    second = (2, 5, [1, None], {"l": [datetime(1970, 1, 1, tzinfo=UTC)], "n": 1.5}, [None, [7]])
    assert sink.rows("_id", "n", "l", "o", "m") == [first, second]
