"""The default values that the schemas of records declare for fields.

A default travels as a text: in the metadata of the field's Arrow type, and from there with the inferred type of its
column. It says nothing about the values, whose nulls a converter replaces by itself.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa

from calving.records.arrays import arrow
from calving.records.failures import pass_on
from calving.records.semantics import SemanticType, moments, plain
from calving.records.values import objects

_KEY = b"calving.default"
_IGNORED = "!"
"""Begins the text of a default that no column can have: the reason follows."""


def described(field: pa.Field, default: str | None) -> pa.Field:
    """The field with this default; as it is without one."""
    return field if default is None else pa.field(field.name, field.type, field.nullable, {_KEY: default})


def default_of(field: pa.Field) -> str | None:
    """The default that the field's schema declares; None if it declares none."""
    text = (field.metadata or {}).get(_KEY)
    return None if text is None else text.decode()


def default_text(value: Any, kind: pa.DataType) -> str:
    """The default of a field of this type, for which a converter makes this value."""
    if pa.types.is_nested(kind.storage_type if isinstance(kind, SemanticType) else kind):
        return ignored("columns of structs, lists and maps have no default but null")
    try:
        column = moments(arrow([value], kind))
    except Exception as error:  # of any value
        pass_on(error)
        return ignored(str(error).split("\n")[0])
    column = plain(column)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("", column.type)])) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays([column], [""]))
    return base64.b64encode(sink.getvalue()).decode()


def ignored(reason: str) -> str:
    """A default that no column can have."""
    return _IGNORED + reason


def default_value(text: str) -> Any:
    """The value, as Python has those of its type.

    :raises ValueError: no column can have it.
    """
    if text.startswith(_IGNORED):
        raise ValueError(text.removeprefix(_IGNORED))
    column: pa.Array = pa.ipc.open_stream(base64.b64decode(text)).read_all().column(0).chunk(0)
    return objects(column)[0]
