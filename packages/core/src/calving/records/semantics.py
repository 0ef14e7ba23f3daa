"""What values mean beyond their type, by the name of their schema: Debezium's semantic types.

A column keeps the numbers, texts or structs that its source wrote, and its type says what they mean. So transforms see
the values that Kafka Connect's transforms see, and the meaning goes with each value that they pass on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

Unit = Literal["d", "s", "ms", "us", "ns"]
PER_SECOND: Mapping[str, int] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
"""The units in which numbers count times and timestamps."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What values of a schema are: ``column`` is the type of a column that is made for them.

    A ``date`` counts days since 1970, a ``time`` the units of a day, and a ``timestamp`` the units since 1970. ``text``
    means what its column makes of it. A ``number`` counts no moment: it fits no date, time or timestamp. A ``decimal``
    is a struct of its scale and its unscaled bytes.
    """

    name: str
    what: Literal["date", "time", "timestamp", "number", "text", "decimal"]
    column: str
    unit: Unit = "d"

    @property
    def arrow(self) -> pa.DataType | None:
        """The Arrow type of these moments; None for all other values."""
        match self.what:
            case "date":
                return pa.date32()
            case "time":
                return _TIMES[self.unit]
            case "timestamp":
                return pa.timestamp(self.unit)
        return None


_TIMES = {"ms": pa.time32("ms"), "us": pa.time64("us"), "ns": pa.time64("ns")}
_TIME, _DATA = "io.debezium.time.", "io.debezium.data."
_NUMBERS = (
    Meaning(f"{_TIME}Date", "date", "date"),
    Meaning(f"{_TIME}Time", "time", "time", "ms"),
    Meaning(f"{_TIME}MicroTime", "time", "time", "us"),
    Meaning(f"{_TIME}NanoTime", "time", "time", "ns"),
    Meaning(f"{_TIME}Timestamp", "timestamp", "timestamp", "ms"),
    Meaning(f"{_TIME}MicroTimestamp", "timestamp", "timestamp", "us"),
    Meaning(f"{_TIME}NanoTimestamp", "timestamp", "timestamp_ns", "ns"),
    Meaning(f"{_TIME}Year", "number", "int"),
    Meaning(f"{_TIME}MicroDuration", "number", "long"),
    Meaning(f"{_TIME}NanoDuration", "number", "long"),
)
_TEXTS = (
    Meaning(f"{_TIME}ZonedTimestamp", "text", "timestamptz"),
    Meaning(f"{_TIME}IsoTimestamp", "text", "timestamp"),
    Meaning(f"{_TIME}IsoDate", "text", "date"),
    Meaning(f"{_TIME}IsoTime", "text", "time"),
    Meaning(f"{_DATA}Uuid", "text", "uuid"),
)
SCALED_NAME = f"{_DATA}VariableScaleDecimal"
_SCALED = Meaning(SCALED_NAME, "decimal", "string")
_BY_NAME = {meaning.name: meaning for meaning in (*_NUMBERS, *_TEXTS, _SCALED)}


class SemanticType(pa.ExtensionType):
    """The type of a column whose values have a meaning."""

    def __init__(self, storage: pa.DataType, meaning: Meaning) -> None:
        self.meaning = meaning
        super().__init__(storage, meaning.name)

    def __arrow_ext_serialize__(self) -> bytes:
        return self.meaning.name.encode()

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> SemanticType:
        return cls(storage_type, _BY_NAME[serialized.decode()])

    def __hash__(self) -> int:
        return hash((self.storage_type, self.meaning.name))


def semantic(kind: pa.DataType, name: object) -> pa.DataType:
    """The type of values whose schema has this name; ``kind`` itself, unless the name gives them a meaning."""
    meaning = _BY_NAME.get(str(name))
    if meaning is None or not _is_written_as(kind, meaning):
        return kind
    return SemanticType(kind, meaning)


def _is_written_as(kind: pa.DataType, meaning: Meaning) -> bool:
    if meaning in _NUMBERS:
        return kind in (pa.int32(), pa.int64())
    if meaning in _TEXTS:
        return pa.types.is_string(kind)
    return pa.types.is_struct(kind) and {f.name: f.type for f in kind} == _SCALE_AND_VALUE


_SCALE_AND_VALUE = {"scale": pa.int32(), "value": pa.binary()}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type without its meaning."""
    return kind.storage_type if isinstance(kind, SemanticType) else kind


def plain(column: pa.Array) -> pa.Array:
    """The column without its meaning: the same numbers, texts or structs."""
    return column.storage if isinstance(column, pa.ExtensionArray) and isinstance(column.type, SemanticType) else column


def like(kind: pa.DataType, column: pa.Array) -> pa.Array:
    """A plain column with the meaning of this type, if it has one."""
    return pa.ExtensionArray.from_storage(kind, column) if isinstance(kind, SemanticType) else column


def moments(column: pa.Array) -> pa.Array:
    """A column with a meaning as dates, times or timestamps of Arrow; any other column without its meaning.

    :raises pa.ArrowInvalid, ValueError: a number does not fit.
    """
    if not isinstance(column.type, SemanticType):
        return column
    kind, numbers = moment_type(column.type), plain(column)
    if not pa.types.is_temporal(kind):
        return numbers
    if pa.types.is_time(kind):
        a_day = 86_400 * PER_SECOND[kind.unit]
        for number in numbers.filter(pc.or_(pc.less(numbers, 0), pc.greater_equal(numbers, a_day))).slice(0, 1):
            raise ValueError(f"{number} {kind.unit} are no time of day: it is within a day")
    return numbers.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)


def moment_type(kind: pa.DataType) -> pa.DataType:
    """The type of the dates, times or timestamps that are meant; any other type without its meaning."""
    meant = kind.meaning.arrow if isinstance(kind, SemanticType) else None
    return plain_type(kind) if meant is None else meant


class Quantity(int):
    """A number of a schema whose name gives it a meaning."""

    meaning: Meaning

    def __new__(cls, number: int, meaning: Meaning) -> Quantity:
        made = super().__new__(cls, number)
        made.meaning = meaning
        return made


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, time or timestamp that Python's own types cannot hold, by the number that Arrow stores for it."""

    number: int
    meaning: Meaning

    def __int__(self) -> int:
        return self.number

    def __str__(self) -> str:
        return str(self.number)


_EXACT = Context(prec=1_000)
_SCALE_AT_MOST = 1_000


def unscaled_decimal(raw: bytes, precision: int, scale: int) -> Decimal:
    """The decimal of a big-endian unscaled number.

    :raises ValueError: it has no bytes, or more digits than ``precision``, which is at most 1,000.
    """
    if not raw:
        raise ValueError("no bytes are no decimal: even zero is one byte")
    number = int.from_bytes(raw, "big", signed=True)
    if abs(number) >= 10**precision:
        raise ValueError(f"a decimal of {len(raw)} bytes has more than {precision} digits")
    return Decimal(number).scaleb(-scale, _EXACT)


def scaled_decimal(raw: bytes, scale: int) -> Decimal:
    """A decimal that brings its scale.

    :raises ValueError: it has no bytes, more than 1,000 digits, or a scale beyond 1,000.
    """
    if abs(scale) > _SCALE_AT_MOST:
        raise ValueError(f"a decimal of scale {scale}")
    return unscaled_decimal(raw, _SCALE_AT_MOST, scale)
