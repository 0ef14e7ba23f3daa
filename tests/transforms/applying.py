"""Records, and transforms applied to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from calving.model.record_path import TransformSpec
from calving.records.values import HEADERS, Records, objects
from calving.transforms.chain import Chain
from tests.converters.decoding import columns

NOON = 1704196800000  # 2024-01-02T12:00:00Z


def records(
    *values: Any, keys: list[Any] | None = None, topic: str = "db.orders", headers: Any = None, typed: bool = False
) -> Records:
    count = len(values)
    value = values[0] if count == 1 and isinstance(values[0], pa.Array) else columns(list(values))
    count = len(value)
    return Records(
        pa.array(range(count), pa.int32()),
        pa.repeat(pa.scalar(topic), count),
        3,
        pa.array(range(100, 100 + count), pa.int64()),
        pa.array([NOON] * count, pa.timestamp("ms", "UTC")),
        pa.nulls(count) if keys is None else columns(keys),
        value,
        pa.array(headers or [[]] * count, HEADERS),
        typed,
    )


def chain(kind: str, options: Mapping[str, str] | None = None, **more: Any) -> Chain:
    return Chain([TransformSpec("x", kind, options or {}, **more)])


def apply(kind: str, options: Mapping[str, str], found: Records) -> Records:
    """All of them, in one part, none refused."""
    done = chain(kind, options).apply(found)
    assert not done.bad
    (part,) = done.records
    return part


def values(kind: str, options: Mapping[str, str], *given: Any) -> list[Any]:
    return objects(apply(kind, options, records(*given)).value)
