"""Columns as users declare them: ``ts timestamptz, amount decimal(12, 2), tags list<string>``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from calving.model.tables import Unit
from calving.records.foreign import DEFAULT_CRS, EDGES
from calving.records.inferred import InferredType, find
from calving.records.semantics import PER_SECOND

_WORD = re.compile(r"\s*([^\s<>,():]+)")
_SIZES = re.compile(r"\(\s*([0-9]+)\s*,\s*([0-9]+)\s*\)")
_PLACE = re.compile(r"\(\s*([^\s(),:]+:[^\s(),]+)\s*(?:,\s*(\w+)\s*)?\)")
"""The coordinate reference system of a geometry or geography, and the algorithm of the latter's edges."""
_LENGTH = re.compile(r"\[([0-9]+)\]")
_FROM = re.compile(r"from\b", re.IGNORECASE)
UNKNOWN = "unknown"
"""The type of a column that gets that of its first value."""
_SIMPLE = {
    **{
        name: name
        for name in (
            *("boolean", "int", "long", "float", "double", "date", "time", "string", "uuid", "binary"),
            *("timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns", "variant", UNKNOWN),
        )
    },
    "text": "string",
    "integer": "int",
    "bigint": "long",
}
_HELP = (
    "a type is boolean, int, long, float, double, decimal(p, s), date, time, timestamp, timestamptz, timestamp_ns,"
    " timestamptz_ns, string, uuid, binary, fixed[n], variant, geometry, geometry(crs), geography, geography(crs,"
    " edges), unknown, list<type>, map<type, type> or struct<name: type, ...>"
)


class Declaration(NamedTuple):
    """A column's type, and the units in which whole numbers count its moments: by the dotted names of the column and of
    what is inside it.
    """

    type: InferredType
    units: Mapping[str, Unit]


def read_columns(text: str) -> dict[str, InferredType]:
    """Types by the (dotted) names of their columns.

    :raises ValueError: as ``read_declarations``.
    """
    return {name: declared.type for name, declared in read_declarations(text).items()}


def read_declarations(text: str) -> dict[str, Declaration]:
    """Declarations by the (dotted) names of their columns.

    :raises ValueError: the text is not a declaration; the error says where.
    """
    reader = _Reader(text)
    by_column: dict[str, Declaration] = {}
    while not reader.is_done:
        name = reader.word("a column's name")
        if name in by_column:
            raise ValueError(f"column '{name}' is declared twice")
        reader.units = {}
        by_column[name] = Declaration(reader.type(name), reader.units)
        if not reader.is_done:
            reader.take(",")
    return by_column


def declaration(kind: InferredType) -> str:
    """The text of a type, as ``read_columns`` reads it."""
    match kind:
        case {"struct": fields}:
            return f"struct<{', '.join(f'{name}: {declaration(inner)}' for name, inner in fields.items())}>"
        case {"list": element}:
            return f"list<{declaration(element)}>"
        case {"map": [key, value]}:
            return f"map<{declaration(key)}, {declaration(value)}>"
    return str(kind)


