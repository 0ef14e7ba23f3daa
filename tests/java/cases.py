"""The questions: transforms with their options, and the records that each is given."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.java import generate
from tests.java.events import debezium, dms, mongo
from tests.java.generate import MOMENTS, Raw, dumps, envelope
from tests.java.reference import Message

_CONNECT = "org.apache.kafka.connect.transforms."
_SINK = "org.apache.iceberg.connect.transforms."
Maker = Callable[[Random, int], list[Message]]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    kind: str
    options: dict[str, str]
    make: Maker = generate.messages

    @property
    def name(self) -> str:
        return f"{self.kind} {json.dumps(self.options)}"


def _key(message: Message) -> Message:
    """The value in the place of the key."""
    value = '{"v":1}' if not message.typed else envelope({"type": "int32"}, 1)
    return replace(message, key=message.value, value=value)


def keys(random: Random, count: int) -> list[Message]:
    return [_key(m) for m in generate.messages(random, count)]


# ---- texts and moments


def json_texts(random: Random, count: int) -> list[Message]:
    found = [Message(json.dumps(text)) for text in ("[1]", "{", "5", "", '{"a":1,"a":2}')]
    found += [Message(json.dumps(dumps(generate.objects(random)))) for _ in range(count)]
    nested = [[[1], [2]], [[1], ["x"]], [[1], []], [[], [[]]], [{}], [None], [1, 2**40], [True, None], [[{"a": None}]]]
    found += [Message(json.dumps(dumps({"a": item, "k": {"n": None, "d": Raw("1e10"), "t": "x"}}))) for item in nested]
    return [*found, Message('{"a":1}')]


def moments(random: Random, count: int) -> list[Message]:
    """Whole values of which many are timestamps."""
    found = [Message(dumps(random.choice([*MOMENTS, random.randrange(-(10**14), 10**14)]))) for _ in range(count // 3)]
    found += [Message(json.dumps(random.choice(_DATES))) for _ in range(count // 3)]
    return [*found, *generate.bare(random, count // 3)]


def dated(pattern: str) -> Maker:
    """Instants, and texts that fit the pattern more or less."""

    def make(random: Random, count: int) -> list[Message]:
        return [*(Message(json.dumps(_dated(random, pattern))) for _ in range(count)), *moments(random, count)]

    return make


def _dated(random: Random, pattern: str) -> str:
    """A pattern filled in, sometimes wrongly."""
    out, place = "", 0
    while place < len(pattern):
        letter = pattern[place]
        end = place
        while end < len(pattern) and pattern[end] == letter:
            end += 1
        if letter == "'":
            end = pattern.index("'", place + 1) + 1
            out += pattern[place + 1 : end - 1]
        else:
            out += _part(random, letter, end - place)
        place = end
    if random.random() < 0.1:
        out = random.choice([out[:-1], out + " tail", " " + out, out.replace("-", "/"), out.lower(), out.upper()])
    return out


_PARTS: dict[str, Callable[[Random], Any]] = {
    "y": lambda r: r.choice([1999, 2024, 1582, 1500, 99, 0, 31, 1970]),
    "M": lambda r: r.randrange(1, 14),
    "d": lambda r: r.randrange(0, 33),
    "D": lambda r: r.randrange(1, 367),
    "H": lambda r: r.randrange(0, 25),
    "k": lambda r: r.randrange(1, 25),
    "K": lambda r: r.randrange(0, 13),
    "h": lambda r: r.randrange(1, 13),
    "m": lambda r: r.randrange(0, 61),
    "s": lambda r: r.randrange(0, 61),
    "S": lambda r: r.choice([0, 5, 50, 123, 999, 123456]),
    "u": lambda r: r.randrange(1, 8),
}
_NAMES = {
    "M": ("Jan", "February", "march", "APR", "May", "Sept", "Decem"),
    "E": ("Mon", "Tuesday", "sun"),
    "a": ("AM", "PM", "am", "pm", "a.m."),
    "G": ("AD", "BC", "ad"),
    "z": ("UTC", "GMT", "GMT+1:00", "GMT-03:30", "+0100", "-23:59"),
    "Z": ("+0000", "-0130", "GMT", "+2500", "Z"),
    "X": ("Z", "+01", "-0130", "+01:30", "01"),
}


def _part(random: Random, letter: str, count: int) -> str:
    if letter in _NAMES and (letter != "M" or count > 2):
        return random.choice(_NAMES[letter])
    if letter not in _PARTS:
        return letter * count
    number = _PARTS[letter](random)
    if letter == "y" and count == 2:
        number %= 100
    return f"{number:0{count}d}" if random.random() < 0.9 else str(number)


_DATES = ("2024-01-02", "31.12.99", "2024-01-02T03:04:05.678Z", "20240102", "x", "")
_PATTERNS = (
    "yyyy-MM-dd'T'HH:mm:ss.SSSX",
    "yyyy-MM-dd HH:mm:ss",
    "dd.MM.yy",
    "yyyyMMdd",
    "yyyyMMddHHmmssSSS",
    "EEE, dd MMM yyyy hh:mm:ss a Z",
    "EEEE d MMMM y G",
    "d/M/yy H:m",
    "dd-MMM-yyyy KK:mm a XXX",
    "yyyy-DDD kk",
    "u yyyy-MM-dd'o''clock'",
    "MM/yyyy z",
    "HH:mm:ss.SSS XX",
)


# ---- all


def _of(kind: str, *options: dict[str, str], make: Maker = generate.messages) -> list[Case]:
    return [Case(kind, o, make) for o in options]


def _casts() -> list[Case]:
    kinds = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
    value, key = _CONNECT + "Cast$Value", _CONNECT + "Cast$Key"
    return [
        *(Case(value, {"spec": f"a:{kind},ts:{kind}"}) for kind in kinds),
        *(Case(value, {"spec": kind}, generate.bare) for kind in kinds),
        Case(key, {"spec": "a:int64,b:string"}, keys),
    ]


def _timestamps() -> list[Case]:
    kind = _CONNECT + "TimestampConverter$Value"
    found = [
        Case(kind, {"target.type": target, "unix.precision": precision, "format": _PATTERNS[0]}, moments)
        for target in ("string", "unix", "Date", "Time", "Timestamp")
        for precision in ("seconds", "milliseconds", "microseconds", "nanoseconds")
    ]
    found += [Case(kind, {"target.type": "string", "format": pattern}, dated(pattern)) for pattern in _PATTERNS]
    found += [Case(kind, {"target.type": "unix", "format": pattern}, dated(pattern)) for pattern in _PATTERNS]
    return [
        *found,
        Case(kind, {"target.type": "Timestamp", "field": "ts"}),
        Case(kind, {"target.type": "unix"}, moments),
    ]


def _names() -> dict[str, str]:
    return {"topic.field": "t!", "partition.field": "p", "offset.field": "o?", "timestamp.field": "at"}


REFUSED: list[Case] = [
    Case(
        _CONNECT + "TimestampConverter$Value",
        {"target.type": "string", "format": "HH:mm:ss.SSSSSS XX"},
        dated("HH:mm:ss.SSSSSS XX"),
    )
]
"""Options that Java takes, and calving does not."""

CASES: list[Case] = [
    *_casts(),
    *_of(
        _CONNECT + "ExtractField$Value",
        {"field": "a"},
        {"field": "a.b"},
        {"field": "a.b", "field.syntax.version": "V2"},
        {"field": "`a.b`", "field.syntax.version": "V2"},
        {"field": "a.`a.b`", "field.syntax.version": "V2"},
    ),
    *_of(_CONNECT + "ExtractField$Key", {"field": "a"}, make=keys),
    *_of(_CONNECT + "Flatten$Value", {}, {"delimiter": "_"}),
    *_of(_CONNECT + "HoistField$Value", {"field": "x"}, make=generate.bare),
    *_of(_CONNECT + "InsertField$Value", _names(), {"static.field": "a", "static.value": "v"}),
    *_of(_CONNECT + "InsertField$Key", _names(), make=keys),
    *_of(
        _CONNECT + "MaskField$Value",
        {"fields": "a,b,ts"},
        {"fields": "a,b", "replacement": "9"},
        {"fields": "a", "replacement": "xyz"},
        {"fields": "ts,c", "replacement": "2.5"},
    ),
    *_of(
        _CONNECT + "ReplaceField$Value",
        {"exclude": "a,c"},
        {"include": "a,b"},
        {"renames": "a:x,b:y"},
        {"include": "a,b", "renames": "a:z"},
        {"exclude": "b", "renames": "a:b"},
    ),
    *_of(_CONNECT + "ReplaceField$Key", {"exclude": "a"}, make=keys),
    *_of(_CONNECT + "SetSchemaMetadata$Value", {"schema.name": "n"}),
    *_of(_CONNECT + "ValueToKey", {"fields": "a,b"}),
    *_of(_CONNECT + "HeaderFrom$Value", {"fields": "a,b", "headers": "x,y", "operation": "move"}),
    *_of(_CONNECT + "HeaderFrom$Value", {"fields": "ts", "headers": "x", "operation": "copy"}),
    *_of(_CONNECT + "InsertHeader", {"header": "h", "value.literal": "text"}),
    *_of(_CONNECT + "DropHeaders", {"headers": "h"}),
    *_of(
        _CONNECT + "RegexRouter",
        {"regex": r"db\.(.*)", "replacement": "lake_$1"},
        {"regex": "orders", "replacement": "x"},
        {"regex": r"(?<db>\w+)\.(o)(.*)", "replacement": r"${db}$12$3\$\\"},
        {"regex": "db|db.orders", "replacement": "x"},
    ),
    *_of(_CONNECT + "TimestampRouter", {}, {"topic.format": "${timestamp}", "timestamp.format": "EEEE u MMMM yy D G"}),
    *_timestamps(),
    *_of(_SINK + "CopyValue", {"source.field": "a", "target.field": "b"}, {"source.field": "a", "target.field": "n"}),
    *_of(_SINK + "DebeziumTransform", {}, {"cdc.target.pattern": "x_{db}_{table}"}, make=debezium),
    *_of(_SINK + "DmsTransform", {}, make=dms),
    *_of(_SINK + "JsonToMapTransform", {}, {"json.root": "true"}, make=json_texts),
    *_of(
        _SINK + "KafkaMetadataTransform",
        {},
        {"nested": "true", "field_name": "m"},
        {"field_name": "a", "external_field": "env, prod"},
    ),
    *_of(_SINK + "MongoDebeziumTransform", {}, {"array_handling_mode": "Document"}, make=mongo),
]
