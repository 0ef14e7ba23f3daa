"""Converts Avro schemas to column types, and makes fastavro report which branch of a union was written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

from calving.converters import building
from calving.converters.avro_types import Schema, is_map_entry, logical_type
from calving.converters.building import DAY_MS, MOST_DIGITS, Reading, decimal_type, time_of_day
from calving.converters.declared_defaults import of_avro
from calving.converters.schema_bounds import Extent, check_symbols
from calving.records.cells import cells_of
from calving.records.semantics import semantic, unscaled_decimal

Named = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of the fields of a union's struct, according to Connect's options."""

    full: bool
    numbered: bool

    def of(self, branch: Schema, index: int) -> str:
        if self.numbered:
            return f"connect_union_field_{index}"
        if not isinstance(branch, dict):
            kind = str(branch)
        elif "name" in branch:
            kind = str(branch["name"])
        else:
            return str(branch["type"])
        return kind if self.full else kind.rpartition(".")[2]


def record(name: str, kind: Schema) -> dict[str, Any]:
    """A record of one field. Its bytes are those of the field alone."""
    return {"type": "record", "name": "calving.one", "fields": [{"name": name, "type": kind}]}


def branch_unions(schema: Schema, naming: Naming) -> None:
    """Turn each union of several types in the schema into a union of records, which tell the branch that was written.

    The bytes of a record with one field are those of the field, so the schema still reads the same values.
    """
    if not isinstance(schema, dict):
        return
    for field in schema.get("fields", ()):
        field["type"] = branched(field["type"], naming)
    for inner in ("items", "values"):
        if inner in schema:
            schema[inner] = branched(schema[inner], naming)


def branched(kind: Schema, naming: Naming) -> Schema:
    if not isinstance(kind, list):
        branch_unions(kind, naming)
        return kind
    real = _real(kind)
    for branch in real:
        branch_unions(branch, naming)
    if len(real) < 2 or (isinstance(real[0], dict) and real[0].get(_BRANCHED) is _MARK):
        return kind
    names = iter(_names(real, naming))
    return [branch if _is_null(branch) else record(next(names), branch) | {_BRANCHED: _MARK} for branch in kind]


_BRANCHED, _MARK = "calving.branch", object()
"""Mark a branch that is already wrapped in a record, as no schema's author can. A schema to which several others refer
is visited more than once.
"""


def _real(union: Sequence[Schema]) -> list[Schema]:
    return [branch for branch in union if not _is_null(branch)]


def _is_null(branch: Schema) -> bool:
    return bool(branch == "null" or (isinstance(branch, dict) and branch["type"] == "null"))


def _names(real: Sequence[Schema], naming: Naming) -> list[str]:
    """The names of the branches.

    :raises ValueError: two branches have one name.
    """
    names = [naming.of(branch, i) for i, branch in enumerate(real)]
    if len(set(names)) < len(names):
        raise ValueError(f"a union has two branches of one name: {', '.join(names)}; {_FULL_NAMES}")
    return names


_FULL_NAMES = "the converter's option enhanced.avro.schema.support = true calls them by their full names"


_OBJECT = 20
"""Cells of an object of Python for a record without bytes."""
_MOST_EMPTY = 8
"""The most parts without bytes, for each part with bytes, of an element of an array or a map."""


class _Parts(NamedTuple):
    """How many parts of a schema's values take no bytes, and how many others there are at least. ``records``: the most
    records in a value that take no bytes. Rust decodes no schema that has some.
    """

    empty: int
    other: int
    records: int