class _Reader:
    def __init__(self, text: str) -> None:
        self._rest = text.strip()
        self.units: dict[str, Unit] = {}

    @property
    def is_done(self) -> bool:
        return not self._rest

    def take(self, sign: str) -> None:
        if not self._takes(sign):
            raise ValueError(f"'{sign}' is missing before '{self._rest[:40]}'")

    def _takes(self, sign: str) -> bool:
        if not self._rest.startswith(sign):
            return False
        self._rest = self._rest.removeprefix(sign).lstrip()
        return True

    def word(self, what: str) -> str:
        match = _WORD.match(self._rest)
        if match is None:
            raise ValueError(f"{what} is missing" + (f" before '{self._rest[:40]}'" if self._rest else " at the end"))
        self._rest = self._rest[match.end() :].lstrip()
        return match[1]

    def type(self, column: str) -> InferredType:
        if self._rest.startswith(":") and "." not in column:
            kind = self._rest[1:].partition(",")[0].strip()
            raise ValueError(f"column '{column}': a blank stands before its type, not a colon: write {column} {kind}")
        word = self.word(f"the type of column '{column}'")
        name = word.lower()
        if name == "decimal":
            return self._decimal(column)
        if name in ("geometry", "geography"):
            return self._place(name, column)
        if name.startswith("fixed") and (length := _LENGTH.fullmatch(name.removeprefix("fixed"))):
            return f"fixed[{int(length[1])}]"
        if name in ("list", "array", "map", "struct"):
            self.take("<")
            declared = self._nested(name, column)
            self.take(">")
            return declared
        if name not in _SIMPLE:
            raise ValueError(f"column '{column}': there is no type '{word}'; {_HELP}")
        if _FROM.match(self._rest):
            self.word("from")
            self._unit(column, _SIMPLE[name])
        return _SIMPLE[name]

    def _unit(self, column: str, kind: str) -> None:
        """Read the unit in which numbers count the column's moments."""
        word = self.word(f"the unit of column '{column}'")
        if kind != "time" and not kind.startswith("timestamp"):
            reason = "numbers for a date are days" if kind == "date" else "only times and timestamps count units"
            raise ValueError(f"column '{column}': {kind} from {word}: {reason}")
        if word not in PER_SECOND:
            raise ValueError(f"column '{column}': there is no unit '{word}'; there are: {', '.join(PER_SECOND)}")
        self.units[column] = cast("Unit", word)

    def _nested(self, name: str, column: str) -> InferredType:
        if name == "map":
            key = self._part(f"{column}.key")
            self.take(",")
            return {"map": [key, self._part(f"{column}.value")]}
        if name != "struct":
            return {"list": self._part(f"{column}.element")}
        fields: dict[str, InferredType] = {}
        while not fields or self._takes(","):
            field = self.word(f"a field of column '{column}'")
            self._takes(":")
            fields[field] = self.type(f"{column}.{field}")
        return {"struct": fields}

    def _part(self, column: str) -> InferredType:
        """The type of the elements of a list or a map, which Iceberg does not promote."""
        kind = self.type(column)
        if kind == UNKNOWN:
            raise ValueError(
                f"column '{column}': only a field can be {UNKNOWN}: declare a type, or leave the column out"
            )
        return kind

    def _decimal(self, column: str) -> str:
        match = _SIZES.match(self._rest)
        if match is None or not (1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1])):
            raise ValueError(f"column '{column}': a decimal has digits and scale, such as decimal(12, 2), 38 at most")
        self._rest = self._rest[match.end() :].lstrip()
        return f"decimal({int(match[1])}, {int(match[2])})"

    def _place(self, name: str, column: str) -> str:
        """A geometry or a geography, in the form in which schemas have it."""
        if not self._rest.startswith("("):
            return name
        match = _PLACE.match(self._rest)
        if match is None or (match[2] is not None and (name == "geometry" or match[2].lower() not in EDGES)):
            raise ValueError(
                f"column '{column}': write geometry(EPSG:3857), or geography(OGC:CRS84, karney) with one of the edges"
                f" {', '.join(EDGES)}"
            )
        self._rest = self._rest[match.end() :].lstrip()
        crs, edges = match[1], (match[2] or EDGES[0]).lower()
        if (crs.upper(), edges) == (DEFAULT_CRS, EDGES[0]):
            return name
        return f"{name}({crs})" if name == "geometry" else f"{name}({crs}, {edges})"


def with_declared(
    kind: InferredType | None,
    declared: Mapping[str, InferredType],
    *,
    everywhere: Collection[str] = (),
    fold: bool = False,
    within: Sequence[str] = (),
) -> InferredType | None:
    """The type of a table's rows, or of the column ``within`` it. Declared types replace the type's own.

    Columns in ``everywhere`` are added if the type lacks them. ``fold``: names are compared ignoring case.
    """
    key = str.lower if fold else str
    above = ".".join(within)
    for name, type_ in declared.items():
        if type_ == UNKNOWN and (name not in everywhere or find(kind, name, key) is not None):
            continue
        if key(name) == key(above):
            return _over(kind, type_, key)
        if above and not key(name).startswith(f"{key(above)}."):
            continue
        inner = name[len(above) + 1 :] if above else name
        place = find(kind, inner, key)
        if place is not None:
            kind = _replaced(kind, place[0], type_, key)
        elif name in everywhere:
            kind = _replaced(kind, inner.split("."), type_, key)
    return kind


def _replaced(kind: Any, path: Sequence[str], type_: InferredType, key: Callable[[str], str]) -> InferredType:
    """The kind with this type at a path; missing structs on the path are added."""
    if not path:
        return _over(kind, type_, key)
    known = dict(kind) if isinstance(kind, Mapping) and "struct" in kind else {"struct": {}}
    fields = known["struct"]
    return {**known, "struct": {**fields, path[0]: _replaced(fields.get(path[0]), path[1:], type_, key)}}


def _over(kind: Any, type_: Any, key: Callable[[str], str]) -> InferredType:
    """The declared type in place of the kind, which stays where the declared one is unknown."""
    match kind, type_:
        case None, _:
            pass
        case _, "unknown":
            return kind
        case {"struct": known}, {"struct": fields}:
            kinds = {key(name): inner for name, inner in known.items()}
            return {"struct": {name: _over(kinds.get(key(name)), inner, key) for name, inner in fields.items()}}
        case {"list": known}, {"list": element}:
            return {"list": _over(known, element, key)}
        case {"map": [_, known]}, {"map": [of, value]}:
            return {"map": [of, _over(known, value, key)]}
    return type_
