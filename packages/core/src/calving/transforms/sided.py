"""Transforms that have a ``$Key`` and a ``$Value`` form, and the paths that lead to their fields."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from calving.errors import ConfigError
from calving.records.values import Records
from calving.transforms.columns import Side, side_of, with_side
from calving.transforms.interface import NO_FIELDS, Transform, UnfitTypeError


class Sided(Transform):
    """A transform with a ``$Key`` and a ``$Value`` form. Nulls are left alone."""

    null_types = NO_FIELDS
    side: Side = "value"
    tombstones = False
    ordered = False

    def apply(self, records: Records) -> Records:
        column = side_of(records, self.side)
        if column.null_count == len(column):
            return records
        try:
            return self.on(records, column)
        except UnfitTypeError as error:
            if column.null_count:  # nulls are accepted, whatever the column's type
                raise ValueError(str(error)) from error
            raise

    def on(self, records: Records, column: pa.Array) -> Records:
        """The records after this step; ``column`` is their key or value."""
        return with_side(records, self.side, self.change(column, typed=records.typed))

    def change(self, column: pa.Array, *, typed: bool) -> pa.Array:
        """The column after this step."""
        raise NotImplementedError


def path_of(options: Mapping[str, str], key: str, transform: str) -> tuple[str, ...]:
    """The steps of a field's name: one step, or with ``field.syntax.version`` = V2 the steps between dots.

    A step in backticks may contain dots. A literal backtick before a dot is written with a backslash.

    :raises ConfigError: a backtick is not closed, or the version is unknown.
    """
    text = options.get(key, "")
    version = options.get("field.syntax.version", "V1").upper()
    if version not in ("V1", "V2"):
        raise ConfigError(f"transform {transform}: field.syntax.version is V1 or V2, not '{version}'")
    if version == "V1" or not text:
        return (text,)
    steps: list[str] = []
    rest: str | None = text
    while rest is not None:
        if rest.startswith("`"):
            step, rest = _quoted(rest, text, transform)
        else:
            step, dot, after = rest.partition(".")
            rest = after if dot else None
        steps.append(step)
    return tuple(steps)


def _quoted(rest: str, text: str, transform: str) -> tuple[str, str | None]:
    step, place = "", 1
    while (end := rest.find("`", place)) >= 0:
        last = end == len(rest) - 1
        if not last and rest[end + 1] != ".":
            step, place = step + rest[place : end + 1], end + 1
        elif rest[end - 1] == "\\" and not last:
            step, place = step + rest[place : end - 1] + "`", end + 1
        elif rest[end - 1] == "\\":
            break
        else:
            return step + rest[place:end], None if last else rest[end + 2 :]
    raise ConfigError(f"transform {transform}: a backtick in the path '{text}' is not closed")
