"""The schema changes that a record may cause if it does not fit its table, and those of many records merged."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any
from unicodedata import category

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.types import NestedField, StructType

from calving.casting.type_counts import decide, join, seen_of
from calving.model.record_path import Evolution, Limits
from calving.model.tables import RESERVED_COLUMNS, RefusedChange, SchemaChange
from calving.records.fields import awaits_type
from calving.records.foreign import takes_values
from calving.records.inferred import InferredType, attributes, folded, merge


class SchemaChanges(dict[tuple[str, str, tuple[str, ...]], SchemaChange]):
    """One change for each column and kind of change. Types merge to the narrowest type that holds all, and counts add
    up.
    """

    def __init__(self, changes: Iterable[SchemaChange] = (), *, fold: bool = False) -> None:
        """``fold``: names that differ only by case are one name."""
        super().__init__()
        self._fold = fold
        for change in changes:
            self.add(change)

    def add(self, change: SchemaChange) -> None:
        path = tuple(name.lower() for name in change.path) if self._fold else change.path
        key = (change.table, change.kind, path)
        known = self.get(key)
        kind = change.type if known is None else merge(known.type, change.type)
        spelt = change.path if known is None else min(change.path, known.path)
        seen = None if known is None else known.seen
        if change.seen is not None:
            seen = {"kinds": {}} if seen is None else seen
            join(seen, change.seen, fold=self._fold)
        kind = folded(kind) if self._fold else kind
        keys = tuple(sorted({*change.keys, *(() if known is None else known.keys)}))
        defaults = tuple(sorted({*change.defaults, *(() if known is None else known.defaults)}))
        self[key] = SchemaChange(change.table, change.kind, spelt, kind, seen, keys, defaults=defaults)

    def copy(self) -> SchemaChanges:
        """The same changes, to which others can be added."""
        return SchemaChanges(self.values(), fold=self._fold)


Path = tuple[str, ...]
_LONGEST_NAME, _SHOWN = 255, 40
"""The bytes that a column's name may have, and the characters of a name in an error text."""
_UNWRITTEN = ("Cc", "Cs")
"""The categories of control characters, and of halves of UTF-16 characters, which UTF-8 lacks."""


