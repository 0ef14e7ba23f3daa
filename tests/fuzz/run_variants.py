"""``python -m tests.fuzz.run_variants --values 1000000 [--seed 7]``: random JSON as variants, by the exact path and as
the sink decodes it, mostly in Rust; read back by a decoder that was written from the specification, and some of it by
DuckDB.

Prints one line for each document that is read otherwise, how many values there were, and how many were encoded in Rust.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from calving.casting.table import TableConverter
from calving.casting.variants import encode
from calving.converters.json import JsonConverter
from calving.model.record_path import Evolution, Limits
from calving.records.fields import Projection, arrow_schema
from calving.records.foreign import schema_of_json
from calving.records.jsontext import parse
from calving.writing.formats.footers import VARIANT_NODE, with_nodes
from tests.casting.variant_decoder import decode

SCHEMA = schema_of_json('{"type":"struct","fields":[{"id":1,"name":"v","required":false,"type":"variant"}]}')
SAMPLE = 50
"""DuckDB reads one of so many documents of a block."""
BLOCKS = [1, 10, 300]
SIGNS = "aé😀\x00\"\\ß漢.$'\u2028"
WHOLE = [7, 8, 15, 16, 31, 32, 63, 64, 90, 126, 127, 140]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    args = parser.parse_args()
    wrong, count, fast = fuzz(args.seed, args.values)
    print(*wrong, sep="\n")
    print(f"seed {args.seed}: {count:,} values, {fast:,} in Rust, {len(wrong)} documents were read otherwise")
    return 1 if wrong else 0


def fuzz(seed: int, values: int) -> tuple[list[str], int, int]:
    """What was read otherwise, the number of values, and how many of them were encoded in Rust."""
    draw, count, fast, block = random.Random(seed), 0, 0, Block()
    wrong, sample = list[str](), list[str]()
    while count < values:
        texts = [
            document(draw, draw.choice([0, 1, 2, 3, 5]), draw.choice([0, 1, 3, 8]), plain=draw.random() < 0.7)
            for _ in range(draw.choice(BLOCKS))
        ]
        rows, in_rust = block.rows(texts)
        for number, (given, row) in enumerate(zip(texts, rows, strict=True)):
            wanted = wanted_of(given)
            size = sum(1 for _ in inside(wanted))
            count, fast = count + size, fast + size * (number in in_rust)
            found = None if row is None else decode(**row)
            if not same(found, wanted) or not same(decode(*encode(parse(given.encode(), 100))), wanted):
                wrong.append(given)
        # DuckDB gives Python no names if one is empty, and cuts them at a zero character.
        sample += [each for each in texts[::SAMPLE] if '"":' not in each and "\\u0000" not in each]
    return [*wrong, *by_duckdb(sample)], count, fast


class Block:
    """A column of variants, as the sink fills it."""

    def __init__(self) -> None:
        limits = Limits(nesting=100)
        self._converter = JsonConverter({}, is_key=False, limits=limits)
        self._table = TableConverter("db.t", SCHEMA, Evolution(), {}, limits)
        self._projection = Projection((self._table.target,))

    def rows(self, texts: Sequence[str]) -> tuple[list[Any], set[int]]:
        """The variants that these documents become in one block, and which of them were encoded in Rust."""
        records = [b'{"v": %s}' % each.encode() for each in texts]
        found: list[Any] = [None] * len(texts)
        fast = set[int]()
        for values in self._converter.decode(records, self._projection).values:
            converted = self._table.convert(values)
            assert converted.rows is not None and not converted.bad, converted.bad
            for place, row in zip(values.index, converted.rows.to_pylist(), strict=True):
                found[place] = row["v"]
            fast |= set[int]() if isinstance(values.data, list) else {*values.index}
        return found, fast


def document(draw: random.Random, depth: int, width: int, *, plain: bool) -> str:
    """A JSON text. ``plain``: no name comes twice in an object, and every decimal holds its number."""
    form = draw.random()
    if depth and form < 0.35:
        names = [text(draw) for _ in range(draw.randint(0, width))]
        fields = (
            f"{json.dumps(each)}: {document(draw, depth - 1, width, plain=plain)}"
            for each in (dict.fromkeys(names) if plain else names)
        )
        return "{" + ", ".join(fields) + "}"
    if depth and form < 0.6:
        items = (document(draw, depth - 1, width, plain=plain) for _ in range(draw.randint(0, width)))
        return "[" + ",".join(items) + "]"
    numbers = [short_whole, short_fraction] if plain else [whole, fraction]
    return draw.choice([*numbers, lambda draw: json.dumps(text(draw), ensure_ascii=draw.random() < 0.5), word])(draw)


def word(draw: random.Random) -> str:
    return draw.choice(["null", "true", "false"])


def text(draw: random.Random) -> str:
    size = draw.choice([0, 1, 1, 2, 3, 15, 16, 62, 63, 64, 65, 300])
    return "".join(draw.choices(SIGNS, k=size)) if draw.random() < 0.5 else draw.choice("abc") * size


def whole(draw: random.Random) -> str:
    return str(draw.choice([1, -1]) * (2 ** draw.choice(WHOLE) + draw.randint(-2, 2)))


def short_whole(draw: random.Random) -> str:
    return str(draw.choice([1, -1]) * (2 ** draw.choice(WHOLE[:-3]) + draw.randint(-2, 2)))


def short_fraction(draw: random.Random) -> str:
    digits = "".join(draw.choices("0123456789", k=draw.choice([1, 2, 8, 9, 10, 17, 18, 19, 30])))
    power = draw.choice(["", "", "", "e0", "e5", "E-7"])
    return f"{draw.choice(['', '-'])}{draw.choice([0, 1, 12, 999_999])}.{digits}{power}"


def fraction(draw: random.Random) -> str:
    digits = "".join(draw.choices("0123456789", k=draw.choice([1, 2, 9, 10, 17, 18, 19, 37, 38, 39])))
    sign, power = draw.choice(["", "-"]), draw.choice(["", "", "e0", "e5", "E-7", "e+30", "e-38", "e200"])
    return f"{sign}{draw.choice(['0', '1', '12', '9' * 20])}.{digits}{power}"


def wanted_of(text: str) -> Any:
    """The value that a reader should see, found without the code that is tested."""
    return json.loads(text, parse_float=_fraction, parse_int=_whole)


def _whole(text: str) -> Any:
    return Decimal(text) if len(text.lstrip("-")) <= 38 else float(text)


def _fraction(text: str) -> Any:
    exact = Decimal(text)
    if exact == 0:
        return float(text) if text.startswith("-") else Decimal(0)
    plain = format(exact, "f")
    before, _, behind = plain.lstrip("-").partition(".")
    digits, scale = (before + behind.rstrip("0")).lstrip("0"), len(behind.rstrip("0"))
    return exact if len(digits) <= 38 and scale <= 38 else float(text)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal; a double is no decimal."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return (
        isinstance(one, float) == isinstance(other, float) and type(one) in _LIKE.get(type(other), ()) and one == other
    )


_LIKE = {Decimal: (int, Decimal), float: (float,), str: (str,), bool: (bool,), type(None): (type(None),)}


def inside(value: Any) -> Iterator[Any]:
    """The value, and all values in it."""
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from inside(each)


def by_duckdb(texts: Sequence[str]) -> Iterator[str]:
    """The documents that DuckDB reads otherwise from a file."""
    rows = [{"v": dict(zip(("metadata", "value"), encode(parse(each.encode(), 100)), strict=True))} for each in texts]
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(SCHEMA)), out)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "variants.parquet"
        path.write_bytes(with_nodes(out.getvalue(), {1: VARIANT_NODE}))
        read = duckdb.sql(f"select v from read_parquet('{path}')").fetchall()
    for given, (found,) in zip(texts, read, strict=True):
        if not nearly(found, wanted_of(given)):
            yield f"DuckDB: {given}"


def nearly(one: Any, other: Any) -> bool:
    """Whether two values are equal, whatever the forms of their numbers."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(nearly(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(nearly, one, other))
    is_double = isinstance(one, float) or isinstance(other, float)
    return bool(float(one) == float(other)) if is_double else bool(one == other)


if __name__ == "__main__":
    sys.exit(main())
