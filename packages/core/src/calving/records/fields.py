"""Iceberg schemas seen from a record: look-up of fields, Arrow types, and the parts of values that are needed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table.name_mapping import MappedField, parse_mapping_from_json
from pyiceberg.types import IcebergType, NestedField, PrimitiveType, StructType, UnknownType

from calving.caches import cached_by_length
from calving.model.tables import Moments, Unit
from calving.records.arrays import children_of, entries, items_of
from calving.records.defaults import Default, defaults_of, with_default
from calving.records.foreign import VARIANT, ForeignType, geo_type, schema_of_json, without_foreign

NAME_MAPPING = "schema.name-mapping.default"
_CACHED = 16_000_000
"""The characters of schemas that are kept parsed."""


@cached_by_length(_CACHED)
def table_schema(text: str) -> Schema:
    """The schema of a JSON text; each text is parsed once per process."""
    return schema_of_json(text)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of a table's rows, field ids in the metadata. Columns that take no values have the type null."""
    known = Schema(*without_foreign(schema.as_struct()).fields)
    return pa.schema([_small_field(field) for field in schema_to_pyarrow(known, include_field_ids=True)])


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The Arrow type of a column."""
    return arrow_schema(Schema(NestedField(1, "x", kind, required=False))).field(0).type


def _small_field(field: pa.Field) -> pa.Field:
    return field.with_type(small(field.type))


def small(kind: pa.DataType) -> pa.DataType:
    """The type with 32-bit offsets instead of 64-bit offsets. pyiceberg's own conversion drops the field ids of list
    elements.
    """
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(kind.field(i)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    return kind


def leaves(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """The primitive columns inside these columns, in the order of the schema. A field is null where its struct is
    null.
    """
    inside: list[pa.Array] = []
    for column in columns:
        if isinstance(column, pa.StructArray):
            inside += leaves(children_of(column))
        elif isinstance(column, pa.MapArray):
            inside += leaves(entries(column))
        elif isinstance(column, pa.ListArray):
            inside += leaves([items_of(column)])
        else:
            inside.append(column)
    return inside


def name_mapping(properties: Mapping[str, str]) -> dict[int, tuple[str, ...]]:
    """The names in the table's name mapping, by column id; empty without a mapping."""
    text = properties.get(NAME_MAPPING)
    names: dict[int, tuple[str, ...]] = {}
    pending: list[MappedField] = list(parse_mapping_from_json(text).root) if text else []
    while pending:
        mapped = pending.pop()
        pending += mapped.fields
        if mapped.field_id is not None and mapped.names:
            names[mapped.field_id] = tuple(mapped.names)
    return names


class Lookup:
    """Finds the column of a record's field. A column has the names that the table's name mapping gives it, otherwise
    its own name. Names are compared exactly or ignoring case.

    Case counts, whatever ``case_insensitive`` says, where a mapping gives different columns names that differ only by
    case: nothing else tells these columns apart.
    """

    def __init__(
        self,
        struct: StructType,
        case_insensitive: bool,
        names: Mapping[int, tuple[str, ...]],
        *,
        promotes: bool = False,
    ) -> None:
        """``promotes``: no field leads to a column of the type unknown, so that a value for it asks for the column."""
        named = [(name, f) for f in struct.fields for name in names.get(f.field_id) or (f.name,)]
        self._fold = case_insensitive and not (names and _same_but_for_case(named))
        self.is_exact = not case_insensitive and not names
        """Whether each column is found by its own name and no other."""
        waiting = [(name, f) for name, f in named if promotes and awaits_type(f)]
        self._waiting = {self.key(name): f.name for name, f in waiting}
        self._fields: dict[str, NestedField] = {self.key(name): f for name, f in named if (name, f) not in waiting}

    @property
    def folds(self) -> bool:
        """Whether names are compared ignoring case."""
        return self._fold

    def names_of(self, column: NestedField) -> tuple[str, ...]:
        """The names that lead to a column, in lower case if case is ignored."""
        return tuple(name for name, field_column in self._fields.items() if field_column.field_id == column.field_id)

    def key(self, name: str) -> str:
        """The form of a name in which names are compared."""
        return name.lower() if self._fold else name

    def find(self, name: str) -> NestedField | None:
        return self._fields.get(self.key(name))

    def asks_for(self, name: str) -> str:
        """The name of the column that a field without one asks for: of one that has no type yet, or the field's own."""
        return self._waiting.get(self.key(name), name)


def awaits_type(column: NestedField) -> bool:
    """Whether the column has no type yet: it becomes that of the first value."""
    return isinstance(column.field_type, UnknownType)


def is_always_null(column: NestedField) -> bool:
    """Whether no file has the column: it has no type yet, or is a struct that has only such fields."""
    if isinstance(column.field_type, StructType):
        return column.optional and bool(column.field_type.fields) and all(map(is_always_null, column.field_type.fields))
    return awaits_type(column)


def _same_but_for_case(named: Iterable[tuple[str, NestedField]]) -> bool:
    """Whether the names of two columns differ only by case."""
    owners: dict[str, int] = {}
    return any(owners.setdefault(name.lower(), field.field_id) != field.field_id for name, field in named)


