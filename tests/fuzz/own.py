"""A user's own transforms. They copy topic, key and headers into the value, where the oracle can compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from calving.records.values import Records, objects
from calving.transforms import Transform
from calving.transforms.interface import NO_FIELDS

UNKNOWN = "..."
"""In the place of values whose text is not compared."""


def seen(records: Records, options: Mapping[str, str]) -> Records:
    """The option ``field`` names a new field with the topic, the key and the headers."""
    value = records.value
    if value.null_count == len(value):
        return records  # a null may have the type that other values have
    if not isinstance(value, pa.StructArray):
        raise ValueError("only objects have fields")
    texts = [
        text(topic, key, [(h["key"], h["value"]) for h in headers or ()], typed=records.typed)
        for topic, key, headers in zip(
            records.topic.to_pylist(), objects(records.key), objects(records.headers), strict=True
        )
    ]
    fields = {f.name: (child, f) for f, child in zip(value.type, value.flatten(), strict=True)}
    fields[options["field"]] = pa.array(texts, pa.string()), pa.field(options["field"], pa.string())
    children, described = zip(*fields.values(), strict=True)
    mask = value.is_null() if value.null_count else None
    return records.with_value(pa.StructArray.from_arrays([*children], fields=[*described], mask=mask))


class Seen(Transform):
    """As ``seen``. The types of nulls do not matter to it, so it is called less often."""

    null_types = NO_FIELDS
    needs = frozenset({"key", "headers"})
    keeps_names = True

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def apply(self, records: Records) -> Records:
        return seen(records, self._options)


def text(topic: str, key: Any, headers: Iterable[tuple[str, Any]], *, typed: bool) -> str:
    """``typed``: what transforms copied from the value into the key or into headers named f... is not told."""
    told = [f"{name}={_told(value, name.startswith('f') and typed)}" for name, value in headers]
    return f"{topic}; {_told(key, typed)}; {', '.join(told)}"


def _told(value: Any, hidden: bool) -> str:
    match value:
        case None:
            return "null"
        case dict():
            return f"{{{', '.join(f'{name}: {_told(item, hidden)}' for name, item in sorted(value.items()))}}}"
        case _ if hidden:
            return UNKNOWN
        case bool():
            return str(value).lower()
        case int():
            return str(int(value))
        case str():
            return value
        case bytes():
            return value.decode(errors="replace")
    return UNKNOWN
