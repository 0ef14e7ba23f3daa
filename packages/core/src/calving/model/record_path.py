"""How records are routed, converted, transformed and limited: settings that tasks follow."""

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
    """Which tables a record goes to: all ``rules`` that match, or, if ``dynamic``, the one that its field names, or the
    one that ``topic_pattern`` makes of its topic (``{topic}``, and the groups of ``topic_regex`` by number or name).
    """

    rules: tuple[RouteRule, ...] = ()
    field: str | None = None
    dynamic: bool = False
    topic_pattern: str | None = None
    topic_regex: str | None = None
    unrouted: Policy = "fail"
    missing_table: Policy = "fail"


TYPE_SHARE = 0.01
"""The share of a new column's values up to which a type that only they need does not decide the column's type."""


@dataclass(frozen=True, slots=True)
class Evolution:
    """Which changes of its table a record that does not fit may cause."""

    create: bool = False
    evolve: bool = False
    case_insensitive: bool = False


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
    """One step of the chain. It applies to the records that ``predicate`` (or, ``negate``, its opposite) chooses."""

    name: str
    type: str
    options: Mapping[str, str] = field(default_factory=dict)
    predicate: PredicateSpec | None = None
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The treatment of rejected records: the first one is an error, or all go to a dead-letter topic or to ``table``.

    A task fails after ``at_most`` of them. ``replayed``: the records are dead letters that are replayed as the source
    records that they were.
    """

    to: Literal["error", "topic", "table"] = "error"
    table: str | None = None
    at_most: int = 10_000
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task. Bytes are those of Arrow buffers, not yet encoded."""

    block_records: int = 8_000
    buffered_bytes: int = 96 * 1024 * 1024
    open_files: int = 64
    stalled_seconds: float = 60.0
    record_bytes: int = 16 * 1024 * 1024
    """The largest value; a larger one is a bad record."""
    nesting: int = 32
    """Levels of objects and arrays in a value, and of structs, lists and maps in a schema that records ask for."""
    learned_names: int = 2_000
    """Distinct field names up to which a decoder reads records together; with more it decodes each record alone."""
    new_columns: int = 500
    """Columns, nested ones included, that one batch adds to a table."""
    columns: int = 5_000
    """Columns, nested ones included, that a table may reach by evolution."""


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
