"""Reads JSON objects of declared types into columns with Arrow's reader, many at once.

It accepts a value only if reading it alone (``typed_json``) would give the same result. It refuses all others: values
with undeclared fields, with whole numbers written as fractions, with nulls that a default replaces, and bad values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from calving.converters.building import DAY_MS
from calving.converters.typed_json import FLOAT_BELOW, Declared, Form
from calving.records.failures import ExactPathError
from calving.records.semantics import SemanticType, like, plain_type

_NEGATIVE_ZERO = re.compile(rb"-0[,}\]\s]")
"""Arrow reads it as a fraction; in JSON it is the whole number 0."""


class Reader:
    """Reads objects of one form.

    :raises ValueError: the form has types that Arrow does not read.
    """

    def __init__(self, form: Form) -> None:
        kind = _read_type(form)
        if not pa.types.is_struct(kind):
            raise ValueError("not an object")
        self._form, self._schema = form, pa.schema(list(kind))

    def read(self, payloads: Sequence[bytes]) -> pa.Array | None:
        """One row per payload; None if one of the payloads has to be read alone."""
        data = b"\n".join(payloads)
        # If two payloads are not joined by }, newline, {, one of them is not a single object.
        if data[:1] != b"{" or data[-1:] != b"}" or data.count(b"}\n{") != len(payloads) - 1:
            return None
        if b"-0" in data and _NEGATIVE_ZERO.search(data):
            return None
        try:
            data.decode()  # Arrow would accept invalid text
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pj.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error"),
            )
            if table.num_rows != len(payloads):
                return None
            columns = [column.combine_chunks() for column in table.columns]
            rows = pa.StructArray.from_arrays(columns, fields=list(table.schema))
            return _fitted(rows, self._form)
        except (pa.ArrowException, UnicodeDecodeError, ExactPathError):
            return None


def _read_type(form: Form) -> pa.DataType:
    """The type as which Arrow reads the form. :raises ValueError: Arrow cannot read it."""
    kind = plain_type(form.type)
    if pa.types.is_struct(kind) and len(form.parts) > 0:
        return pa.struct([(f.name, _read_type(part.form)) for f, part in zip(kind, form.parts, strict=True)])
    if pa.types.is_list(kind):
        return pa.list_(_read_type(form.parts[0].form))
    if pa.types.is_boolean(kind) or pa.types.is_string(kind):
        return kind
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_signed_integer(kind) or pa.types.is_temporal(kind):
        return pa.int64()
    raise ValueError(f"Arrow reads no {kind} from JSON")


def _fitted(column: pa.Array, form: Form) -> pa.Array:
    """The column in the form's type.

    :raises ExactPathError, pa.ArrowException: a value is not of this type.
    """
    kind = form.type
    if isinstance(kind, SemanticType):
        return like(kind, _fitted(column, replace(form, type=kind.storage_type)))
    if pa.types.is_struct(kind) and isinstance(column, pa.StructArray):
        children = [
            _part(child, part, column.null_count) for child, part in zip(column.flatten(), form.parts, strict=True)
        ]
        return pa.Array.from_buffers(kind, len(column), [_validity(column)], children=children)
    if pa.types.is_list(kind) and isinstance(column, pa.ListArray):
        items = _part(column.values, form.parts[0], 0)
        return pa.Array.from_buffers(
            kind, len(column), [_validity(column), column.offsets.buffers()[1]], children=[items]
        )
    if pa.types.is_floating(kind):
        below = FLOAT_BELOW if pa.types.is_float32(kind) else float("inf")
        if pc.all(pc.less(pc.abs(column), below)).as_py() is False:
            raise ExactPathError("a number is too large")
    elif pa.types.is_time(kind):
        if pc.all(pc.and_(pc.greater_equal(column, 0), pc.less(column, DAY_MS))).as_py() is False:
            raise ExactPathError("not a time of day")
        column = column.cast(pa.int32())
    elif pa.types.is_date(kind):
        column = column.cast(pa.int32())
    return column.cast(kind)


def _part(column: pa.Array, part: Declared, nulls_above: int) -> pa.Array:
    """The column of a field or of elements. ``nulls_above``: how many of its nulls are nulls of the values around
    it.
    """
    if (part.replaced or not part.nullable) and column.null_count > nulls_above:
        raise ExactPathError("a null without a place")
    return _fitted(column, part.form)


def _validity(column: pa.Array) -> pa.Buffer | None:
    return column.is_valid().buffers()[1] if column.null_count else None
