"""Helpers of transforms: keys and values as named fields, values one by one, options, and the ``$Key`` and ``$Value``
forms that many transforms have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from calving.errors import ConfigError
from calving.records.arrays import children_of, entries, holds, items_of, offsets_of, struct
from calving.records.semantics import plain
from calving.records.values import Records, objects
from calving.transforms.interface import NO_FIELDS, RefusedError, Transform, UnfitTypeError, by_name
from calving.transforms.text import kind_text
from calving.wording import meant

Side = Literal["key", "value"]


class Fields:
    """The fields of a struct column, by name. Where the column is null, every field is null."""

    def __init__(self, column: pa.Array) -> None:
        """:raises UnfitTypeError: the column holds no objects."""
        column = plain(column)
        if not isinstance(column, pa.StructArray):
            raise UnfitTypeError(f"it must be an object, not {kind_text(column.type)}")
        self._column, self.type = column, column.type
        children = children_of(column)
        self._fields = {f.name: (child, f) for f, child in zip(column.type, children, strict=True)}

    def __contains__(self, name: str) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._fields))

    def __len__(self) -> int:
        return len(self._column)

    def get(self, name: str) -> pa.Array | None:
        field = self._fields.get(name)
        return None if field is None else field[0]

    def require(self, name: str) -> pa.Array:
        """The field of this name.

        :raises UnfitTypeError: no record of this type has the field.
        """
        column = self.get(name)
        if column is None:
            raise UnfitTypeError(f"there is no field '{name}'")
        return column

    def inside(self, name: str) -> Fields:
        """The fields of the object in this field.

        :raises UnfitTypeError: no record of this type has an object there.
        """
        column = plain(self.require(name))
        if not isinstance(column, pa.StructArray):
            raise UnfitTypeError(f"the field '{name}' must be an object, not {kind_text(column.type)}")
        return Fields(column)

    def put(self, name: str, column: pa.Array, *, nullable: bool = True) -> None:
        """Replace a field in its place, or append it."""
        self._fields[name] = (column, pa.field(name, column.type, nullable))

    def add(self, name: str, column: pa.Array, typed: bool, *, nullable: bool = True) -> None:
        """Append a field. Without a schema it may replace a field.

        :raises UnfitTypeError: the schema has the field already.
        """
        if typed and name in self._fields:
            raise UnfitTypeError(f"the schema has a field '{name}' already")
        self.put(name, column, nullable=nullable)

    def drop(self, name: str) -> None:
        self._fields.pop(name, None)

    def rename(self, names: Mapping[str, str]) -> None:
        """Rename fields.

        :raises UnfitTypeError: two fields would have one name.
        """
        renamed = {names.get(n, n): column for n, column in self._fields.items()}
        if len(renamed) < len(self._fields):
            taken = [new for old, new in names.items() if old in self._fields and old != new]
            raise UnfitTypeError(f"after renaming, two fields have one name: {', '.join(taken)}")
        self._fields = renamed

    def keep(self, names: Sequence[str]) -> None:
        self._fields = {n: column for n, column in self._fields.items() if n in names}

    def column(self) -> pa.Array:
        """The fields as a struct column."""
        columns = [column for column, _ in self._fields.values()]
        kind = pa.struct([field.with_name(name) for name, (_, field) in self._fields.items()])
        return struct(columns, kind, self._column.is_null() if self._column.null_count else None, len(self._column))


def struct_of(
    fields: Mapping[str, pa.Array], mask: pa.Array | None, count: int, required: frozenset[str] | set[str] = frozenset()
) -> pa.Array:
    """A struct column of ``count`` rows, null where ``mask`` is true."""
    described = [pa.field(n, c.type, nullable=n not in required) for n, c in fields.items()]
    return struct(list(fields.values()), pa.struct(described), mask, count)


def side_of(records: Records, side: Side) -> pa.Array:
    return records.value if side == "value" else records.key


def with_side(records: Records, side: Side, column: pa.Array) -> Records:
    return replace(records, value=column) if side == "value" else replace(records, key=column)


def each(column: pa.Array, change: Callable[[Any], Any], what: str = "") -> list[Any]:
    """Every value, changed. Nulls stay null.

    :raises RefusedError: some values cannot be changed; it holds their places.
    """
    made: list[Any] = []
    reasons: dict[int, str] = {}
    for place, value in enumerate(objects(column)):
        try:
            made.append(None if value is None else change(value))
        except (ValueError, ArithmeticError) as error:
            reasons[place] = f"{what}{error}"
    if reasons:
        raise RefusedError(reasons)
    return made


def only_nulls(column: pa.Array, reason: str) -> pa.Array:
    """The column, if it has only nulls.

    :raises RefusedError: some values are not null; it holds their places.
    """
    refused = pc.indices_nonzero(column.is_valid()).to_pylist()
    if refused:
        raise RefusedError(dict.fromkeys(refused, reason))
    return column


def names(options: Mapping[str, str], key: str) -> list[str]:
    """A list option."""
    return [name.strip() for name in options.get(key, "").split(",") if name.strip()]


def _named(transform: str) -> str:
    return transform if transform.startswith("predicate ") else f"transform {transform}"


def required(options: Mapping[str, str], key: str, transform: str) -> str:
    """The value of an option.

    :raises ConfigError: the option is missing.
    """
    option = options.get(key)
    if not option:
        raise ConfigError(f"{_named(transform)}: the option '{key}' is missing: set it")
    return option


def flag(options: Mapping[str, str], key: str, transform: str) -> bool:
    """A boolean option, false by default.

    :raises ConfigError: the value is neither true nor false.
    """
    text = options.get(key, "false").lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{_named(transform)}: {key} is true or false, not '{text}'")
    return text == "true"


_NO_EFFECT = "replace.null.with.default"
"""A boolean option of many transforms of Connect. It has no effect here, because the converter inserts defaults."""


def check_options(options: Mapping[str, str], known: Sequence[str], transform: str) -> None:
    """Check the names of options.

    :raises ConfigError: an option does not belong to the transform.
    """
    for name in options:
        if name not in known:
            hint = meant(name, known, 0.6) or f"; there are: {', '.join(known) or 'none'}"
            raise ConfigError(f"{_named(transform)}: unknown option '{name}'{hint}")
    flag(options, _NO_EFFECT, transform)


def by_type(kinds: Sequence[pa.DataType]) -> list[tuple[pa.DataType, list[int]]]:
    """The places of each type, in the order in which the types first occur."""
    places: dict[pa.DataType, list[int]] = {}
    for place, kind in enumerate(kinds):
        places.setdefault(kind, []).append(place)
    return list(places.items())


class Sided(Transform):
    """A transform with a ``$Key`` and a ``$Value`` form. Nulls are left alone."""

    null_types = NO_FIELDS
    side: Side = "value"
    tombstones = False
    ordered = False
    former = by_name

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


def leaves(array: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """The arrays within an array that have no arrays within them. With each of them, the rows of its values."""
    return _leaves(array, pa.array(range(len(array)), pa.int32()))


def _leaves(array: pa.Array, rows: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    if isinstance(array, pa.ExtensionArray):
        yield from _leaves(array.storage, rows)
    elif isinstance(array, pa.StructArray):
        for child in children_of(array):
            yield from _leaves(child, rows)
    elif isinstance(array, pa.ListArray | pa.MapArray):
        parts = entries(array) if isinstance(array, pa.MapArray) else (items_of(array),)
        parents = pc.list_parent_indices(pa.ListArray.from_arrays(offsets_of(array), pa.nulls(len(parts[0]))))
        for part in parts:
            yield from _leaves(part, rows.take(parents))
    else:
        yield array, rows


def rows_without_utf8(array: pa.Array) -> set[int]:
    """The rows with a text, at any depth, that is no UTF-8. Nothing that calving has decoded has such rows, but what
    other code makes may have them: Arrow does not look.
    """
    if not holds(array.type, _is_text):
        return set()
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return {row for leaf, rows in leaves(array) if _is_text(leaf.type) for row in _unreadable(leaf, rows)}
    return set()


def _unreadable(texts: pa.Array, rows: pa.Array) -> Iterator[int]:
    for place, text in enumerate(texts.cast(pa.binary()).to_pylist()):
        try:
            str(text or b"", "utf-8")
        except UnicodeDecodeError:
            yield rows[place].as_py()


def _is_text(kind: pa.DataType) -> bool:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    return pa.types.is_string(storage) or pa.types.is_large_string(storage)