@dataclass(frozen=True, slots=True)
class AvroColumns:
    """The column type of a parsed schema. ``named`` are the types to which it refers. ``extent`` bounds the column."""

    named: Mapping[str, Any]
    naming: Naming
    extent: Extent
    elements: dict[int, int] = dataclasses.field(default_factory=dict)
    """The cells of an element of each array and map of more than one, by the ``id`` of its schema."""

    def reading(self, schema: Schema, above: tuple[str, ...] = ()) -> Reading:
        """The reading of a schema. ``above``: the names of the records around the schema.

        :raises ValueError: no table can hold the schema's values, or the schema has too many columns or levels.
        """
        if isinstance(schema, list):
            return self._union(schema, above)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.reading(kind, above)
        options = schema if isinstance(schema, dict) else {}
        if kind in self.named and "name" not in options:
            return self.reading(self.named[kind], above)
        if "name" in options:
            return self.extent.once(id(schema), lambda: self._of_kind(kind, options, above))
        return self._of_kind(kind, options, above)

    def _of_kind(self, kind: str, options: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
        self.extent.column()
        logical = logical_type(options)
        _check_lengths(kind, options)
        match kind:
            case "record" | "error" | "array" | "map":
                with self.extent.level():
                    return self._nested(kind, options, above)
            case "bytes" | "fixed" if logical == "decimal":
                return _decimal(options)
            case "fixed":
                return _fixed(options["size"], logical)
        simple = _LOGICALS.get((kind, logical)) or _PRIMITIVES.get(kind)
        if simple is None:
            raise ValueError(f"type '{kind}' is not known")
        return replace(simple, type=semantic(simple.type, options.get("connect.name")))

    def _nested(self, kind: str, options: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
        if kind == "array":
            return self._array(options, above)
        if kind == "map":
            key = Reading(pa.string(), nullable=False)
            value = self.reading(options["values"], above)
            self._check_bytes(options["values"], 1)
            self._count(options, options["values"], 1 + cells_of(value.type))
            return building.mapping(key, value, self.extent.cells, nullable=False)
        record = self._struct(options, above)
        return replace(record, type=semantic(record.type, options.get("connect.name", options["name"])))

    def _struct(self, record: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
        name = record["name"]
        if name in above:
            raise ValueError(f"the schema contains itself ({name}): a table cannot")
        self.extent.check(len(record["fields"]))
        fields = [(field["name"], self._field(field, (*above, name))) for field in record["fields"]]
        return building.struct(fields, nullable=False)

    def _field(self, field: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
        reading = self.reading(field["type"], above)
        default = field.get("default")
        return reading if default is None else of_avro(default, reading, field["type"], self.named)

    def _array(self, options: Mapping[str, Any], above: tuple[str, ...]) -> Reading:
        items = options["items"]
        element = self.reading(items, above)
        self._check_bytes(items, 0)
        self._count(options, items, cells_of(element.type))
        entry = self.named.get(items) if isinstance(items, str) else items
        if is_map_entry(entry):
            return self._entries(entry, above)
        return building.array(element, self.extent.cells, nullable=False)

    def _entries(self, entry: Schema, above: tuple[str, ...]) -> Reading:
        """The reading of a map. Connect writes a map whose keys are not text as an array of records of key and
        value.
        """
        key, value = (self.reading(field["type"], above) for field in entry["fields"])
        return building.mapping(
            key, value, self.extent.cells, nullable=False, pairs=lambda found: [(e["key"], e["value"]) for e in found]
        )

    def _count(self, options: Mapping[str, Any], element: Schema, cells: int) -> None:
        """Cells of an element, and of the objects that fastavro makes for its records without bytes."""
        cells += _OBJECT * self._parts(element).records
        if cells > 1:
            self.elements[id(options)] = cells

    def _check_bytes(self, element: Schema, key: int) -> None:
        """:raises ValueError: a short array or map of these elements, with keys of ``key`` bytes, would be many values:
        a damaged length could not be told from a true one, or would take all memory.
        """
        empty, other, _ = self._parts(element)
        if empty > _MOST_EMPTY * (other + key):
            raise ValueError(
                "an array of elements that take no bytes: a damaged length could not be told from a true one"
                if not other
                else f"elements of an array or a map with {empty} parts that take no bytes, and {other} others"
            )

    def _parts(self, schema: Schema) -> _Parts:
        """The parts of a schema's values. A record is looked at once: each may use the one before it twice."""
        if isinstance(schema, str):
            schema = self.named.get(schema, {"type": schema})
        if isinstance(schema, list):  # a value has the parts of one branch, and a byte that says which
            branches = [self._parts(branch) for branch in schema]
            most = max(branches, key=lambda p: p.empty - _MOST_EMPTY * (p.other + 1), default=_Parts(0, 0, 0))
            return _Parts(most.empty, most.other + 1, max((parts.records for parts in branches), default=0))
        if not isinstance(schema["type"], str) or schema["type"] in self.named:
            return self._parts(schema["type"])
        if "fields" in schema:
            return self.extent.once(("parts", id(schema)), lambda: self._of_fields(schema["fields"]))
        is_empty = schema["type"] == "null" or schema.get("size") == 0
        return _Parts(int(is_empty), int(not is_empty), 0)

    def _of_fields(self, fields: Sequence[Mapping[str, Any]]) -> _Parts:
        parts = [self._parts(field["type"]) for field in fields]
        empty, other, records = (sum(counts) for counts in zip(_Parts(0, 0, 0), *parts, strict=True))
        return _Parts(max(1, empty), other, records + (other == 0))

    def _union(self, branches: Sequence[Schema], above: tuple[str, ...]) -> Reading:
        """The reading of a union. Null and one type are this type, nullable. Several types are a struct with a field
        for each, as in Connect.
        """
        real = _real(branches)
        nullable = len(real) < len(branches)
        if len(real) == 1:
            return replace(self.reading(real[0], above), nullable=nullable)
        self.extent.column()
        if not real:
            return Reading(pa.null())
        self.extent.check(len(real))
        with self.extent.level():
            readings = [replace(self.reading(branch, above), nullable=True) for branch in real]
        return building.struct(list(zip(_names(real, self.naming), readings, strict=True)), nullable)


def _check_lengths(kind: str, options: Mapping[str, Any]) -> None:
    """:raises ValueError: values have no length that there is, or symbols are so long that few bytes become many."""
    if kind == "fixed" and (type(options["size"]) is not int or options["size"] < 0):
        raise ValueError(f"a fixed type of {options['size']} bytes")
    if kind == "enum":
        check_symbols(options["symbols"])


def _fixed(size: int, logical: str | None) -> Reading:
    if logical == "uuid" and size == _UUID_SIZE:
        return _of(pa.uuid(), lambda raw: UUID(bytes=raw))
    return _of(pa.binary(size))


_UUID_SIZE = 16


def _decimal(options: Mapping[str, Any]) -> Reading:
    """A decimal's reading. Connect reads one without a precision, too, though Avro's specification demands it."""
    precision, scale = options.get("precision", MOST_DIGITS), options.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or precision < 1 or scale < 0:
        raise ValueError(f"a decimal with the precision {precision!r} and the scale {scale!r}")
    kind = decimal_type(precision, scale)
    return _of(kind, lambda raw: unscaled_decimal(raw, kind.precision, scale))


def _of(kind: pa.DataType, convert: building.Convert | None = None) -> Reading:
    return Reading(kind, convert, nullable=False)


_PRIMITIVES: Mapping[str, Reading] = {
    "null": Reading(pa.null()),
    "boolean": _of(pa.bool_()),
    "int": _of(pa.int32()),
    "long": _of(pa.int64()),
    "float": _of(pa.float32()),
    "double": _of(pa.float64()),
    "bytes": _of(pa.binary()),
    "string": _of(pa.string()),
    "enum": _of(pa.string()),
}
_LOGICALS: Mapping[tuple[str, str | None], Reading] = {
    ("int", "date"): _of(pa.date32()),
    ("int", "time-millis"): _of(pa.time32("ms"), time_of_day(DAY_MS)),
    ("long", "time-micros"): _of(pa.time64("us"), time_of_day(DAY_MS * 1_000)),
    ("long", "timestamp-millis"): _of(pa.timestamp("ms", "UTC")),
    ("long", "timestamp-micros"): _of(pa.timestamp("us", "UTC")),
    ("long", "timestamp-nanos"): _of(pa.timestamp("ns", "UTC")),
    ("long", "local-timestamp-millis"): _of(pa.timestamp("ms")),
    ("long", "local-timestamp-micros"): _of(pa.timestamp("us")),
    ("long", "local-timestamp-nanos"): _of(pa.timestamp("ns")),
    ("string", "uuid"): _of(pa.uuid()),
}
