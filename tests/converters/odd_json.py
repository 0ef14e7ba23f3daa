"""Odd JSON: what readers differ about, for a table with a column of every kind that is decoded by Rust."""

from __future__ import annotations

import json
from random import Random

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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

_KINDS: dict[str, IcebergType] = {
    "b": BooleanType(),
    "i": IntegerType(),
    "l": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "s": StringType(),
    "day": DateType(),
    "ts": TimestampType(),
    "tz": TimestamptzType(),
    "a long name of a column": LongType(),
    "größe": StringType(),
    "n": DecimalType(10, 2),
    "n38": DecimalType(38, 10),
    "m": MapType(200, StringType(), 201, LongType(), value_required=False),
    "raw": BinaryType(),
    "uuid": UUIDType(),
    "four": FixedType(4),
    "time": TimeType(),
    "nanos": TimestampNanoType(),
    "nanos utc": TimestamptzNanoType(),
    "by number": MapType(210, IntegerType(), 211, StringType(), value_required=True),
    "by day": MapType(
        220,
        DateType(),
        221,
        StructType(NestedField(222, "x", LongType(), required=True), NestedField(223, "t", TimeType(), required=False)),
        value_required=False,
    ),
}
_X, _Y = NestedField(51, "x", LongType(), required=False), NestedField(52, "y", TimestamptzType(), required=False)
SCHEMA = Schema(
    *(NestedField(i, name, kind, required=False) for i, (name, kind) in enumerate(_KINDS.items(), 1)),
    NestedField(50, "o", StructType(_X, _Y), required=False),
    NestedField(60, "l1", ListType(61, LongType(), element_required=False), required=False),
    NestedField(70, "l2", ListType(71, StringType(), element_required=False), required=False),
    NestedField(
        80,
        "l3",
        ListType(81, StructType(NestedField(82, "x", DoubleType(), required=False)), element_required=False),
        required=False,
    ),
    NestedField(90, "must", LongType(), required=True),
)
# fmt: off
_NUMBERS = (
    "0", "-0", "1", "-1", "42", "01", "-01", "1.0", "1.5", "-1.5", "0.1", "-0.0", "-0.5", "1e3", "1E3", "1e-3", "1.5e2", "1e400",
    "-1e400", "1e-400", "-0e1", "1e+5", "1e", "1.", ".5", "+1", "-", "2147483647", "2147483648", "-2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "123456789012345678",
    "1234567890123456789", "12345678901234567890", "9007199254740993", "9007199254740992", "0.30000000000000004",
    "100000000000000.1", "999999999999999", "9999999999999999", "0.000000000000001", "123456789012345678901234567890.1234567890",
    "3.4028235e38", "3.4028236e38", "3.5e38", "1767225600000", "1767225600000.0", "9223372036854775", "9223372036854776",
    "-62135596800000", "-62135596800001", "253402300799999", "253402300800000", "2932896", "2932897", "-719162", "-719163", "NaN",
    "Infinity", "-Infinity", "1" * 40, "1" * 301, "0." + "1" * 60, "20000", "1_0", "0x10", "1e22", "1e23", "4.35", "5e-324",
    "2.4703282292062328e-324", "1.7976931348623157e308", "1.7976931348623159e308", "72057594037927945", "1e99999999999999999999",
    "1e-99999999999999999999", "1.0e0001", "12345.675", "12345.665", "99999999.99", "99999999.995", "100000000", "99999999.994",
    "9999999999999999999999999999.9999999999", "99999999999999999999999999999", "0.000000000049999999999999999999999", "0.00000000005",
    "00.5", "-.5", "1..2", "1.2.3",
)
_TIMES = (
    "2026-01-03T04:05:06.789Z", "2026-01-03T04:05:06Z", "2026-01-03 04:05:06", "2026-01-03T04:05:06.1234567Z",
    "2026-01-03T04:05:06.123456789Z", "2026-01-03T04:05:06.1234567891Z", "2026-01-03T04:05:06+01:00", "2026-01-03T04:05:06-0130",
    "2026-01-03T04:05:06+01", "2026-01-03T04:05:06.5+14:00", "2026-01-03T04:05:06.5-23:59", "2026-02-29T00:00:00Z",
    "2024-02-29T00:00:00Z", "2100-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-32T00:00:00Z",
    "2026-04-31T00:00:00Z", "2026-01-03T24:00:00Z", "2026-01-03T23:60:00Z", "2026-01-03T23:59:60Z", "2026-01-03T04:05Z",
    "2026-01-03T04:05", "2026-01-03", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+01:00", "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999-01:00", "1969-12-31T23:59:59.999Z", "1600-03-01T00:00:00Z",
    "10000-01-01T00:00:00Z", "2026-01-03T04:05:06.Z", "2026-01-03t04:05:06z", "2026-01-03T04:05:06 Z", " 2026-01-03T04:05:06Z",
    "2026-1-3", "20260103", "2026-01-03T040506Z", "-2026-01-03", "2026-01-03T04:05:06.789-00:00", "2026-01-03T04:05:06.1-05:30",
)
_TEXTS = (
    '""', '"a"', '"plain text of some length, longer than sixteen bytes"', '"q\\"uote"', '"back\\\\slash"', '"\\/\\b\\f\\n\\r\\t"',
    '"\\u0041"', '"\\u00e9"', '"\\u20AC"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ude00"', '"\\ud83dx"', '"\\ud83d\\u0041"', '"\\u12"',
    '"\\x41"', '"é"', '"日本語テキスト"', '"😀"', '"\t"', '"\x7f"', '"\\u0000"', '"0123456"', '"01234567"', '"012345678"',
    '"0123456\\n"', '"01234567\\u00e9tail"', '"}"', '"{"', '","', '"\\"}"', '"1"', '"+7"', '"-0"', '"007"', '"7 "', '"٣"', '"true"',
    '"12.5"', '"AAECAw=="', '"AAECAw"', '"AAECAw="', '"AAECAx=="', '"AP8="', '"AP9="', '"A"', '"AA AA"', '"AA-_"', '"===="', '"AA=A"',
    '"6ba7b810-9dad-11d1-80b4-00c04fd430c8"', '"6BA7B810-9DAD-11D1-80B4-00C04FD430C8"', '"6ba7b8109dad11d180b400c04fd430c8"',
    '"{6ba7b810-9dad-11d1-80b4-00c04fd430c8}"', '"6ba7b810-9dad-11d1-80b4-00c04fd430cg"', '"6ba7b810-9dad11d1--80b4-00c04fd430c8"',
    '"12.50"', '"-0.004"', '"00.5"', '"1e2"', '" 1"', '"9223372036854775808"', '"not a number"', '"\\uD83D\\uDE00"', '"\\ud83d\\ud83d\\ude00"',
)
_OTHERS = (
    "null", "true", "false", "nul", "True", "[]", "{}", "[1]", "[1,2,3]", "[null]", '["a",null,"b"]', "[1,]", "[,1]", "[[1]]",
    '{"x":1}', '{"x":1,"y":0}', '{"x":null}', '{"x":1,"x":2}', '{"z":1}', '{"z":null}', '{"y":"2026-01-03T04:05:06Z"}',
    '[{"x":1.5},{"x":null},null,{}]', '[{"x":1}, {"x":2, "w":3}]', "[1 , 2]", '{ "x" : 1 }', "[" * 70 + "]" * 70, "", " ", "nan",
    '[1,"a"]', '["\\ud83d"]', '{"x":1e400}', '{"a":{"b":[1,{"c":"\\n"}]}}', '{"a":"\x01"}', "[1e400]", "[1e5,-0.0]",
    '{"a":"\\ud83d"}', '{"a":1,"b":2,"a":3}', '{"a":1,"\\u0061":2}', '{"1":"x"}', '{"1":"x","01":"y"}', '{"1":"x","2":null}', '{"-5":"x"}',
    '{"2026-01-03":{"x":1}}', '{"2026-01-03":{"x":null}}', '{"2026-01-03":{"x":1,"t":5}}', '{"2026-01-03":{"t":5}}', '{"2026-13-03":{"x":1}}',
    '{"2026-01-03":{"x":1,"new":1}}', '{"2026-01-03":null}', '{"a":{}}',
)
_FITTING = {
    "b": ("true", "false", "null"), "i": ("1", "-5", "null"), "f": ("1.5", "2"), "d": ("0.1", "1e5", "7"), "s": _TEXTS[:9],
    "größe": _TEXTS[:9], "day": ('"2026-01-03"', "20000"), "ts": ('"2026-01-03T04:05:06.789"', "1767225600000"),
    "tz": ('"2026-01-03T04:05:06.789Z"', "1767225600000"), "o": ('{"x":1}', '{"y":5,"x":null}'), "l1": ("[1]", "[1,2,3]"),
    "l2": ('["a","b"]', "[]"), "l3": ('[{"x":1}]',),
    "n": ("1.23", "5", "1.005", "-1.005", "0.125", "-0.004", "99999999.99"), "n38": ("1.5", "12345678901234567890.12345678905"),
    "m": ("null", '{"a":1}', "{}", '{"a":1,"b":null}'), "raw": ("null", "null", '"AP8="', '"AP8"', '""'),
    "uuid": ('"6ba7b810-9dad-11d1-80b4-00c04fd430c8"',), "four": ('"AAECAw=="', '"AAECAw"'), "time": ("0", "86399999", '"12:30:15.5"'),
    "nanos": ('"2026-01-03T04:05:06.123456789"', "1767225600000"), "nanos utc": ('"2026-01-03T04:05:06.123456789Z"', "-1"),
    "by number": ('{"1":"x","-2":"y"}', "{}"), "by day": ('{"2026-01-03":{"x":1,"t":5}}', '{"2026-01-03":null}'),
}
_WHOLE = (
    b"", b"null", b"[]", b"1", b'"a"', b"{}", b" {} ", b"{}{}", b"{} x", b"\xef\xbb\xbf{}", b"{", b"}", b'{"l":1}}', b'{"l":1},', b"{,}",
    b'{"l"}', b'{"l":}', b'{"l" 1}', b"{l:1}", b"{'l':1}", b'{"o":{"x":1}', b'{"l1":[1}', b'{"unknown":{"a":1}',
)
# fmt: on


