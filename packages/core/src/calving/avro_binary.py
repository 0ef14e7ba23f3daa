"""Checks values in Avro's binary encoding, because fastavro reads damaged ones as data.

fastavro counts a negative branch or symbol from the end, wraps a number of more than 64 bits, and takes any byte for a
boolean. The checks refuse what Java's reader and the decoder in Rust refuse as damaged, so a value has the same fate
with each of them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import fastavro

Check = Callable[[bytes, int], int]
"""Checks the value that starts at a place in the bytes. Returns the place behind it, which may be behind the end.

:raises ValueError: the bytes are no value of the schema. :raises IndexError: they end too soon.
"""


Counter = Callable[[int], None]
"""Is told how many elements come next, and raises an error if they are too many."""


def checker(
    schema: Any, named: Mapping[str, Any], counters: Mapping[int, Counter] | None = None
) -> Callable[[bytes], int]:
    """The check of whole bodies of a parsed schema, which does not contain itself. ``named`` are the types to which it
    refers. ``counters`` of arrays and maps, by the ``id`` of their schemas. The check returns the place behind the
    value; whether bytes may follow it is the caller's to say.

    :raises ValueError: from the check, if the body is damaged. :raises EOFError: from the check, if it ends too soon.
    """
    steps = _Checks(named, counters or {}).of(schema)

    def check(body: bytes) -> int:
        try:
            place = _walk(steps, body, 0)
        except IndexError:
            raise EOFError from None
        if place > len(body):
            raise EOFError
        return place

    return check


def _walk(steps: Sequence[Check], body: bytes, place: int) -> int:
    for step in steps:
        place = step(body, place)
    return place


class _Checks:
    """The checks of a schema's types. All uses of a named type share one: types that each use the one before twice
    would have 2^n of them.
    """

    def __init__(self, named: Mapping[str, Any], counters: Mapping[int, Counter]) -> None:
        self._named, self._counters = named, counters
        self._shared: dict[str, tuple[Check, ...]] = {}

    def of(self, schema: Any) -> tuple[Check, ...]:
        """The checks of a value's parts in order. A record is its fields."""
        if isinstance(schema, list):
            return (_union([self.of(branch) for branch in schema]),)
        options = schema if isinstance(schema, dict) else {}
        kind = options.get("type", schema)
        if not isinstance(kind, str):
            return self.of(kind)
        if kind in self._named and "name" not in options:
            return self._shared_of(kind)
        return self._of_kind(kind, options)

    def _of_kind(self, kind: str, options: dict[str, Any]) -> tuple[Check, ...]:
        match kind:
            case "record" | "error":
                return tuple(step for field in options["fields"] for step in self._field(field["type"]))
            case "array":
                return (_blocks(self.of(options["items"]), self._counters.get(id(options))),)
            case "map":
                return (_blocks((_counted, *self.of(options["values"])), self._counters.get(id(options))),)
            case "enum":
                return (_symbol(len(options["symbols"])),)
            case "fixed":
                return (_sized(options["size"]),)
        return _SIMPLE[kind]

    def _field(self, schema: Any) -> tuple[Check, ...]:
        steps = self.of(schema)
        return (_together(steps),) if isinstance(schema, str) and schema in self._shared and len(steps) > 1 else steps

    def _shared_of(self, name: str) -> tuple[Check, ...]:
        if name not in self._shared:
            self._shared[name] = self.of(self._named[name])
        return self._shared[name]


def _together(steps: Sequence[Check]) -> Check:
    """The fields of a record. They are not begun behind the end of the bytes, because there may be 2^n of them."""

    def check(body: bytes, place: int) -> int:
        if place > len(body):
            raise EOFError
        return _walk(steps, body, place)

    return check


def _union(branches: Sequence[Sequence[Check]]) -> Check:
    count = len(branches)
    short = {branch << 1: steps for branch, steps in enumerate(branches[:_SHORT])}
    """By the only byte of the branch's number."""

    def check(body: bytes, place: int) -> int:
        steps = short.get(body[place])
        if steps is None:
            branch, place = _long(body, place)
            if not 0 <= branch < count:
                raise ValueError(f"damaged: branch {branch} of a union of {count}")
            steps = branches[branch]
        else:
            place += 1
        for step in steps:
            place = step(body, place)
        return place

    return check


