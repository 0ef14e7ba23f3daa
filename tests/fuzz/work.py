"""``python -m tests.fuzz.work [--bytes 1000000] [--only Cast]``: no input takes much more work than a harmless one.

Each input has a twin of the same size and as many records, of plain text, flat objects of one shape, or no record at all
that is odd. Both go through the same converter, transforms and columns of a table. An input may take at most ``MOST``
times the CPU of its twin.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calving.casting.table import TableConverter
from calving.model.record_path import Evolution, RouteRule, Routing, TransformSpec
from calving.records.values import Values
from calving.tasks.route import Router
from tests.fuzz import work_typed
from tests.fuzz.alone import Raw, Trial, fates
from tests.java.cases import CASES
from tests.transforms import applying

MOST = 50
_LEAST = 0.02
"""Seconds of CPU: the clock and the first call take as much."""
_TRIES = 3
"""A busy machine makes a second of CPU longer. What is too much each time is too much."""
Work = Callable[[Sequence[bytes]], object]


@dataclass(frozen=True)
class Way:
    """A way of records through the sink. ``texts``: it is made for records that are one text. ``converter``: it takes
    records of this one's format.
    """

    name: str
    work: Work
    texts: bool = False
    converter: str = ""


_BARE = {
    "digits": "1",
    "zeros": "0",
    "nines": "9.",
    "blanks": " ",
    "lines": "\n",
    "letters": "a",
    "quotes": '"',
    "backslashes": "\\",
    "signs": "-",
    "points": ".",
    "exponents": "1e",
    "brackets": "[",
    "braces": '{"a":',
    "closed": "[]",
    "dates": "2024-01-02",
    "zones": "+01:00",
    "times": "00:00:00.",
    "months": "Jan ",
    "hex": "deadbeef-",
    "accents": "é",
    "emoji": "😀",
    "nuls": "\0",
    "references": "$1{a}",
}
TAILS = ("", "x", "e", "\n", "Z")


def texts(size: int) -> Iterator[tuple[str, str]]:
    """Texts of this many characters that some pattern or loop may dislike."""
    for name, unit in _BARE.items():
        for tail in TAILS:
            yield f"{name} {tail!r}", (unit * (size // len(unit) + 1))[: size - len(tail)] + tail


def shapes(size: int) -> Iterator[tuple[str, list[bytes]]]:
    """Records of this many bytes in all whose shapes, names or nesting a loop may dislike."""
    random = Random(size)

    def many(make: Callable[[int], Any]) -> list[bytes]:
        left = size
        found: list[bytes] = []
        while left > 0:
            found.append(json.dumps(make(len(found))).encode())
            left -= len(found[-1])
        return found

    yield "nulls", many(lambda _: {f"f{i}": random.choice((None, 1)) for i in range(14)})
    yield "objects or nulls", many(lambda _: {f"f{i}": random.choice((None, {"x": 1})) for i in range(14)})
    yield "mixed kinds", many(lambda _: {f"f{i}": random.choice((2**70, "x", 1.5)) for i in range(14)})
    yield "other names", many(lambda n: {f"n{n}_{i}": i for i in range(14)})
    yield "other orders", many(lambda _: {f"f{i}": i for i in random.sample(range(14), 14)})
    yield (
        "names by case",
        many(lambda n: {"".join(random.choice((c, c.upper())) for c in "abcdefgh"): n for _ in range(9)}),
    )
    yield "nested", many(lambda n: _nested(n % 30))
    yield "mixed arrays", many(lambda n: {"a": [n, "x", {"y": n}, [n]]})
    wide = {f"n{i}": i for i in range(size // 14)}
    yield "wide", [json.dumps(wide).encode()]
    yield "wide of nulls", [json.dumps(dict.fromkeys(wide)).encode()]
    yield "one array", [json.dumps({"a": list(range(size // 8))}).encode()]
    yield "one array of objects", [json.dumps({"a": [{"x": i} for i in range(size // 16)]}).encode()]
    yield "one array of other objects", [json.dumps({"a": [{f"x{i}": i} for i in range(size // 20)]}).encode()]
    yield "one array of kinds", [json.dumps({"a": [random.choice((1, "x", None)) for _ in range(size // 5)]}).encode()]
    yield "deep", [b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6)]
    yield "deep arrays", [b'{"a":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"]
    yield "unclosed", [b'{"a":' + b"[" * size]
    yield "one name", [b"{" + b",".join([b'"a":1'] * (size // 6)) + b"}"]
    yield "rubbish", [b"{" * 50] * (size // 50)
    yield "digits", [b'{"a":' + b"1" * size + b"}"]
    yield "fraction", [b'{"a":0.' + b"1" * size + b"}"]
    yield "escapes", [b'{"a":"' + b"\\u00e9" * (size // 6) + b'"}']


def _nested(depth: int) -> Any:
    return {"a": _nested(depth - 1), "b": depth} if depth else 1


def twin(way: Way, records: Sequence[bytes]) -> list[bytes]:
    """As many records of the same sizes, flat and of one shape."""
    if way.converter:
        return [work_typed.harmless(way.converter, record) for record in records]
    return [b'{"a":"' + b"x" * max(0, len(record) - 8) + b'"}' for record in records]


def _chain(*specs: TransformSpec, whole: bool = False) -> Work:
    def work(records: Sequence[bytes]) -> object:
        return fates(Trial(specs, whole, [Raw(r, None, (), 0) for r in records]), [range(len(records))], shown=False)

    return work


def _documents(found: Sequence[bytes]) -> object:
    """The records as documents of MongoDB, which are text in Debezium's events."""
    events = [{"op": "c", "after": record.decode()} for record in found]
    return applying.chain("MongoDebeziumTransform").apply(applying.records(*events, keys=[{"id": "1"}] * len(events)))