class UnfitError(ValueError):
    """The value cannot become the column's type. ``path`` leads to the column."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f"field '{'.'.join(path)}': {reason}" if path else reason)


def names_in_use(schema: Schema) -> list[str]:
    """The full names of the columns, without those that have no type yet: a column that is added takes their place."""
    return [name for name, number in index_by_name(schema).items() if not awaits_type(schema.find_field(number))]


class SchemaEvolution:
    """The schema changes that one table allows; any other makes a record bad."""

    def __init__(
        self,
        table: str,
        schema: Schema,
        evolution: Evolution,
        limits: Limits,
        partition_names: Iterable[str] = (),
        refused: Iterable[RefusedChange] = (),
        *,
        adds: bool = True,
    ) -> None:
        """``partition_names``: the names of the table's partition fields. ``refused``: what the catalog refuses.
        ``adds``: whether values bring columns, if the table evolves.
        """
        self._table, self._limits, self._columns = table, limits, len(schema.column_names)
        self.evolves, self._adds = evolution.evolve, adds
        self._fold = evolution.case_insensitive
        self._names = {self._key(name) for name in names_in_use(schema)}
        self._partitions = {*map(self._key, partition_names)}
        self._refused = {(each.kind, self._key(".".join(each.path))): each.reason for each in refused}
        self._identifying = _with_parents(schema.as_struct(), set(schema.identifier_field_ids))

    @property
    def adds(self) -> bool:
        """Whether values bring columns."""
        return self.evolves and self._adds

    def fixed(self) -> SchemaEvolution:
        """The same table, which allows no change."""
        schema_evolution = copy(self)
        schema_evolution.evolves = False
        return schema_evolution

    def add(self, path: Path, kind: InferredType, count: int | None = None, value: object = None) -> SchemaChange:
        """Add a column for a field. ``count``: the number of schemaless values that need it; ``value``: an example.

        :raises UnfitError: the table cannot have this column.
        """
        self._check_refused("add", path)
        kind = folded(kind) if self._fold else kind
        check_names([path[-1], *names_of(kind)], path)
        check_reserved([self._key(path[0])] if len(path) == 1 else [])
        if len(path) + depth(kind) > self._limits.nesting:
            most = self._limits.nesting
            raise UnfitError(path, f"it would be nested deeper than iceberg.limits.nesting = {most} levels")
        columns = 1 + len(names_of(kind))
        if columns > self._limits.new_columns:
            most = self._limits.new_columns
            raise UnfitError(path, f"it would add {columns} columns, more than iceberg.limits.new-columns = {most}")
        if self._columns + columns > self._limits.columns:
            raise UnfitError(
                path,
                f"the table has {self._columns} columns, and this one would exceed iceberg.limits.columns ="
                f" {self._limits.columns}: raise it, or declare one map or text column for fields with many names",
            )
        full = [self._key(".".join(path)), *(self._key(".".join((*path, *inner))) for inner in paths_of(kind))]
        check_partition_names(full, self._partitions, path)
        clash = next((name for n, name in enumerate(full) if name in self._names or name in full[:n]), None)
        if clash is not None:
            raise UnfitError(path, f"its column cannot be added: the table would have '{clash}' twice")
        if count is None:
            return SchemaChange(self._table, "add", path, kind)
        return SchemaChange(self._table, "add", path, seen=seen_of(kind, count, value))

    def optional(self, column: NestedField, path: Path) -> SchemaChange:
        """Make the column optional.

        :raises UnfitError: the column must stay required.
        """
        if not takes_values(column.field_type):
            raise UnfitError(path, f"the column is required, but columns of type {column.field_type} cannot be written")
        if column.write_default is not None:
            raise UnfitError(
                path,
                "the column is required, but the record has null for it: the column's default value stands only where a"
                " record has no such field",
            )
        if not self.evolves or column.field_id in self._identifying:
            raise UnfitError(path, "the column is required, but the record has no value for it")
        self._check_refused("optional", path)
        return SchemaChange(self._table, "optional", path)

    def widen(self, path: Path, kind: str) -> SchemaChange:
        """Widen the column to this type.

        :raises UnfitError: the catalog refuses it.
        """
        self._check_refused("widen", path)
        return SchemaChange(self._table, "widen", path, kind)

    def _check_refused(self, kind: str, path: Path) -> None:
        reason = self._refused.get((kind, self._key(".".join(path)))) if self._refused else None
        if reason is not None:
            raise UnfitError(path, reason)

    def _key(self, name: str) -> str:
        return name.lower() if self._fold else name


def _with_parents(struct: StructType, wanted: set[int]) -> set[int]:
    """The ids of these fields, and of the structs that contain them."""
    ids: set[int] = set()
    for field in struct.fields:
        inner = _with_parents(field.field_type, wanted) if isinstance(field.field_type, StructType) else set()
        ids |= inner
        if inner or field.field_id in wanted:
            ids.add(field.field_id)
    return ids


def check_names(names: Sequence[str], path: Path) -> None:
    """:raises UnfitError: a column cannot have one of these names."""
    if not all(names):
        raise UnfitError(path, "a column needs a name")
    for name in names:
        if not name.isascii() or len(name) > _LONGEST_NAME or not name.isprintable():
            _check_name(name)


def _check_name(name: str) -> None:
    if len(name) > _LONGEST_NAME or len(name.encode(errors="surrogatepass")) > _LONGEST_NAME:
        reason = f"it is longer than {_LONGEST_NAME} bytes"
    elif any(category(sign) in _UNWRITTEN for sign in name):
        reason = "it has control characters, or half of a character"
    else:
        return
    raise UnfitError((), f"no column can have the name {name[:_SHOWN]!r}: {reason}; rename or drop the field")


def check_reserved(names: Iterable[str]) -> None:
    """Check the names of top-level columns.

    :raises UnfitError: Iceberg reserves one of them.
    """
    if reserved := sorted(RESERVED_COLUMNS.intersection(names)):
        raise UnfitError(
            (reserved[0],),
            "its column cannot be added: Iceberg reserves this name, and Spark could not read the table; rename or drop"
            " the field, such as with the transform ReplaceField",
        )


def check_partition_names(columns: Iterable[str], partition_names: Collection[str], path: Path = ()) -> None:
    """:raises UnfitError: a column has the name of a partition field. ``columns`` are full names."""
    clash = next((name for name in columns if name in partition_names), None)
    if clash is not None:
        raise UnfitError(path, f"the table cannot have a column '{clash}': one of its partition fields has this name")


def check_new(kind: InferredType, limits: Limits, fold: bool, partition_names: Iterable[str] = ()) -> None:
    """Check that a table can be created from a record of this kind.

    ``partition_names``: the names that its columns cannot have, because partition fields will have them.

    :raises UnfitError: it cannot be created.
    """
    inner = list(paths_of(kind))
    for path in inner:
        check_names(path[-1:], path)
    check_reserved(path[0].lower() if fold else path[0] for path in inner if len(path) == 1)
    if depth(kind) - 1 > limits.nesting:
        raise UnfitError((), f"it is nested deeper than iceberg.limits.nesting = {limits.nesting} levels")
    if len(inner) > limits.columns:
        raise UnfitError((), f"its {len(inner)} columns are more than iceberg.limits.columns = {limits.columns}")
    full = [".".join(path) for path in inner]
    if fold:
        full = [".".join(path).lower() for path in paths_of(folded(kind))]
    check_partition_names(full, {name.lower() if fold else name for name in partition_names})
    full.sort()
    twice = next((b for a, b in pairwise(full) if a == b), None)
    if twice is not None:
        raise UnfitError((), f"the table would have '{twice}' twice")


def distinct(kind: InferredType, path: Path, taken: set[str], key: Callable[[str], str]) -> InferredType | None:
    """The kind at this path, without fields whose full name is taken by another column; None if nothing is left.

    The result does not depend on the order of the fields. ``taken`` holds the full names in use, by ``key``. The names
    of the remaining columns are added to ``taken``.
    """
    if isinstance(kind, str):
        return kind
    inner = _inner(kind)
    types: dict[str, InferredType] = {}
    for name in sorted(inner, key=key):
        full = key(".".join((*path, name)))
        if full in taken:
            continue
        taken.add(full)
        part = distinct(inner[name], (*path, name), taken, key)
        if part is None:
            taken.discard(full)
        else:
            types[name] = part
    if len(types) < (1 if "struct" in kind else len(inner)):
        return None
    if "struct" in kind:
        return {"struct": {name: types[name] for name in inner if name in types}, **attributes(kind, types)}
    parts = [*types.values()]
    return kind | ({"list": parts[0]} if "list" in kind else {"map": parts})


def fitting(
    kind: InferredType, room: int, rank: Callable[[Path], Any] = lambda path: path, path: Path = ()
) -> InferredType | None:
    """The type of a column, without the fields for which there is no room; None if nothing is left of it.

    ``room``: the most columns, the column itself included. The fields of the lowest ``rank``, which takes their paths,
    stay.
    """
    if size_of(kind) <= room:
        return kind
    match kind:
        case {"struct": fields}:
            left, types = room - 1, dict[str, InferredType]()
            for name in sorted(fields, key=lambda name: rank((*path, name))):
                if (part := fitting(fields[name], left, rank, (*path, name))) is not None:
                    types[name] = part
                    left -= size_of(part)
            cut = {"struct": {name: types[name] for name in fields if name in types}}
            return {**cut, **attributes(kind, types)} if types else None
        case {"list": element}:
            part = fitting(element, room - 1, rank, (*path, "element"))
            return None if part is None else {**kind, "list": part}
        case {"map": [key, item]}:  # Iceberg does not let the keys of a map change
            part = fitting(item, room - 1 - size_of(key), rank, (*path, "value"))
            return None if part is None else {**kind, "map": [key, part]}
    return None


def size_of(kind: InferredType) -> int:
    """The columns of a type: one for itself, and those inside."""
    return 1 + sum(1 for _ in paths_of(kind))


def columns_added(changes: Iterable[SchemaChange], *, fold: bool = False) -> int:
    """The number of columns that these changes add together. ``fold``: as ``SchemaChanges`` takes it."""
    merged = SchemaChanges((change for change in changes if change.kind == "add"), fold=fold)
    return sum(
        size_of(change.type if change.seen is None else decide(change.seen, 0).kind) for change in merged.values()
    )


def depth(kind: InferredType) -> int:
    """The number of nested levels of structs, lists and maps in a kind."""
    return 0 if isinstance(kind, str) else 1 + max(map(depth, _inner(kind).values()), default=0)


def names_of(kind: InferredType) -> list[str]:
    """The names of all fields inside a kind."""
    return [path[-1] for path in paths_of(kind)]


def paths_of(kind: InferredType) -> Iterator[Path]:
    """Paths to all columns inside a kind, as Iceberg names them."""
    if not isinstance(kind, str):
        for name, inner in _inner(kind).items():
            yield (name,)
            for path in paths_of(inner):
                yield (name, *path)


def _inner(kind: Mapping[str, object]) -> Mapping[str, InferredType]:
    match kind:
        case {"struct": fields}:
            return fields  # type: ignore[return-value]
        case {"list": element}:
            return {"element": element}
        case {"map": [key, value]}:
            return {"key": key, "value": value}
    return {}
