"""What a task is told and what it answers. Plain values: they travel to executors and back as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from calving.model.dead_letters import DeadLetter
from calving.model.files import DataFile, FileContent, PartitionField, PartitionTuple


@dataclass(frozen=True, slots=True)
class Range:
    """Source offsets ``start`` up to, not including, ``end`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One target table as of planning: enough to write files without its catalog. JSON texts are pyiceberg's."""

    name: str
    schema_json: str
    spec_json: str
    location: str
    properties: Mapping[str, str]
    io_properties: Mapping[str, str]
    sort_order_json: str | None = None
    distribution: Literal["none", "hash", "range"] = "none"
    """Which task writes a row: the one that has read it, one for each partition, or one for each range of the sort
    order within a partition."""
    held_json: str = "{}"
    """Source offsets that the table holds already: a coverage, as JSON."""


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
    unrouted: Policy = "skip"
    missing_table: Policy = "fail"


@dataclass(frozen=True, slots=True)
class Evolution:
    """What may be done where a record does not fit its table."""

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
    """What happens to records that cannot be taken: the first is an error, or they go to a topic or to ``table``.

    One task lets ``at_most`` pass. ``replayed``: the records are dead letters that go through the sink again, as the
    records they once were.
    """

    to: Literal["error", "topic", "table"] = "error"
    table: str | None = None
    at_most: int = 10_000
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one task. Bytes are those of Arrow buffers, not yet encoded."""

    block_records: int = 8_000
    block_bytes: int = 8 * 1024 * 1024
    buffered_bytes: int = 96 * 1024 * 1024
    open_files: int = 64
    inferred_records: int = 10_000
    stalled_seconds: float = 60.0
    record_bytes: int = 16 * 1024 * 1024
    """The largest value; a larger one is a bad record."""
    nesting: int = 32
    """Levels of objects and arrays in a value, and of structs, lists and maps in a schema that records ask for."""
    learned_names: int = 2_000
    """Distinct names that a decoder learns to read faster; with more it reads each record for itself."""
    new_columns: int = 500
    """Columns, nested ones included, that one batch adds to a table."""
    columns: int = 5_000
    """Columns, nested ones included, that a table may reach by evolution."""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task. ``missing`` are tables that were looked for and do not exist.

    ``shuffle``: rows of tables that want it are sent to other tasks.
    """

    number: int
    ranges: tuple[Range, ...]
    kafka: Mapping[str, str]
    converters: Mapping[str, TopicConverters]
    """By topic; the one without a name is for all others."""
    transforms: tuple[TransformSpec, ...]
    routing: Routing
    tables: Mapping[str, TableSpec]
    missing: frozenset[str]
    evolution: Evolution
    tolerance: Tolerance = field(default_factory=Tolerance)
    limits: Limits = field(default_factory=Limits)
    shuffle: bool = False
    barren: frozenset[str] = frozenset()
    """Missing tables that no record had a field for: a record that has none either is bad."""
    id_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns that missing tables are to be created with as identifier fields."""
    careful: bool = False
    """Whether every row is tried before it is written: something went wrong that only writing shows."""

    def to_json(self) -> str:
        # Over a thousand ranges ``asdict`` takes longer than a thousand records do.
        ranges = [[r.topic, r.partition, r.start, r.end] for r in self.ranges]
        sets = {"missing": sorted(self.missing), "barren": sorted(self.barren)}
        return json.dumps(asdict(replace(self, ranges=())) | {"ranges": ranges} | sets)

    @staticmethod
    def from_json(text: str) -> TaskSpec:
        raw: dict[str, Any] = json.loads(text)
        routing = raw["routing"]
        return TaskSpec(
            **raw
            | {
                "ranges": tuple(Range(*r) for r in raw["ranges"]),
                "converters": {
                    topic: TopicConverters(ConverterSpec(**c["key"]), ConverterSpec(**c["value"]))
                    for topic, c in raw["converters"].items()
                },
                "transforms": tuple(
                    TransformSpec(**t | {"predicate": PredicateSpec(**t["predicate"]) if t["predicate"] else None})
                    for t in raw["transforms"]
                ),
                "tolerance": Tolerance(**raw["tolerance"]),
                "routing": Routing(**routing | {"rules": tuple(RouteRule(**r) for r in routing["rules"])}),
                "tables": {name: TableSpec(**t) for name, t in raw["tables"].items()},
                "missing": frozenset(raw["missing"]),
                "barren": frozenset(raw["barren"]),
                "id_columns": {table: tuple(columns) for table, columns in raw["id_columns"].items()},
                "evolution": Evolution(**raw["evolution"]),
                "limits": Limits(**raw["limits"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Need:
    """A change of a table without which a record does not fit.

    ``create``: the table does not exist. ``add``: the column ``path`` of ``type`` (Iceberg JSON) is missing.
    ``widen``: ``path`` must become ``type``. ``optional``: ``path`` is required, but a record has no value for it.
    """

    table: str
    kind: Literal["create", "add", "widen", "optional", "load"]
    path: tuple[str, ...] = ()
    type: Any = None


@dataclass(frozen=True, slots=True)
class RangeResult:
    """How one range went. ``filtered`` counts by cause; ``read = written + rejected + sum(filtered)``."""

    range: Range
    read: int
    written: int
    """Records that went to at least one table."""
    rejected: int
    filtered: Mapping[str, int]
    bytes: int
    timestamp_ms: int | None


RECEIVED = -1
"""The number of all tasks that write what others have sent."""


@dataclass(slots=True)
class TaskResult:
    """Either ``needs``, and then nothing else counts, or files and one result per range."""

    number: int
    """The task's, or ``RECEIVED``."""
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    ranges: list[RangeResult] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    rejected: list[DeadLetter] = field(default_factory=list)
    """For the dead-letter topic; those for a table are among the files."""
    first_rejected: str | None = None
    error: str | None = None
    """What no other attempt can change: a record that cannot be taken, or records that are gone."""
    data_loss: bool = False
    unclear: str | None = None
    """Some record, it is not known which, breaks writing: every task has to run again, with care."""
    shuffled: int = 0
    """Rows sent to other tasks; those that were received count below zero. Over all tasks of a batch it is zero."""
    stages: dict[str, float] = field(default_factory=dict)
    """CPU seconds by stage."""

    def to_json(self) -> str:
        files = {table: [_file_out(f) for f in found] for table, found in self.files.items()}
        return json.dumps(
            {
                "number": self.number,
                "files": files,
                "ranges": [_range_out(r) for r in self.ranges],
                "needs": [asdict(n) for n in self.needs],
                "rejected": [_letter_out(r) for r in self.rejected],
                "first_rejected": self.first_rejected,
                "error": self.error,
                "data_loss": self.data_loss,
                "unclear": self.unclear,
                "shuffled": self.shuffled,
                "stages": self.stages,
            }
        )

    @staticmethod
    def from_json(text: str) -> TaskResult:
        raw = json.loads(text)
        return TaskResult(
            raw["number"],
            {table: [_file_in(f) for f in found] for table, found in raw["files"].items()},
            [RangeResult(Range(*source), *rest) for source, *rest in raw["ranges"]],
            [Need(n["table"], n["kind"], tuple(n["path"]), n["type"]) for n in raw["needs"]],
            [_letter_in(r) for r in raw["rejected"]],
            raw["first_rejected"],
            raw["error"],
            raw["data_loss"],
            raw["unclear"],
            raw["shuffled"],
            raw["stages"],
        )


_BOUNDS = ("lower_bounds", "upper_bounds")
_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


def _range_out(result: RangeResult) -> list[Any]:
    """Its fields, in order."""
    r = result.range
    source = [r.topic, r.partition, r.start, r.end]
    counts = [result.read, result.written, result.rejected, dict(result.filtered)]
    return [source, *counts, result.bytes, result.timestamp_ms]


def _file_out(file: DataFile) -> dict[str, Any]:
    raw = asdict(file)
    raw["partition"]["values"] = [_value_out(v) for v in file.partition.values]
    for name in _BOUNDS:
        bounds = getattr(file, name)
        raw[name] = None if bounds is None else {k: base64.b64encode(v).decode() for k, v in bounds.items()}
    raw["key_metadata"] = None
    return raw


def _file_in(raw: dict[str, Any]) -> DataFile:
    partition = raw["partition"]
    raw["partition"] = PartitionTuple(
        tuple(PartitionField(**f) for f in partition["fields"]), tuple(_value_in(v) for v in partition["values"])
    )
    for name in _BOUNDS:
        if raw[name] is not None:
            raw[name] = {int(k): base64.b64decode(v) for k, v in raw[name].items()}
    for name in _COUNTS:
        if raw[name] is not None:
            raw[name] = {int(k): v for k, v in raw[name].items()}
    for name in ("split_offsets", "equality_ids"):
        if raw[name] is not None:
            raw[name] = tuple(raw[name])
    raw["content"] = FileContent(raw["content"])
    return DataFile(**raw)


def _letter_out(letter: DeadLetter) -> dict[str, Any]:
    raw = asdict(letter)
    raw["key"], raw["value"] = _bytes_out(letter.key), _bytes_out(letter.value)
    raw["headers"] = [(name, _bytes_out(value)) for name, value in letter.headers]
    return raw


def _letter_in(raw: dict[str, Any]) -> DeadLetter:
    headers = tuple((name, _bytes_in(value)) for name, value in raw["headers"])
    return DeadLetter(**raw | {"key": _bytes_in(raw["key"]), "value": _bytes_in(raw["value"]), "headers": headers})


def _bytes_out(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes_in(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _value_out(value: object) -> object:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _value_in(value: Any) -> object:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value