def _blocks(item: Sequence[Check], counter: Counter | None) -> Check:
    """Items in blocks, each with its count; behind a negative one stands the block's size. The size is not compared:
    neither Java nor fastavro does it. An item takes bytes, so the end of the bytes ends a damaged count.
    """

    def check(body: bytes, place: int) -> int:
        while True:
            count, place = _long(body, place)
            if not count:
                return place
            if count < 0:
                place = _number(body, place)
            if counter is not None:
                counter(min(abs(count), len(body) - place))
            for _ in range(abs(count)):
                for step in item:
                    place = step(body, place)
                if place > len(body):
                    raise EOFError

    return check


def _symbol(count: int) -> Check:
    def check(body: bytes, place: int) -> int:
        symbol, place = _long(body, place)
        if not 0 <= symbol < count:
            raise ValueError(f"damaged: symbol {symbol} of an enum of {count}")
        return place

    return check


def _sized(size: int) -> Check:
    return lambda _, place: place + size


def _counted(body: bytes, place: int) -> int:
    """Bytes or text, with their size in front."""
    size = body[place]
    if size < _MORE and not size & 1:
        return place + 1 + (size >> 1)
    size, place = _long(body, place)
    if size < 0:
        raise ValueError(f"damaged: a size of {size} bytes")
    return place + size


def _boolean(body: bytes, place: int) -> int:
    if body[place] > 1:
        raise ValueError(f"damaged: byte {body[place]} is no boolean")
    return place + 1


def _number(body: bytes, place: int) -> int:
    return place + 1 if body[place] < _MORE else _long(body, place)[1]


def _int(body: bytes, place: int) -> int:
    if body[place] < _MORE:
        return place + 1
    number, place = _long(body, place)
    if not -_INT <= number < _INT:
        raise ValueError(f"damaged: {number} is no number of 32 bits")
    return place


_INT = 2**31


_MORE = 0x80
"""The least byte of a number that another byte of the number follows."""
_SHORT = 64
"""So many numbers that are not negative have one byte."""
_LONGEST = 10


def _long(body: bytes, place: int) -> tuple[int, int]:
    """A number, and the place behind it. Each byte has seven bits, the lowest first; the lowest of all is the sign."""
    bits = body[place]
    if bits >= _MORE:
        bits, start = 0, place
        while (byte := body[place]) >= _MORE:
            bits |= (byte & 0x7F) << 7 * (place - start)
            place += 1
            if place - start == _LONGEST:
                raise ValueError("damaged: a number of more than ten bytes")
        bits |= byte << 7 * (place - start)
        if bits >> 64:
            raise ValueError("damaged: a number of more than 64 bits")
    return bits >> 1 ^ -(bits & 1), place + 1


_SIMPLE: Mapping[str, tuple[Check, ...]] = {
    "null": (),
    "boolean": (_boolean,),
    "int": (_int,),
    "long": (_number,),
    "float": (_sized(4),),
    "double": (_sized(8),),
    "bytes": (_counted,),
    "string": (_counted,),
}


class Datum(NamedTuple):
    """A value, and the bytes behind it."""

    value: Any
    rest: bytes


class BinaryEncoding:
    """Reads and writes values of one schema of Avro, which refers to no other."""

    def __init__(self, schema: Any) -> None:
        named: dict[str, Any] = {}
        self._schema = fastavro.parse_schema(schema, named_schemas=named)
        self._check = checker(self._schema, named)

    def read(self, data: bytes) -> Datum:
        """The value at the beginning of these bytes.

        :raises Exception: there is none.
        """
        end = self._check(data)
        return Datum(fastavro.schemaless_reader(io.BytesIO(data), self._schema, None), data[end:])

    def write(self, value: Any) -> bytes:
        """The bytes of a value. A pair names the branch of a union beside its value, as in fastavro."""
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()
