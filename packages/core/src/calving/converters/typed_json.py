"""JSON values of declared types. Each value is checked against its type, so that no value is truncated, wrapped around
or guessed.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

from calving.converters.building import (
    DAY_MS,
    MOST_DIGITS,
    check_names,
    decimal_type,
    last_of_keys,
    map_type,
    misfit,
    time_of_day,
)
from calving.records.cells import CELL, Cells, cells_of
from calving.records.jsontext import check_start, in_plain_words
from calving.records.schema_defaults import default_text, described
from calving.records.semantics import semantic, unscaled_decimal

Read = Callable[[Any], Any]

FLOAT_BELOW = (2 - 2**-24) * 2.0**127
"""Numbers from here on round to no finite 32-bit float."""
_NUMBERS_AS_TEXT = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Form:
    """A type, and the function ``read`` that makes its values from JSON that is not null. ``parts``: the declared types
    of the fields, of the elements, or of a map's values.

    :raises ValueError: from ``read``, if the value is not of the type.
    """

    type: pa.DataType
    read: Read
    parts: tuple[Declared, ...] = ()


@dataclass(frozen=True, slots=True)
class Declared:
    """A form whose value may be missing or not. ``read`` also takes None. ``replaced``: whether a default replaces
    null. ``default``: the text of the default that the schema declares (``schema_defaults``).
    """

    form: Form
    read: Read
    nullable: bool
    replaced: bool = False
    default: str | None = None

    @property
    def type(self) -> pa.DataType:
        return self.form.type

    def field(self, name: str) -> pa.Field:
        return described(pa.field(name, self.form.type, self.nullable), self.default)


def named(form: Form, name: object) -> Form:
    """The form of values whose schema has this name: Debezium's names give them a meaning."""
    return replace(form, type=semantic(form.type, name))


def declare(form: Form, nullable: bool, cells: Cells, default: Any = None) -> Declared:
    """The declared type of a form. A ``default`` (JSON, not None) replaces null and missing values. ``cells`` counts
    those that it takes each time.

    :raises ValueError: the default is not of the type.
    """
    read = form.read
    if default is not None:
        before = cells.used
        made = read(default)
        size = cells.used - before + max(cells_of(form.type), len(json.dumps(default, default=str)) // CELL)

        def replaced(value: Any) -> Any:
            if value is not None:
                return read(value)
            cells.take(size - 1)  # its first place counts where it stands
            return made

        return Declared(form, replaced, nullable, replaced=True, default=default_text(made, form.type))
    if nullable:
        return Declared(form, lambda value: None if value is None else read(value), True)

    def present(value: Any) -> Any:
        if value is None:
            raise ValueError("null, but a value is required")
        return read(value)

    return Declared(form, present, False)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


STRUCTURE = json.JSONDecoder(parse_float=str, parse_constant=_no_constant)
"""Finds where values begin and end."""
_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_constant)
"""Reads fractions as Decimal, so that their digits are kept until their type is known."""
_FAR_DECODER = json.JSONDecoder(parse_float=lambda text: Decimal(float(text)), parse_constant=_no_constant)
"""Reads numbers whose exponent is too large for Decimal: such numbers are 0 or beyond a double."""
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined] # the C scanner


def json_value(text: str) -> Any:
    """One JSON value, with fractions as Decimal.

    :raises ValueError, RecursionError: the text is no JSON value.
    """
    check_start(text)
    try:
        value = _value(text)
    except ValueError as error:
        raise in_plain_words(error) from None
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, default=str, ensure_ascii=False).encode()
    return value


def _value(text: str) -> Any:
    try:
        value, end = _scan(text, 0)
        if end != len(text):
            value = _DECODER.decode(text)
    except StopIteration:
        value = _DECODER.decode(text)
    except ArithmeticError:
        value = _FAR_DECODER.decode(text)
    return value