def _column(kind: IcebergType) -> Work:
    schema = Schema(NestedField(1, "a", kind, required=False))

    def work(records: Sequence[bytes]) -> object:
        values: list[Any] = []
        for record in records:
            try:
                values.append(json.loads(record))
            except (ValueError, RecursionError):
                continue
        return TableConverter("db.t", schema, Evolution(), {}).convert(Values(values, False)) if values else None

    return work


def _routes(records: Sequence[bytes]) -> object:
    router = Router(Routing(tuple(RouteRule(f"db.t{i}", p) for i, p in enumerate(REGEXES)), "a"))
    return router.by_field([record.decode("utf-8", "replace") for record in records])


REGEXES = ("(a+)+b", "(a|aa)*b", ".*a.*a.*a.*b", r"(\d+)+x", "(?!x).*", r"([^,]*,)*end", r"(\s*a?)*b", "(.*)(.*)(.*)=x")
_COLUMNS: Sequence[IcebergType] = (
    *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 2), DecimalType(38, 10)),
    *(
        DateType(),
        TimeType(),
        TimestampType(),
        TimestamptzType(),
        StringType(),
        UUIDType(),
        FixedType(16),
        BinaryType(),
    ),
    ListType(2, LongType(), False),
    MapType(2, StringType(), 3, LongType(), False),
    StructType(NestedField(2, "x", LongType(), required=False)),
)
QUERIES = (
    "SELECT * FROM records",
    "SELECT a FROM records WHERE a IS NOT NULL",
    "SELECT coalesce(a, 'x') AS a FROM records",
)


def ways() -> Iterator[Way]:
    for name in work_typed.INPUTS:
        yield Way(name, work_typed.decodes(name), converter=name)
    yield Way("routes", _routes, texts=True)
    for kind in _COLUMNS:
        yield Way(f"column {kind}", _column(kind), texts=True)
    yield Way("documents", _documents)
    yield Way("envelope", _chain(TransformSpec("t", "SetSchemaMetadata", {"schema.name": "x"}), whole=True))
    found = {(case.kind, tuple(case.options.items())): case for case in CASES}
    for case in found.values():
        yield Way(case.name, _chain(TransformSpec("t", case.kind, case.options)), texts=True)
    for query in QUERIES:
        yield Way(f"Sql {query}", _chain(TransformSpec("t", "Sql", {"query": query})))


def inputs(way: Way, size: int) -> Iterator[tuple[str, list[bytes]]]:
    """What a way is given. A text comes as the field that the transforms of the tests are about, and as a whole value."""
    if way.converter:
        yield from work_typed.INPUTS[way.converter](size)
        return
    for name, text in texts(size) if way.texts else ():
        yield name, [json.dumps({"a": text, "ts": text}).encode()]
        yield f"bare {name}", [json.dumps(text).encode()]
    yield from shapes(size)


def spent(work: Work, records: Sequence[bytes]) -> float:
    started = time.process_time()
    work(records)
    return time.process_time() - started


def check(way: Way, sizes: Sequence[int], share: Random | None = None) -> list[str]:
    """The inputs that take too much work. Small sizes come first, so that nothing takes for ever. ``share``: only some
    inputs, chosen at random.
    """
    told: list[str] = []
    slow: set[str] = set()
    for size in sizes:
        for name, records in inputs(way, size):
            if name in slow or (share is not None and share.random() > 0.1):
                continue
            for _ in range(_TRIES):
                other = max(_LEAST, spent(way.work, twin(way, records)))
                if (took := spent(way.work, records)) <= MOST * other:
                    break
            else:
                slow.add(name)
                told.append(f"{way.name}: {name}, {size} bytes: {took:.2f} s of CPU, its twin {other:.2f} s")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="only ways whose name has this text")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no way is begun after this time")
    args = parser.parse_args()
    started, wrong, count = time.monotonic(), 0, 0
    for way in ways():
        if args.only in way.name and time.monotonic() - started < args.seconds:
            count += 1
            for line in check(way, [args.bytes // 100, args.bytes // 10, args.bytes]):
                wrong += 1
                print(line, flush=True)
    print(json.dumps({"ways": count, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
