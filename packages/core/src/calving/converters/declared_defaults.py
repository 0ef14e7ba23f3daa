"""The defaults that schemas declare for fields, as texts that a field's type carries (``records.schema_defaults``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pyarrow as pa

from calving.converters.avro_types import Schema, logical_type
from calving.converters.building import Reading
from calving.converters.typed_json import Declared, shown
from calving.records.schema_defaults import default_text, ignored
from calving.records.semantics import plain_type


def told(declared: Declared, default: Any) -> Declared:
    """The declared type with a default (JSON, not None) that does not replace null."""
    try:
        text = default_text(declared.form.read(default), declared.type)
    except (ValueError, ArithmeticError) as error:
        text = ignored(str(error))
    return replace(declared, default=text)


def of_avro(default: Any, reading: Reading, schema: Schema, named: Mapping[str, Any]) -> Reading:
    """The reading with the default (JSON, not None) of its field. In a union with null it is of the other branch."""
    if not pa.types.is_nested(plain_type(reading.type)):
        try:
            default = _of_json(default, _single(schema, named))
            default = default if reading.convert is None else reading.convert(default)
        except ValueError as error:
            return replace(reading, default=ignored(str(error)))
    return replace(reading, default=default_text(default, reading.type))


def _single(schema: Schema, named: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of single values without the unions with null and the names around it."""
    if isinstance(schema, list):
        others = [branch for branch in schema if _single(branch, named)["type"] != "null"]
        return _single(others[0] if others else "null", named)
    if isinstance(schema, dict):
        return schema if isinstance(schema["type"], str) else _single(schema["type"], named)
    return _single(named[schema], named) if schema in named else {"type": schema}


def _of_json(default: Any, schema: Mapping[str, Any]) -> Any:
    """A default in the form in which fastavro reads values of its type.

    :raises ValueError: it is not of the type.
    """
    kind = schema["type"]
    if type(default) not in _DEFAULTS.get(kind, ()) or default not in schema.get("symbols", (default,)):
        raise ValueError(f"{shown(default)} is not of Avro's type '{kind}'")
    if kind in ("bytes", "fixed"):
        return default.encode("iso-8859-1")
    return UUID(default) if logical_type(schema) == "uuid" else default


_DEFAULTS: Mapping[str, Sequence[type]] = {
    "boolean": (bool,),
    **dict.fromkeys(("int", "long"), (int,)),
    **dict.fromkeys(("float", "double"), (int, float)),
    **dict.fromkeys(("bytes", "fixed", "string", "enum"), (str,)),
}
"""The classes of the JSON of defaults, by Avro's type."""
