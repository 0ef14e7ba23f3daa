"""Debezium's semantic types: by their schema's name a number, text or struct becomes what its source meant."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.casting.table import TableConverter
from calving.converters.avro import AvroConverter
from calving.converters.interface import Converter, converter
from calving.model.record_path import Evolution, TransformSpec
from calving.model.tables import Moments
from calving.records.inferred import of_type
from calving.records.semantics import SemanticType, like, plain, semantic
from calving.records.values import HEADERS, Records, Values
from calving.transforms.chain import Chain
from calving.transforms.sql import Sql
from harness.registry import SchemaRegistry, framed
from harness.registry import avro as written

TIME, DATA = "io.debezium.time.", "io.debezium.data."
US = 1_780_000_000_123_456
"""2026-05-28T20:26:40.123456"""
SCALED = {"type": "struct", "fields": [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]}
GEOMETRY = {
    "type": "struct",
    "fields": [{"field": "wkb", "type": "bytes"}, {"field": "srid", "type": "int32", "optional": True}],
}
NEW = [
    ("int32", f"{TIME}Date", "date"),
    ("int32", f"{TIME}Time", "time"),
    ("int64", f"{TIME}MicroTime", "time"),
    ("int64", f"{TIME}NanoTime", "time"),
    ("int64", f"{TIME}Timestamp", "timestamp"),
    ("int64", f"{TIME}MicroTimestamp", "timestamp"),
    ("int64", f"{TIME}NanoTimestamp", "timestamp_ns"),
    ("int32", f"{TIME}Year", "int"),
    ("int64", f"{TIME}MicroDuration", "long"),
    ("int64", f"{TIME}NanoDuration", "long"),
    ("string", f"{TIME}Interval", "string"),
    ("string", f"{TIME}ZonedTimestamp", "timestamptz"),
    ("string", f"{TIME}ZonedTime", "string"),
    ("string", f"{TIME}IsoTimestamp", "timestamp"),
    ("string", f"{TIME}IsoDate", "date"),
    ("string", f"{TIME}IsoTime", "time"),
    ("string", f"{DATA}Uuid", "uuid"),
    ("string", f"{DATA}Json", "string"),
    ("string", f"{DATA}Xml", "string"),
    ("string", f"{DATA}Enum", "string"),
    ("string", f"{DATA}EnumSet", "string"),
    ("bytes", f"{DATA}Bits", "binary"),
]


def envelope(field: Mapping[str, Any], *values: Any) -> tuple[Converter, list[bytes]]:
    schema = {"type": "struct", "fields": [{"field": "v", "optional": True, **field}]}
    made = converter("org.apache.kafka.connect.json.JsonConverter", {}, is_key=False)
    return made, [json.dumps({"schema": schema, "payload": {"v": v}}).encode() for v in values]


_AVRO = {"int32": "int", "int64": "long", "string": "string", "bytes": "bytes"}


def avro(field: Mapping[str, Any], *values: Any) -> tuple[Converter, list[bytes]]:
    kind = {"type": _AVRO[field["type"]], "connect.version": 1, "connect.name": field.get("name")}
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": ["null", kind]}]}
    return AvroConverter({"schema": json.dumps(schema)}, is_key=False), [
        written(1, schema, {"v": v})[5:] for v in values
    ]


Encoding = Callable[..., tuple[Converter, list[bytes]]]


@pytest.fixture(params=["1", "0"], ids=["native", "python"], autouse=True)
def native(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVING_NATIVE", request.param)


def decoded(made: tuple[Converter, list[bytes]]) -> Values:
    found = made[0].decode(made[1], None)
    assert found.bad == []
    (values,) = found.values
    return values


def kind_of(column: Any) -> Any:
    """The inferred type that a column of values needs."""
    return of_type(column.type)


def convert(values: Values, kind: IcebergType, *, exactly: bool = False, moments: Moments | None = None) -> list[Any]:
    """For each value the number that is stored, or the reason why it is bad."""
    schema = Schema(NestedField(1, "v", kind, required=False))
    table = TableConverter("db.t", schema, Evolution(), {}, None, moments, exactly=exactly)
    found = table.convert(values)
    assert found.changes == []
    outcome: list[Any] = [None] * len(values)
    if found.rows is not None:
        for place, value in zip(found.index, stored(found.rows.column(0)), strict=True):
            outcome[place] = value
    for bad in found.bad:
        outcome[bad.index] = bad.reason
    return outcome


def stored(column: pa.Array) -> list[Any]:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    return [
        each.hex if hasattr(each, "hex") and not isinstance(each, bytes | float) else each
        for each in column.to_pylist()
    ]


@pytest.mark.parametrize("encode", [envelope, avro])
@pytest.mark.parametrize(("kind", "name", "column"), NEW)
def test_a_new_column_has_the_type_that_the_schema_s_name_means(
    encode: Encoding, kind: str, name: str, column: str
) -> None:
    sample = {"int32": 1, "int64": 1, "string": "a", "bytes": "" if encode is envelope else b""}[kind]
    values = decoded(encode({"type": kind, "name": name}, sample))
    assert kind_of(values.data) == {"struct": {"v": column}, "required": []}


MOMENTS = [
    ("int64", "MicroTimestamp", US, TimestampType(), US),
    ("int64", "MicroTimestamp", US, TimestamptzType(), US),
    ("int64", "MicroTimestamp", US, TimestampNanoType(), US * 1000),
    ("int64", "MicroTimestamp", US, TimestamptzNanoType(), US * 1000),
    ("int64", "MicroTimestamp", US, LongType(), US),
    ("int64", "MicroTimestamp", US, StringType(), str(US)),
    ("int64", "MicroTimestamp", US, DecimalType(20, 0), US),
    ("int64", "MicroTimestamp", US, DateType(), 20_601),
    ("int64", "MicroTimestamp", -6_795_364_578_871_001, TimestampType(), -6_795_364_578_871_001),
    ("int64", "Timestamp", US // 1000, TimestampType(), US // 1000 * 1000),
    ("int64", "Timestamp", US // 1000, TimestampNanoType(), US // 1000 * 1_000_000),
    ("int64", "Timestamp", US // 1000, LongType(), US // 1000),
    ("int64", "NanoTimestamp", US * 1000 + 789, TimestampType(), US),
    ("int64", "NanoTimestamp", -1, TimestampType(), -1),
    ("int64", "NanoTimestamp", US * 1000 + 789, TimestampNanoType(), US * 1000 + 789),
    ("int64", "NanoTimestamp", US * 1000 + 789, LongType(), US * 1000 + 789),
    ("int32", "Date", 19_000, DateType(), 19_000),
    ("int32", "Date", 19_000, TimestampType(), 19_000 * 86_400_000_000),
    ("int32", "Date", 19_000, IntegerType(), 19_000),
    ("int32", "Date", 2_932_896, DateType(), 2_932_896),
    ("int32", "Time", 3_600_000, TimeType(), 3_600_000_000),
    ("int64", "MicroTime", 3_600_000_001, TimeType(), 3_600_000_001),
    ("int64", "MicroTime", 108_000_000_000, LongType(), 108_000_000_000),
    ("int64", "NanoTime", 3_600_000_001_999, TimeType(), 3_600_000_001),
    ("int64", "NanoTime", 3_600_000_001_999, StringType(), "3600000001999"),
    ("int32", "Year", 2024, IntegerType(), 2024),
    ("int32", "Year", 2024, StringType(), "2024"),
    ("int64", "MicroDuration", 5, LongType(), 5),
    ("string", "ZonedTimestamp", "2024-01-02T03:04:05.678901Z", TimestamptzType(), 1_704_164_645_678_901),
    ("string", "ZonedTimestamp", "2024-01-02T05:04:05.678901+02:00", TimestamptzType(), 1_704_164_645_678_901),
    ("string", "ZonedTimestamp", "2024-01-02T05:04:05+02:00", StringType(), "2024-01-02T05:04:05+02:00"),
    ("string", "ZonedTime", "03:04:05Z", StringType(), "03:04:05Z"),
    ("string", "ZonedTime", "03:04:05.5Z", TimeType(), 11_045_500_000),
    ("string", "ZonedTime", "03:04:05+00:00", TimeType(), 11_045_000_000),
    ("string", "IsoDate", "2022-01-08Z", DateType(), 19_000),
    ("string", "IsoTime", "03:04:05Z", TimeType(), 11_045_000_000),
    ("string", "IsoTimestamp", "2024-01-02T03:04:05.678901Z", TimestampType(), 1_704_164_645_678_901),
]


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("encode", [envelope, avro])
@pytest.mark.parametrize(("kind", "name", "value", "column", "expected"), MOMENTS)
def test_a_value_with_a_meaning_becomes_it_in_any_column(
    encode: Encoding, kind: str, name: str, value: Any, column: IcebergType, expected: Any, exactly: bool
) -> None:
    values = decoded(encode({"type": kind, "name": TIME + name}, value, None))
    assert convert(values, column, exactly=exactly) == [expected, None]


REFUSED = [
    ("int64", "MicroTimestamp", 9_223_372_036_825_200_000, TimestampType(), "years 1 to 9999"),
    ("int64", "MicroTimestamp", -9_223_372_036_832_400_000, TimestamptzType(), "years 1 to 9999"),
    ("int64", "Timestamp", US, TimestampType(), "years 1 to 9999"),
    ("int64", "MicroTimestamp", US, TimeType(), "no time of day"),
    ("int64", "MicroTime", 5, TimestampType(), "no moment"),
    ("int64", "MicroTime", 5, DateType(), "no date"),
    ("int64", "MicroTime", 86_400_000_000, TimeType(), "no time of day"),
    ("int64", "MicroTime", -1, TimeType(), "no time of day"),
    ("int32", "Date", 5, TimeType(), "no time of day"),
    ("int32", "Date", 2_932_897, DateType(), "years 1 to 9999"),
    ("int32", "Year", 2024, DateType(), "no date"),
    ("int32", "Year", 2024, TimestampType(), "no moment"),
    ("int64", "MicroDuration", 5, TimestampType(), "no moment"),
    ("int64", "NanoDuration", 5, TimeType(), "no time of day"),
    ("int64", "NanoTimestamp", 5, UUIDType(), "not text"),
    ("string", "ZonedTime", "03:04:05+02:00", TimeType(), "not a time"),
    ("string", "ZonedTimestamp", "infinity", TimestamptzType(), "is not a timestamptz: write ISO 8601, such as"),
]


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("encode", [envelope, avro])
@pytest.mark.parametrize(("kind", "name", "value", "column", "reason"), REFUSED)
def test_a_value_is_no_other_moment_than_it_means(
    encode: Encoding, kind: str, name: str, value: Any, column: IcebergType, reason: str, exactly: bool
) -> None:
    good = 1 if kind != "string" else None
    values = decoded(encode({"type": kind, "name": TIME + name}, good, value))
    assert reason in convert(values, column, exactly=exactly)[1]


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("encode", [envelope, avro])
def test_a_uuid_is_a_uuid_or_the_text_that_it_was(encode: Encoding, exactly: bool) -> None:
    text = "00112233-4455-6677-8899-aabbccddeeff"
    values = decoded(encode({"type": "string", "name": f"{DATA}Uuid"}, text, "no uuid", None))
    assert convert(values, StringType(), exactly=exactly) == [text, "no uuid", None]
    found = convert(values, UUIDType(), exactly=exactly)
    assert found[0] == text.replace("-", "") and "'no uuid' is not a uuid" in found[1]


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(8, "big", signed=True)).decode()


@pytest.mark.parametrize("exactly", [False, True])
def test_a_decimal_that_brings_its_scale_is_a_number_in_any_column(exactly: bool) -> None:
    given = [{"scale": s, "value": unscaled(n)} for s, n in ((2, 1234), (0, -5), (-3, 7))]
    values = decoded(envelope({**SCALED, "name": f"{DATA}VariableScaleDecimal"}, *given, None))
    assert kind_of(values.data) == {"struct": {"v": "string"}, "required": []}
    assert convert(values, StringType(), exactly=exactly) == ["12.34", "-5", "7000", None]
    assert list(map(str, convert(values, DecimalType(9, 2), exactly=exactly))) == ["12.34", "-5.00", "7000.00", "None"]
    assert convert(values, DoubleType(), exactly=exactly) == [12.34, -5.0, 7000.0, None]
    whole = convert(values, LongType(), exactly=exactly)
    assert "not a whole number" in whole[0] and whole[1:] == [-5, 7000, None]


@pytest.mark.parametrize("exactly", [False, True])
def test_a_decimal_that_brings_its_scale_still_fills_a_struct(exactly: bool) -> None:
    values = decoded(envelope({**SCALED, "name": f"{DATA}VariableScaleDecimal"}, {"scale": 2, "value": "BNI="}))
    inner = StructType(
        NestedField(2, "scale", IntegerType(), required=False), NestedField(3, "value", BinaryType(), required=False)
    )
    assert convert(values, inner, exactly=exactly) == [{"scale": 2, "value": b"\x04\xd2"}]


def test_a_geometry_stays_a_struct() -> None:
    values = decoded(envelope({**GEOMETRY, "name": f"{DATA}geometry.Geometry"}, {"wkb": "AAE=", "srid": 4326}))
    assert kind_of(values.data)["struct"]["v"]["struct"] == {"wkb": "binary", "srid": "int"}


MICROS = {"type": "int64", "optional": True, "name": f"{TIME}MicroTimestamp"}


def test_meanings_inside_arrays_maps_and_structs_count() -> None:
    field = {
        "type": "struct",
        "fields": [
            {"field": "list", "type": "array", "items": MICROS},
            {"field": "map", "type": "map", "keys": {"type": "string"}, "values": MICROS},
            {"field": "one", **MICROS},
        ],
    }
    values = decoded(envelope(field, {"list": [US, None], "map": {"a": US}, "one": US}))
    kind = StructType(
        NestedField(2, "list", ListType(5, TimestampType(), False), required=False),
        NestedField(3, "map", MapType(6, StringType(), 7, TimestampType(), False), required=False),
        NestedField(4, "one", TimestampType(), required=False),
    )
    schema = Schema(NestedField(1, "v", kind, required=False))
    for exactly in (False, True):
        found = TableConverter("db.t", schema, Evolution(), {}, exactly=exactly).convert(values)
        assert found.rows is not None and not found.bad
        row = found.rows.column(0)[0].as_py()
        moment = row["one"]
        assert moment.isoformat() == "2026-05-28T20:26:40.123456"
        assert row == {"list": [moment, None], "map": [("a", moment)], "one": moment}


def chain(values: Values, *specs: TransformSpec) -> Records:
    count = len(values)
    data: Any = values.data
    records = Records(
        pa.array(range(count), pa.int32()), pa.repeat(pa.scalar("t"), count), 0, pa.array(range(count), pa.int64()),
        pa.nulls(count, pa.timestamp("ms", "UTC")), pa.nulls(count), data, pa.nulls(count), values.typed,
    )  # fmt: skip
    done = Chain(specs).apply(records)
    assert done.bad == []
    (found,) = done.records
    return found


ROW = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int32"}, {"field": "at", **MICROS}]}


def debezium(**changes: Any) -> bytes:
    names = ({"field": n, "type": "string", "optional": True} for n in ("db", "schema", "table"))
    fields = [
        {"field": "before", **ROW},
        {"field": "after", **ROW},
        {"field": "source", "type": "struct", "fields": list(names)},
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64", "optional": True},
    ]
    source = {"db": "shop", "schema": "public", "table": "orders"}
    event = {"before": None, "after": None, "source": source, "op": "c", "ts_ms": 1, **changes}
    return json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": event}).encode()


CHAINS: list[tuple[TransformSpec, ...]] = [
    (),
    (TransformSpec("f", "Flatten"),),
    (TransformSpec("r", "ReplaceField", {"renames": "id:key"}),),
    (TransformSpec("h", "HoistField", {"field": "x"}), TransformSpec("e", "ExtractField", {"field": "x"})),
    (TransformSpec("i", "InsertField", {"static.field": "from", "static.value": "here"}),),
    (TransformSpec("m", "MaskField", {"fields": "id"}),),
    (TransformSpec("c", "Cast", {"spec": "id:string"}),),
    (TransformSpec("k", "ValueToKey", {"fields": "id"}),),
    (TransformSpec("s", "Sql", {"query": 'SELECT id, "at" FROM records'}),),
    (TransformSpec("t", "TimestampConverter", {"field": "at", "target.type": "Timestamp"}),),
    (TransformSpec("c", "CopyValue", {"source.field": "at", "target.field": "was"}),
     TransformSpec("r", "ReplaceField", {"exclude": "at"}), TransformSpec("n", "ReplaceField", {"renames": "was:at"})),
]  # fmt: skip


@pytest.mark.parametrize("specs", CHAINS)
def test_a_meaning_survives_transforms(specs: Sequence[TransformSpec]) -> None:
    event = TransformSpec("d", "DebeziumTransform")
    made = converter("org.apache.kafka.connect.json.JsonConverter", {}, is_key=False)
    values = decoded((made, [debezium(after={"id": 1, "at": US}), debezium(op="r", after={"id": 2, "at": None})]))
    found = chain(values, event, *specs)
    kinds = kind_of(found.value)["struct"]
    millis = any(spec.type == "TimestampConverter" for spec in specs)
    assert kinds["at"] == ("timestamptz" if millis else "timestamp")
    schema = Schema(NestedField(1, "at", TimestampType(), required=False))
    rows = TableConverter("db.t", schema, Evolution(), {}).convert(Values(found.value, True)).rows
    assert rows is not None
    assert stored(rows.column(0)) == [US // 1000 * 1000 if millis else US, None]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (TransformSpec("c", "Cast", {"spec": "v:string"}), str(US)),
        (TransformSpec("c", "Cast", {"spec": "v:int64"}), US),
        (TransformSpec("c", "Cast", {"spec": "v:float64"}), float(US)),
        (TransformSpec("m", "MaskField", {"fields": "v"}), 0),
        (TransformSpec("m", "MaskField", {"fields": "v", "replacement": "7"}), 7),
        (TransformSpec("t", "TimestampConverter", {"field": "v", "target.type": "unix"}), US // 1000),
        (TransformSpec("t", "TimestampConverter", {"field": "v", "target.type": "Date"}), None),
    ],
)
def test_a_transform_sees_the_number_that_kafka_connect_s_sees(spec: TransformSpec, expected: Any) -> None:
    value = chain(decoded(envelope(MICROS, US)), spec).value.to_pylist()[0]["v"]
    assert value == expected if expected is not None else value.isoformat() == "2026-05-28"


def test_a_struct_that_is_a_decimal_can_be_taken_apart() -> None:
    values = decoded(envelope({**SCALED, "name": f"{DATA}VariableScaleDecimal"}, {"scale": 2, "value": "BNI="}))
    found = chain(values, TransformSpec("f", "Flatten"))
    assert found.value.to_pylist() == [{"v.scale": 2, "v.value": b"\x04\xd2"}]


def test_connect_s_own_names_count_in_avro_without_a_logical_type() -> None:
    connect = "org.apache.kafka.connect.data."
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "d", "type": {"type": "int", "connect.name": f"{connect}Date"}},
            {"name": "t", "type": {"type": "int", "connect.name": f"{connect}Time"}},
            {"name": "at", "type": {"type": "long", "connect.name": f"{connect}Timestamp"}},
            {
                "name": "n",
                "type": {"type": "bytes", "connect.name": f"{connect}Decimal", "connect.parameters": {"scale": "2"}},
            },
        ],
    }
    made = AvroConverter({"schema": json.dumps(schema)}, is_key=False)
    values = decoded((made, [written(1, schema, {"d": 1, "t": 2, "at": 3, "n": b"\x05"})[5:]]))
    assert kind_of(values.data)["struct"] == {"d": "date", "t": "time", "at": "timestamptz", "n": "decimal(38, 2)"}


def test_json_schema_names_a_meaning_in_its_title(registry: SchemaRegistry) -> None:
    scaled = {
        "scale": {"type": "integer", "connect.type": "int32"},
        "value": {"type": "string", "connect.type": "bytes"},
    }
    schema = {
        "type": "object",
        "properties": {
            "at": {"type": "integer", "connect.type": "int64", "title": f"{TIME}MicroTimestamp"},
            "zoned": {"type": "string", "title": f"{TIME}ZonedTimestamp"},
            "n": {"type": "object", "title": f"{DATA}VariableScaleDecimal", "properties": scaled},
        },
    }
    number = registry.register("t-value", json.dumps(schema), "JSON")
    made = converter("json-schema", {"schema.registry.url": registry.url}, is_key=False)
    value = json.dumps({"at": US, "zoned": "2024-01-02T03:04:05Z", "n": {"scale": 0, "value": "AQ=="}}).encode()
    values = decoded((made, [framed(number, value)]))
    assert kind_of(values.data)["struct"] == {"at": "timestamp", "zoned": "timestamptz", "n": "string"}


@pytest.mark.parametrize("exactly", [False, True])
def test_a_moment_of_any_year_is_taken_if_the_settings_say_so(exactly: bool) -> None:
    far = 253_402_300_800_000_000
    values = decoded(envelope(MICROS, far))
    assert convert(values, TimestampType(), exactly=exactly, moments=Moments(any_year=True)) == [far]
    (reason,) = convert(values, TimestampType(), exactly=exactly)
    assert "253402300800000000 us is the moment +10000-01-01T00:00:00, outside the years 1 to 9999" in reason
    assert "from us" in reason and "iceberg.tables.timestamp-range = any" in reason


@pytest.mark.parametrize("exactly", [False, True])
def test_avro_s_own_timestamps_have_the_same_range(exactly: bool) -> None:
    kind = {"type": "long", "logicalType": "timestamp-micros"}
    schema = {"type": "record", "name": "R", "fields": [{"name": "v", "type": kind}]}
    made = AvroConverter({"schema": json.dumps(schema)}, is_key=False)
    zigzag = [b"\x00", _varint(2 * 253_402_300_800_000_000), _varint(2 * 253_402_300_799_999_999)]
    found = convert(decoded((made, zigzag)), TimestamptzType(), exactly=exactly)
    assert (found[0], found[2]) == (0, 253_402_300_799_999_999)
    assert "10000-01-01T00:00:00" in found[1] and "Python" not in found[1]


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + struct.pack("B", number & 127 | 128), number >> 7
    return found + struct.pack("B", number)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("SELECT * FROM records", {"u", "y", "z"}),
        ("SELECT u, u AS v, z AS u2, y FROM records WHERE y > 0", {"u", "v", "u2", "y"}),
        ("SELECT 1 AS n, * EXCLUDE (z), z AS w FROM records", {"u", "y", "w"}),
        ("SELECT * REPLACE (upper(u) AS u) FROM records", {"y", "z"}),
        ("SELECT * EXCLUDE (u), upper(u) AS u FROM records", {"y", "z"}),
        ("SELECT upper(u) AS u, u AS v FROM records", {"v"}),
        ("SELECT * RENAME (u AS x) FROM records", set()),
        ("SELECT z AS u, u::VARCHAR AS z, y + 0 AS y FROM records", {"u"}),
    ],
)
def test_a_field_that_sql_only_copies_keeps_its_meaning(query: str, kept: set[str]) -> None:
    uuid, zoned, year = (semantic(kind, f"io.debezium.{name}") for kind, name in (
        (pa.string(), "data.Uuid"), (pa.string(), "time.ZonedTimestamp"), (pa.int32(), "time.Year")
    ))  # fmt: skip
    columns = [
        like(uuid, pa.array(["a-b"])),
        like(zoned, pa.array(["2026-01-01T00:00:00Z"])),
        like(year, pa.array([7], pa.int32())),
    ]
    value = pa.StructArray.from_arrays(columns, ["u", "z", "y"])
    given = Records(
        pa.array([0], pa.int32()), pa.array(["t"]), 0, pa.array([0]), pa.array([0]), pa.nulls(1), value,
        pa.nulls(1, HEADERS), typed=True,
    )  # fmt: skip
    found = Sql({"query": query}).apply(given).value
    meant = {"u": uuid, "v": uuid, "z": zoned, "w": zoned, "u2": zoned, "y": year}
    if query.startswith("SELECT z AS u"):
        meant["u"] = zoned
    assert isinstance(found, pa.StructArray)
    columns_of = {field.name: found.field(i) for i, field in enumerate(found.type)}
    kinds = {name: column.type for name, column in columns_of.items() if isinstance(column.type, SemanticType)}
    assert kinds == {name: meant[name] for name in kept}
    if "v" in kept:
        assert plain(columns_of["v"]).to_pylist() == ["a-b"]