def record(random: Random) -> bytes:
    """One record: fitting values, mostly with one odd one among them, now and then broken."""
    if random.random() < 0.02:
        return random.choice(_WHOLE)
    names = random.sample([*_KINDS, "o", "l1", "l2", "l3"], random.randint(0, 6))
    odd = random.randrange(len(names)) if names and random.random() < 0.6 else -1
    parts = [
        (
            json.dumps(name, ensure_ascii=False),
            _value(random) if i == odd else random.choice(_FITTING.get(name, ("12",))),
        )
        for i, name in enumerate(names)
    ]
    if random.random() < 0.97:
        parts.append(('"must"', "1"))
    if random.random() < 0.15:
        unknown = random.choice(('"unknown"', '"b2"', '"I"', '"day "', '"\\u0062"', '"must\\""'))
        parts.insert(random.randint(0, len(parts)), (unknown, _value(random)))
    if random.random() < 0.05 and parts:
        parts.append((random.choice(parts)[0], _value(random)))
    return _damaged(random, _text(random, parts).encode("utf-8", "surrogatepass"))


def _text(random: Random, parts: list[tuple[str, str]]) -> str:
    a, b, c, d = (random.choice(("", " ", "\n", "\t ", "  ")) if random.random() < 0.15 else "" for _ in range(4))
    return a + "{" + b + ("," + c).join(f"{name}{d}:{b}{value}" for name, value in parts) + c + "}" + a


def _damaged(random: Random, raw: bytes) -> bytes:
    kind, place = random.random(), random.randint(0, len(raw))
    if kind < 0.04:
        return raw[:place]
    if kind < 0.10:
        return raw[:place] + bytes([random.randrange(256)]) + raw[place + (kind < 0.07) :]
    return raw


def _value(random: Random) -> str:
    kind = random.random()
    if kind < 0.15:
        return random.choice(
            (
                str(random.uniform(-1e6, 1e6)),
                repr(random.random() * 10 ** random.randint(-320, 300)),
                str(random.randint(-(2**70), 2**70) >> random.randint(0, 69)),
                f"{random.randint(0, 10 ** random.randint(1, 25))}.{random.randint(0, 10 ** random.randint(1, 20))}",
            )
        )
    if kind < 0.45:
        return random.choice(_NUMBERS)
    if kind < 0.65:
        return json.dumps(random.choice(_TIMES))
    return random.choice(_TEXTS if kind < 0.85 else _OTHERS)
