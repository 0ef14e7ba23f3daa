"""Arrow's JSON reader, restricted to one object in each value, and to valid JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import itemgetter

import pyarrow as pa
import pyarrow.json as pj

from calving.records.failures import ExactPathError

_FIRST, _LAST = itemgetter(0), itemgetter(-1)
_OPEN, _CLOSE = b"{}"
_CONSTANT = re.compile(rb"[:,\[]\s*-?(NaN|Inf)")
_ROW = re.compile(r" in row ([0-9]+)$")


def read_rows(values: Sequence[bytes], schema: pa.Schema, *, closed: bool) -> tuple[pa.StructArray, bool]:
    """One row per value; and whether values may hold objects or arrays that the schema does not describe.

    ``closed``: fields that the schema lacks are ignored; otherwise they are refused.

    A newline between ``}`` and ``{`` can only stand between two objects. So if all values begin with ``{`` and end with
    ``}``, each holds at least one object. If there are as many rows as values, each holds exactly one.

    :raises ExactPathError: Arrow refuses these values.
    """
    data = _joined(values)
    if closed:
        _refuse_constants(data)
    rows = _parsed(data, schema, closed)
    if len(rows) != len(values):
        raise ExactPathError("not one row per record")
    return rows, closed and (b"[" in data or data.count(b"{") > len(values))


def _joined(values: Sequence[bytes]) -> bytes:
    """The values joined, one on each line."""
    if b"" in values or {*map(_FIRST, values)} != {_OPEN} or {*map(_LAST, values)} != {_CLOSE}:
        odd = (i for i, value in enumerate(values) if value[:1] != b"{" or value[-1:] != b"}")
        raise ExactPathError("not one object per record", next(odd, None))
    data = b"\n".join(values)
    if not data.isascii():
        try:
            data.decode()  # Arrow would accept invalid text
        except UnicodeDecodeError as error:
            raise ExactPathError("invalid UTF-8", data.count(b"\n", 0, error.start)) from error
    return data


def _refuse_constants(data: bytes) -> None:
    """Refuse NaN and infinity in ignored fields, because Arrow accepts them as numbers. Columns are checked
    elsewhere.
    """
    # One letter is found much faster than three.
    named = (b"N" in data and b"NaN" in data) or (b"I" in data and b"Inf" in data)
    if named and (constant := _CONSTANT.search(data)):
        raise ExactPathError("not a JSON number", data.count(b"\n", 0, constant.start()))


def _parsed(data: bytes, schema: pa.Schema, closed: bool) -> pa.StructArray:
    try:
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore" if closed else "error"
            ),
        )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        row = _ROW.search(str(error))
        raise ExactPathError(str(error), int(row.group(1)) if row else None) from error
    if not table.num_columns:
        return pa.array([{}] * table.num_rows, pa.struct([]))
    return pa.StructArray.from_arrays([_whole(c) for c in table.columns], fields=list(table.schema))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
