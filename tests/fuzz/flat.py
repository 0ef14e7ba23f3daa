"""Flat records for Cast, TimestampConverter and Sql, and what the first two make of them."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from calving.model.record_path import TransformSpec
from tests.fuzz.chain import CHANGES, CONNECT, Options, Record, Refused
from tests.fuzz.forms import Clock, Day, Instant, Short, single
from tests.fuzz.values import TEXT, convert

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = (
    "",
    "a",
    "abc",
    "Banana",
    "7",
    "-12",
    "+5",
    "007",
    "2147483648",
    "1.5",
    " x ",
    "true",
    "TRUE",
    "naïve",
    "it's",
)


def records(random: Random, count: int, *, wild: bool) -> list[bytes | None]:
    """As JSON. ``wild``: fields have values of several kinds. Many records have few shapes: each takes time."""
    return [_record(random, number, wild, few=count >= 500) for number in range(count)]


def _record(random: Random, number: int, wild: bool, *, few: bool) -> bytes | None:
    if random.random() < 0.01:
        return random.choice((None, b"{", b"[]", b"5"))
    value: dict[str, Any] = {
        "id": number % 100,
        "n": random.choice((random.randint(-200, 200), random.randint(-(2**40), 2**40), None)),
        "t": random.choice((*_TEXTS, None)),
        "d": random.choice((random.randint(-999, 999) / 8, 1.5, 1e10, -0.0, None)),
        "b": random.choice((True, False, None)),
        "s": {"a": random.randint(0, 9), "b": random.choice(("x", "y"))},
        "l": [random.randint(0, 9) for _ in range(random.randint(1, 3))],
        "m": _moment(random),
        "w": _written(random),
    }
    if few:
        value |= {"d": value["d"] or 0.5, "b": bool(value["b"]), "m": value["m"] or 1, "w": value["w"] or ""}
    if random.random() < (0.001 if few else 0.05):
        value.pop(random.choice([*value]))
    if wild and random.random() < (0.02 if few else 0.2):
        odd = (2**70, "text", 1.25, True, {"a": 1}, [1, "x"], None, 2**47, "2024-01-02 03:04:05")
        value[random.choice([*value])] = random.choice(odd)
    return json.dumps(value, ensure_ascii=False).encode()


def _moment(random: Random) -> int | None:
    millis = random.randint(-(10**13), 2 * 10**14)
    return random.choice((millis, millis, 0, -1, 86_399_999, None))


def _written(random: Random) -> str | None:
    text = (_EPOCH + timedelta(seconds=random.randint(-(10**9), 10**10))).strftime("%Y-%m-%d %H:%M:%S")
    return random.choice((text, text, text, f"{text} tail", "x", "", None))


# ---- Cast


_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_CASTS = (*_BITS, "float32", "float64", "boolean", "string")


def cast_step(random: Random) -> TransformSpec:
    names = random.sample(("n", "t", "d", "b", "m", "none", "s"), random.choice((1, 2, 3)))
    spec = ",".join(f"{name}:{random.choice(_CASTS)}" for name in names)
    return TransformSpec("cast", random.choice(("", CONNECT)) + "Cast$Value", {"spec": spec})


def _cast(record: Record, options: Options) -> Record:
    fields = dict(record.fields)
    for pair in options["spec"].split(","):
        name, kind = pair.split(":")
        if fields.get(name) is not None:
            fields[name] = _as(fields[name], kind)
    return record.having(fields, record.nodes)


def _as(value: Any, kind: str) -> Any:
    if isinstance(value, dict | list):
        raise Refused("no primitive")
    if kind == "string":
        return convert(value, TEXT)
    if kind == "boolean":
        return value.lower() == "true" if isinstance(value, str) else math.trunc(value) != 0
    if kind in _BITS:
        number = _whole(value) if isinstance(value, str) else math.trunc(value)
        bits = _BITS[kind] - 1
        if not -(1 << bits) <= number < 1 << bits:
            raise Refused("too large")
        return number if kind == "int64" else Short(number)
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", value.strip()):
            raise Refused("no number")
        value = Decimal(value.strip())
    try:
        return single(float(value)) if kind == "float32" else float(value)
    except OverflowError:
        raise Refused("too large") from None


def _whole(text: str) -> int:
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise Refused("no whole number")
    return int(text)


# ---- TimestampConverter


_PER_SECOND = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_FORMATS = {
    "yyyy-MM-dd HH:mm:ss": "%Y-%m-%d %H:%M:%S",
    "dd/MM/yyyy": "%d/%m/%Y",
    "yyyy-DDD'T'HHmm": "%Y-%jT%H%M",
}


def moment_step(random: Random) -> TransformSpec:
    options = {
        "field": random.choice(("m", "m", "w", "t", "none")),
        "target.type": random.choice(("string", "unix", "Date", "Time", "Timestamp")),
    }
    if options["target.type"] == "string" and options["field"] != "w":
        options["format"] = random.choice([*_FORMATS])
    elif options["target.type"] == "string" or random.random() < 0.5:
        options["format"] = "yyyy-MM-dd HH:mm:ss"
    if random.random() < 0.5:
        units = [*_PER_SECOND]  # Python knows no years that seconds could reach
        options["unix.precision"] = random.choice(units[options["target.type"] == "string" :])
    return TransformSpec("moment", random.choice(("", CONNECT)) + "TimestampConverter$Value", options)


def _converted(record: Record, options: Options) -> Record:
    value = record.fields.get(options["field"])
    if value is None:
        return record
    per_second = _PER_SECOND[options.get("unix.precision", "milliseconds")]
    if isinstance(value, str):
        millis = _read(value, options.get("format"))
    elif isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63:
        millis = _towards_zero(value * 1000, per_second)
    else:
        raise Refused("no moment")
    return record.having({**record.fields, options["field"]: _target(millis, per_second, options)}, record.nodes)


def _target(millis: int, per_second: int, options: Options) -> Any:
    if not -(1 << 63) <= millis < 1 << 63:
        raise Refused("too large")
    match options["target.type"]:
        case "unix":
            number = _towards_zero(millis * per_second, 1000)
            if not -(1 << 63) <= number < 1 << 63:
                raise Refused("too large")
            return number
        case "Date":
            if not -(1 << 31) <= millis // 86_400_000 < 1 << 31:
                raise Refused("too large")
            return Day(millis // 86_400_000)
        case "Time":
            return Clock(millis % 86_400_000 * 1000)
        case "Timestamp":
            return Instant(millis * 1000)
    return (_EPOCH + timedelta(milliseconds=millis)).strftime(_FORMATS[options["format"]])


def _towards_zero(number: int, by: int) -> int:
    return abs(number) // by * (-1 if number < 0 else 1)


def _read(text: str, pattern: str | None) -> int:
    """The one format of texts in the records; Java ignores what stands behind."""
    match = re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text)
    if match is None or pattern != "yyyy-MM-dd HH:mm:ss":
        raise Refused("no such text")
    moment = datetime.strptime(match.group(), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


CHANGES |= {"Cast": _cast, "TimestampConverter": _converted}
