"""To which branch of a ``oneOf`` or an ``anyOf`` of a JSON Schema a value belongs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from calving.converters.typed_json import Declared, Form, json_text, narrowed, shown
from calving.records.cells import CELL, Cells
from calving.records.inferred import JSON
from calving.records.semantics import plain_type


@dataclass(frozen=True, slots=True)
class Branch:
    """A field of a union's struct. ``constants``: the values that properties of an object have in this branch."""

    name: str
    declared: Declared
    constants: Mapping[str, Sequence[Any]]

    def agrees(self, value: Any) -> bool:
        """Whether the value has the branch's constants, such as the name of its type."""
        if not isinstance(value, dict):
            return True
        return all(value[name] in allowed for name, allowed in self.constants.items() if name in value)


@dataclass(frozen=True, slots=True)
class Union:
    """Reads a value as the branch that it fits best: a dict with the field of the branch.

    That is the first of those that keep most of the value's fields, at any depth; a branch whose constants disagree
    counts only if there is no other. If the value fits none, the branch with which it has the most fields in common
    says why.

    ``cells`` counts what every branch looks at: a record that many branches have to read would take long.

    :raises ValueError: from ``__call__``, if the value fits no branch.
    """

    branches: Sequence[Branch]
    cells: Cells

    def __call__(self, value: Any) -> dict[str, Any]:
        branch = self._chosen(value)
        return {branch.name: branch.declared.read(value)}

    def fit(self, value: Any) -> int | None:
        """As ``fit``, for the branch that fits best."""
        fits = (fit(branch.declared, value, self.cells) for branch in self.branches)
        return max((each for each in fits if each is not None), default=None)

    def _chosen(self, value: Any) -> Branch:
        for branches in ([b for b in self.branches if b.agrees(value)], self.branches):
            fits = [(branch, fit(branch.declared, value, self.cells)) for branch in branches]
            good = [(each, branch) for branch, each in fits if each is not None]
            if good:
                return max(good, key=lambda pair: pair[0])[1]
        common = [(_common_fields(branch.declared.type, value), branch) for branch in self.branches]
        most, nearest = max(common, key=lambda pair: pair[0])
        if not most:
            raise ValueError(f"{shown(value)} is of no branch of its oneOf or anyOf")
        return nearest


def fit(declared: Declared, value: Any, cells: Cells) -> int | None:
    """How many fields of objects a column of this type keeps of a value, at any depth; None if the value is not of the
    type.

    :raises TooManyCellsError: it looks at more than ``cells`` has.
    """
    cells.take(_weight(value))
    form, kind = declared.form, plain_type(declared.type)
    if value is None:
        return 0 if declared.nullable or declared.replaced else None
    if isinstance(form.read, Union):
        return form.read.fit(value)
    if kind == JSON:
        return None if form.read is object_text and not isinstance(value, dict) else _fields(value, cells)
    if isinstance(value, dict | list):
        return _fit_of_parts(kind, form.parts, value, cells)
    return _fit_of_one(form, kind, value)


def _fit_of_one(form: Form, kind: pa.DataType, value: Any) -> int | None:
    """The same of a value without parts."""
    if not any(fits(kind) for fits in _FITTING.get(type(narrowed(value)), ())):
        return None
    with suppress(ValueError, ArithmeticError):
        form.read(value)
        return _AS_TEXT if isinstance(value, str) and pa.types.is_floating(kind) else 0
    return None


def _weight(value: Any) -> int:
    """Cells of a look at a value itself: it takes the time in which so many are made."""
    if isinstance(value, str):
        return _LOOK + len(value) // CELL
    return _LOOK + len(value) if isinstance(value, dict | list) else _LOOK


_LOOK = 2
_AS_TEXT = -1
"""Less than what a branch of text keeps: to JSON Schema ``"NaN"`` is a text, a number only if no branch takes texts."""


def _fit_of_parts(
    kind: pa.DataType, parts: Sequence[Declared], value: dict[str, Any] | list[Any], cells: Cells
) -> int | None:
    if pa.types.is_map(kind):
        return _fields(value, cells)
    if isinstance(value, list):
        return _total(fit(parts[0], item, cells) for item in value) if pa.types.is_list(kind) else None
    if not isinstance(kind, pa.StructType):
        return None
    names = [field.name for field in kind]
    inner = _total(fit(part, value.get(name), cells) for name, part in zip(names, parts, strict=True))
    return None if inner is None else inner + sum(name in value for name in names)


def _total(fits: Iterable[int | None]) -> int | None:
    total = 0
    for each in fits:
        if each is None:
            return None
        total += each
    return total


def _fields(value: Any, cells: Cells) -> int:
    """The fields of all objects in a value."""
    if not isinstance(value, dict | list):
        return 0
    cells.take(len(value))
    if isinstance(value, dict):
        return len(value) + sum(_fields(item, cells) for item in value.values())
    return sum(_fields(item, cells) for item in value)


def count_values(value: Any, count: Callable[[int], None]) -> None:
    """Count the values within a value, at any depth, until ``count`` raises an error."""
    if isinstance(value, dict | list):
        count(len(value))
        for part in value.values() if isinstance(value, dict) else value:
            count_values(part, count)


def object_text(value: Any) -> str:
    """An object as JSON text.

    :raises ValueError: it is not an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not an object")
    return json_text(value)


_FITTING: Mapping[type, Sequence[Callable[[pa.DataType], bool]]] = {
    bool: (pa.types.is_boolean,),
    int: (pa.types.is_integer, pa.types.is_temporal, pa.types.is_floating, pa.types.is_decimal),
    Decimal: (pa.types.is_floating, pa.types.is_decimal),
    str: (pa.types.is_string, pa.types.is_binary, pa.types.is_decimal, pa.types.is_floating),
}
"""The types of columns for the simple values of ``json_value``."""


def _common_fields(kind: pa.DataType, value: Any) -> int:
    kind = plain_type(kind)
    if not isinstance(kind, pa.StructType) or not isinstance(value, dict):
        return 0
    return sum(1 + _common_fields(field.type, value[field.name]) for field in kind if field.name in value)
