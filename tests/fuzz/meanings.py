"""Debezium's semantic types, by the table in docs/reference/types.md: how each is written, its new column, and its values."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, localcontext
from random import Random
from typing import Any

from tests.fuzz.forms import Digits
from tests.fuzz.texts import STRINGS

DAY_NS = 86_400 * 10**9
_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
SCALED = f"{_DATA}VariableScaleDecimal"


@dataclass(frozen=True)
class Meaning:
    """``written``: int, long, string or struct. ``what`` a number counts: date, time or timestamp, in ``unit``
    nanoseconds; empty for what is no moment.
    """

    written: str
    column: str
    what: str = ""
    unit: int = 1


MEANINGS = {
    f"{_TIME}Date": Meaning("int", "date", "date", DAY_NS),
    f"{_TIME}Time": Meaning("int", "time", "time", 10**6),
    f"{_TIME}MicroTime": Meaning("long", "time", "time", 10**3),
    f"{_TIME}NanoTime": Meaning("long", "time", "time"),
    f"{_TIME}Timestamp": Meaning("long", "timestamp", "timestamp", 10**6),
    f"{_TIME}MicroTimestamp": Meaning("long", "timestamp", "timestamp", 10**3),
    f"{_TIME}NanoTimestamp": Meaning("long", "timestamp", "timestamp"),
    f"{_TIME}Year": Meaning("int", "int"),
    f"{_TIME}MicroDuration": Meaning("long", "long"),
    f"{_TIME}NanoDuration": Meaning("long", "long"),
    f"{_TIME}ZonedTimestamp": Meaning("string", "timestamptz"),
    f"{_TIME}ZonedTime": Meaning("string", "string"),
    f"{_TIME}IsoDate": Meaning("string", "date"),
    f"{_TIME}IsoTime": Meaning("string", "time"),
    f"{_TIME}IsoTimestamp": Meaning("string", "timestamp"),
    f"{_TIME}Interval": Meaning("string", "string"),
    f"{_DATA}Uuid": Meaning("string", "uuid"),
    f"{_DATA}Json": Meaning("string", "string"),
    f"{_DATA}Enum": Meaning("string", "string"),
    SCALED: Meaning("struct", "string"),
}
_TEXTS = ("date", "time", "timestamp", "timestamptz", "uuid", "string")
FOR = {
    **{what: tuple(n for n, m in MEANINGS.items() if m.column == what) for what in _TEXTS},
    "timestamptz": tuple(n for n, m in MEANINGS.items() if "timestamp" in m.column),
    "timestamp": tuple(n for n, m in MEANINGS.items() if m.what in ("timestamp", "date") or "timestamp" in m.column),
    **dict.fromkeys(
        ("int", "long", "double", "decimal"),
        (*(n for n, m in MEANINGS.items() if m.written != "string"), *[SCALED] * 5),
    ),
}
"""The names that a column of each type mostly gets."""


@dataclass(frozen=True)
class Meant:
    """A number with the name of its schema."""

    number: int
    name: str

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.name]


class Scaled(Digits):
    """A decimal that brings its scale; ``fields``: as it is written."""

    fields: dict[str, Any]


def bare(value: Any) -> Any:
    """A value as it is written, without its meaning."""
    match value:
        case Meant():
            return value.number
        case Scaled():
            return value.fields
    return value


def value(random: Random, name: str) -> Any:
    """A value of the schema of this name."""
    meaning = MEANINGS[name]
    match meaning.written:
        case "string":
            return _text(random, meaning.column)
        case "struct":
            return scaled(
                random.choice((1, -1)) * random.randrange(10 ** random.randint(1, 45)), random.randint(-5, 40)
            )
    bits = 31 if meaning.written == "int" else 63
    moment = random.randint(0, DAY_NS - 1) if meaning.what == "time" else random.randint(-4 * 10**18, 8 * 10**18)
    edges = (
        0,
        -1,
        1,
        DAY_NS // meaning.unit,
        -(1 << bits),
        (1 << bits) - 1,
        -(1 << bits) + 807,
        9_223_372_036_825_200_000,
    )
    number = random.choice(edges) if random.random() < 0.1 else moment // meaning.unit
    if meaning.what == "":
        number = random.randint(-100_000, 100_000)
    return Meant(max(-(1 << bits), min(number, (1 << bits) - 1)), name)


def scaled(number: int, scale: int) -> Scaled:
    raw = number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)
    with localcontext(prec=200):
        made = Scaled(Decimal(number).scaleb(-scale))
    made.fields = {"scale": scale, "value": raw}
    return made


def _text(random: Random, column: str) -> str:
    if random.random() < 0.15:
        return random.choice(STRINGS)
    day = f"{random.randint(1, 9999):04}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"
    clock = f"{random.randint(0, 23):02}:{random.randint(0, 59):02}:{random.randint(0, 59):02}"
    clock += random.choice(("", ".5", ".123456", ".999999999"))
    match column:
        case "date":
            return day + random.choice(("", "Z"))
        case "time":
            return clock + random.choice(("", "Z"))
        case "uuid":
            text = f"{random.getrandbits(128):032x}"
            return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        case "string":
            return random.choice((clock + "Z", clock + "+02:00", clock + "+00:00", "P1Y2M", '{"a":1}', "RED"))
    return f"{day}T{clock}{random.choice(('Z', 'Z', '+02:00', '-07:30', ''))}"