class Counting(NamedTuple):
    """How a column's whole numbers count moments, and whether it takes moments outside the years 1 to 9999."""

    unit: Unit = "ms"
    any_year: bool = False


MILLIS = Counting()


class Target:
    """A table's columns, how the fields of values find them by name, and how numbers become their moments."""

    def __init__(
        self,
        columns: StructType,
        names: Mapping[int, tuple[str, ...]],
        *,
        case_insensitive: bool,
        moments: Moments | None = None,
        compared: Set[int] = frozenset(),
        fills: bool = True,
        keeps: bool = False,
        promotes: bool = False,
    ) -> None:
        """``names``: the table's name mapping, empty without one. ``compared``: the ids of the columns in which no
        value may lose digits. ``fills``: whether a field that a value lacks has its column's default. ``keeps``:
        whether rows keep the stored values of columns for which a value has no field. ``promotes``: as ``Lookup``
        takes it.
        """
        self.compared, self._fills, self._keeps, self._promotes = compared, fills, keeps, promotes
        self.columns, self._names, self._case_insensitive = columns, names, case_insensitive
        self._lookups: dict[int, Lookup] = {}
        moments = moments or Moments()
        self._counting = Counting(any_year=moments.any_year)
        self._countings = self._declared(moments)

    def _declared(self, moments: Moments) -> dict[int, Counting]:
        """The countings of columns whose unit is declared, by the column's id."""
        if not moments.units:
            return {}
        key = str.lower if self._case_insensitive else str
        ids = {key(name): number for name, number in index_by_name(Schema(*self.columns.fields)).items()}
        return {
            ids[key(name)]: Counting(unit, moments.any_year) for name, unit in moments.units.items() if key(name) in ids
        }

    @cached_property
    def defaults(self) -> Mapping[int, Default]:
        """The default values of columns, by id: of a column whose field a record lacks."""
        return defaults_of(self.columns, arrow_type) if self._fills else {}

    @cached_property
    def presence(self) -> frozenset[str]:
        """The names in lower case that lead to columns for which no field is not the same as null."""
        columns = [*with_default(self.columns), *(_within_structs(self.columns) if self._keeps else ())]
        return frozenset(name.lower() for c in columns for name in self._names.get(c.field_id) or (c.name,))

    def is_tracked(self, column: NestedField, *, within_list: bool) -> bool:
        """Whether no field for this column is not the same as null. ``within_list``: or within a map."""
        return column.write_default is not None or (self._keeps and not within_list)

    def counting(self, column_id: int) -> Counting:
        """How the numbers of the column with this id count."""
        return self._countings.get(column_id, self._counting)

    @property
    def maps_names(self) -> bool:
        """Whether the table has a name mapping."""
        return bool(self._names)

    @property
    def joins_names(self) -> bool:
        """Whether the table's name mapping gives a column several names."""
        return any(len(names) > 1 for names in self._names.values())

    def lookup(self, struct: StructType) -> Lookup:
        """The lookup for the table's columns, or for the fields of a struct within them."""
        known = self._lookups.get(id(struct))
        if known is None:
            known = self._lookups[id(struct)] = Lookup(
                struct, self._case_insensitive, self._names, promotes=self._promotes
            )
        return known

    def hides_order(self, kind: pa.DataType) -> bool:
        """Whether the order of fields cannot be seen in the table: all objects in values of this type go to structs, or
        to no column.
        """
        return self._takes_apart(kind, self.columns)

    def _takes_apart(self, kind: pa.DataType, column: IcebergType) -> bool:
        if not pa.types.is_nested(kind):
            return True
        if not (pa.types.is_struct(kind) and isinstance(column, StructType)):
            return False
        pairs = ((field.type, self.lookup(column).find(field.name)) for field in kind)
        return all(to is None or self._takes_apart(inner, to.field_type) for inner, to in pairs)


def _within_structs(columns: StructType) -> Iterator[NestedField]:
    """The columns, and those in structs among them."""
    for column in columns.fields:
        yield column
        if isinstance(column.field_type, StructType):
            yield from _within_structs(column.field_type)


@dataclass(frozen=True, slots=True)
class Projection:
    """The needed parts of schemaless values, so that a converter decodes only these.

    ``targets``: the tables to which the values go as they are. ``unknown``: the treatment of fields without a column.
    They are ignored (``ignore``), ignored after a look-up by folded or mapped names (``look``), or added as columns
    (``add``). ``route``: the text of this dotted field is needed, too; without ``targets`` only this text is needed.
    With neither ``targets`` nor ``route``, values are kept without loss: fractions with every digit if ``decimals``,
    and the order of fields unless ``hides_order`` is true for their type. ``presence``: the names in lower case of the
    fields whose absence is not the same as null.
    """

    targets: tuple[Target, ...] = ()
    unknown: Literal["ignore", "look", "add"] = "ignore"
    route: str | None = None
    decimals: bool = True
    hides_order: Callable[[pa.DataType], bool] = lambda kind: False
    presence: Container[str] = frozenset()


def primitive(kind: str) -> PrimitiveType:
    """The type of this name, such as ``decimal(12, 2)``."""
    named = ForeignType(kind)
    if named == VARIANT or geo_type(named) is not None:
        return named
    return NestedField.model_validate({"id": 1, "name": "x", "required": False, "type": kind}).field_type  # type: ignore[return-value]