def shown(value: Any) -> str:
    """A value for a message."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def json_text(value: Any) -> str:
    """A value of ``json_value`` as JSON text, with every digit of its fractions."""
    match value:
        case Decimal():
            return str(value)
        case dict():
            return "{" + ",".join(f"{json_text(name)}:{json_text(item)}" for name, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{shown(value)} is not a boolean")
    return value


def text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{shown(value)} is not text")
    return value


def binary(value: Any) -> bytes:
    return base64.b64decode(text(value), validate=True)


def whole(bits: int) -> Read:
    """Whole numbers of at most ``bits`` bits. ``1.0`` is a whole number."""
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: Any) -> int:
        number = value if type(value) is int else _integral(value)
        if not least <= number <= most:
            raise ValueError(f"{shown(value)} is beyond {bits} bits")
        return number

    return read


def _integral(value: Any) -> int:
    number = narrowed(value)
    if type(number) is not int:
        raise ValueError(f"{shown(value)} is not a whole number of at most 64 bits")
    return number


def narrowed(value: Any) -> Any:
    """The value; a fraction that is a whole number of at most 64 bits, such as 1.0, as this number."""
    is_whole = type(value) is Decimal and abs(value) < 2**64 and value == int(value)
    return int(value) if is_whole else value


def double(value: Any) -> float:
    """A double. Kafka Connect writes NaN and infinity as text, because JSON has no such numbers."""
    if type(value) is Decimal or type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isinf(number):
            raise ValueError(f"{shown(value)} is beyond a double")
        return number
    if type(value) is not str or value not in _NUMBERS_AS_TEXT:
        raise ValueError(f"{shown(value)} is not a number")
    return _NUMBERS_AS_TEXT[value]


def float32(value: Any) -> float:
    number = double(value)
    if abs(number) >= FLOAT_BELOW and not math.isinf(number):
        raise ValueError(f"{shown(value)} is beyond a 32-bit float")
    return number


def decimal(precision: int, scale: int) -> Form:
    """Decimals as base64 text of the unscaled number, or as numbers.

    :raises ValueError: no table can have such decimals.
    """
    kind = decimal_type(precision, scale)
    unit, exact = Decimal(1).scaleb(-scale), Context(prec=precision, traps=[Inexact, InvalidOperation])

    def read(value: Any) -> Decimal:
        if type(value) is str:
            return unscaled_decimal(binary(value), precision, scale)
        if type(value) is not int and type(value) is not Decimal:
            raise ValueError(f"{shown(value)} is not a decimal")
        try:
            return Decimal(value).quantize(unit, context=exact)
        except (Inexact, InvalidOperation) as error:
            raise ValueError(f"{shown(value)} is not a decimal({precision}, {scale})") from error

    return Form(kind, read)


def time_ms(value: Any) -> int:
    return _within_a_day(_int32(value))


_int32 = whole(32)
_within_a_day = time_of_day(DAY_MS)

LOGICALS: Mapping[tuple[str, str], Form] = {
    ("int32", "org.apache.kafka.connect.data.Date"): Form(pa.date32(), _int32),
    ("int32", "org.apache.kafka.connect.data.Time"): Form(pa.time32("ms"), time_ms),
    ("int64", "org.apache.kafka.connect.data.Timestamp"): Form(pa.timestamp("ms", "UTC"), whole(64)),
}
"""Kafka Connect's logical types by type and name, without Decimal, which has parameters."""
DECIMAL = "org.apache.kafka.connect.data.Decimal"


def connect_decimal(parameters: Mapping[str, Any]) -> Form:
    """Connect's Decimal.

    :raises ValueError: the parameters have no scale, or are no such numbers.
    """
    if "scale" not in parameters:
        raise ValueError("a Decimal without the parameter 'scale'")
    precision = _parameter(parameters, "connect.decimal.precision", MOST_DIGITS)
    if precision < 1:
        raise ValueError(f"a Decimal whose connect.decimal.precision is {precision}")
    return decimal(min(MOST_DIGITS, precision), _parameter(parameters, "scale", 0))


def _parameter(parameters: Mapping[str, Any], name: str, default: int) -> int:
    given = parameters.get(name, default)
    if not re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", str(given), re.ASCII):
        raise ValueError(f"a Decimal whose parameter '{name}' is no whole number: {shown(given)}")
    return int(given)


def struct(fields: Sequence[tuple[str, Declared]]) -> Form:
    """Structs from objects. Other fields are left out. A missing field is missing in the struct, unless it must not be
    null or has a default.
    """
    reads = [(name, declared.read, declared.nullable and not declared.replaced) for name, declared in fields]
    check_names(name for name, _ in fields)

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise ValueError(f"{shown(value)} is not an object")
        get, row, name = value.get, dict[str, Any](), ""
        try:
            for name, of, may_be_missing in reads:
                if name in value or not may_be_missing:
                    row[name] = of(get(name))
        except (ValueError, ArithmeticError) as error:
            raise misfit(name, error) from error
        return row

    kind = pa.struct([declared.field(name) for name, declared in fields])
    return Form(kind, read, tuple(declared for _, declared in fields))


def array(element: Declared, cells: Cells) -> Form:
    """Lists from arrays. ``cells`` counts those of their elements."""
    of, each = element.read, cells_of(element.type)

    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise ValueError(f"{shown(value)} is not an array")
        cells.elements(len(value), each)
        return [of(item) for item in value]

    return Form(pa.list_(element.field("element")), read, (element,))


def mapping(value: Declared, cells: Cells) -> Form:
    """Maps with text as keys, from objects. ``cells`` counts those of their entries."""
    of, each = value.read, 1 + cells_of(value.type)

    def read(found: Any) -> list[tuple[str, Any]]:
        if type(found) is not dict:
            raise ValueError(f"{shown(found)} is not an object")
        cells.elements(len(found), each)
        return [(key, of(item)) for key, item in found.items()]

    return Form(map_type(pa.string(), value.field("value")), read, (value,))


def pairs(key: Declared, value: Declared, split: Callable[[Any], tuple[Any, Any]], cells: Cells) -> Form:
    """Maps with other keys, from arrays of entries. ``split`` divides an entry into key and value. The last entry of a
    key counts. ``cells`` counts those of the entries.
    """
    of_key, of_value, each = key.read, value.read, cells_of(key.type) + cells_of(value.type)

    def read(found: Any) -> list[tuple[Any, Any]]:
        if type(found) is not list:
            raise ValueError(f"{shown(found)} is not an array of entries")
        cells.elements(len(found), each)
        entries = map(split, found)
        return last_of_keys((of_key(name), of_value(item)) for name, item in entries)

    return Form(map_type(key.type, value.field("value")), read)
