"""The settings by which tasks convert, transform, route and limit records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class RouteRule:
    """A static target; ``regex`` is matched in full against the route field."""

    table: str
    regex: str | None = None


Policy = Literal["fail", "skip", "dead-letter"]


@dataclass(frozen=True, slots=True)
class Routing:
    """The tables to which a record goes. By default these are the tables of all ``rules`` that match. If ``dynamic``,
    it is the table that the record's field names. With ``topic_pattern``, it is the table whose name the pattern makes
    from the record's topic (``{topic}``, and the groups of ``topic_regex`` by number or name). If ``only`` is not
    empty, records for other tables go to none.
    """

    rules: tuple[RouteRule, ...] = ()
    field: str | None = None
    dynamic: bool = False
    topic_pattern: str | None = None
    topic_regex: str | None = None
    only: frozenset[str] = frozenset()
    unrouted: Policy = "fail"
    missing_table: Policy = "fail"
    case: Literal["lower", "as-is"] = "lower"
    """How names that come from records are written."""

    @property
    def is_free(self) -> bool:
        """Whether records name their tables, with a field or with their topic, which a transform may have made."""
        return self.dynamic or self.topic_pattern is not None


TYPE_SHARE = 0.01
"""If at most this share of a new column's values needs a wider type, these values do not decide the type of the
column.
"""


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """The topics that a sink reads: those of ``names``, or all that ``regex`` matches in full."""

    names: frozenset[str] = frozenset()
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Evolution:
    """The changes of a table that a record may cause if it does not fit the table. ``followed``: the topics of the
    source tables whose schema changes change the target tables; None: none do.
    """

    create: bool = False
    evolve: bool = False
    case_insensitive: bool = False
    followed: ReadTopics | None = None


@dataclass(frozen=True, slots=True)
class ConverterSpec:
    """A converter by name, with its own options."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicConverters:
    """How one topic's keys and values are decoded."""

    key: ConverterSpec = ConverterSpec("bytes")
    value: ConverterSpec = ConverterSpec("json")


@dataclass(frozen=True, slots=True)
class PredicateSpec:
    """A condition on records, by type."""

    type: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """One step of the chain. It applies to the records that ``predicate`` chooses, or with ``negate`` to the other
    records.
    """

    name: str
    type: str
    options: Mapping[str, str] = field(default_factory=dict)
    predicate: PredicateSpec | None = None
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The treatment of rejected records: either the first is an error, or all go to a dead-letter topic or to
    ``table``.

    A task fails after ``at_most`` rejected records. ``replayed``: the records are dead letters, and each is replayed as
    the source record that it was.
    """

    to: Literal["error", "topic", "table"] = "error"
    table: str | None = None
    at_most: int = 10_000
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task. Bytes are counted in Arrow buffers, before encoding."""

    block_records: int = 32_000
    buffered_bytes: int = 96 * 1024 * 1024
    open_files: int = 64
    stalled_seconds: float = 60.0
    record_bytes: int = 16 * 1024 * 1024
    """The largest value or key; a record with a larger one is bad."""
    nesting: int = 32
    """Levels of objects and arrays in a value, and of structs, lists and maps in a schema that records ask for."""
    learned_names: int = 2_000
    """Distinct field names up to which a decoder reads records together; with more it decodes each record alone."""
    new_columns: int = 500
    """The most columns that one record adds to a table, nested columns included."""
    columns: int = 5_000
    """The most columns that a table may reach by evolution, nested columns included."""
    schema_bytes: int = 1024 * 1024
    """The largest text of a schema, with the texts to which it refers; a record of a larger one is bad."""
    cells: int = 5_000_000
    """The most cells of a record; ``records.cells`` defines them."""
    sql_ms: int = 10_000
    """The time of a processor that one query of the transform Sql may take."""
    sql_bytes: int = 512 * 1024 * 1024
    """The memory that DuckDB takes for one query, and the bytes of its rows. What it does not count may take as much
    again.
    """


@dataclass(frozen=True, slots=True)
class RecordPath:
    """The settings that every task follows on the way from a record to its tables.

    ``kafka``: properties of the consumer. ``converters``: by topic; the empty name is the default.
    """

    kafka: Mapping[str, str]
    routing: Routing
    evolution: Evolution = Evolution()
    converters: Mapping[str, TopicConverters] = field(default_factory=dict)
    transforms: tuple[TransformSpec, ...] = ()
    tolerance: Tolerance = Tolerance()
    limits: Limits = Limits()
