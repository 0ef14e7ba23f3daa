"""The input of a task: plain values, sent to executors as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from calving.model.mutations import RowMutations
from calving.model.ranges import Range
from calving.model.record_path import (
    ConverterSpec,
    Evolution,
    Limits,
    PredicateSpec,
    RecordPath,
    RouteRule,
    Routing,
    Tolerance,
    TopicConverters,
    TransformSpec,
)
from calving.model.tables import Moments, TableSpec


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task. ``missing`` are tables that were looked for and do not exist.

    ``shuffle``: whether rows are sent to other tasks, if the distribution of their table needs it.
    """

    number: int
    ranges: tuple[Range, ...]
    path: RecordPath
    tables: Mapping[str, TableSpec]
    missing: frozenset[str]
    shuffle: bool = False
    uncreatable: frozenset[str] = frozenset()
    """Missing tables that no record of the batch can create. Each record for such a table is bad."""
    within: Mapping[str, str] = field(default_factory=dict)
    """Missing tables whose name leads through a table, and this table. Each record for such a missing table is bad."""
    id_columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns that become the identifier fields when a missing table is created, by table."""
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns of missing tables whose types are declared in the settings."""
    partition_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names that columns of missing tables cannot have, because partition fields will have them, by table."""
    careful: bool = False
    """Whether every row is tried before it is written, because writing has failed and the record is unknown."""

    def to_json(self) -> str:
        # For a thousand ranges, ``asdict`` takes longer than processing a thousand records.
        ranges = [[r.topic, r.partition, r.start, r.end] for r in self.ranges]
        sets = {"missing": sorted(self.missing), "uncreatable": sorted(self.uncreatable)}
        return json.dumps(asdict(replace(self, ranges=())) | {"ranges": ranges} | sets)

    @staticmethod
    def from_json(text: str) -> TaskSpec:
        raw: dict[str, Any] = json.loads(text)
        return TaskSpec(
            **raw
            | {
                "ranges": tuple(Range(*r) for r in raw["ranges"]),
                "path": _path_in(raw["path"]),
                "tables": {name: _table_in(t) for name, t in raw["tables"].items()},
                "missing": frozenset(raw["missing"]),
                "uncreatable": frozenset(raw["uncreatable"]),
                "id_columns": {table: tuple(columns) for table, columns in raw["id_columns"].items()},
                "declared": {table: tuple(columns) for table, columns in raw["declared"].items()},
                "partition_names": {table: tuple(names) for table, names in raw["partition_names"].items()},
            }
        )


def _table_in(raw: dict[str, Any]) -> TableSpec:
    mutations = raw["mutations"]
    return TableSpec(
        **raw
        | {
            "id_columns": tuple(raw["id_columns"]),
            "partition_names": tuple(raw["partition_names"]),
            "mutations": None if mutations is None else RowMutations(**mutations),
            "moments": Moments(**raw["moments"]),
        }
    )


def _path_in(raw: dict[str, Any]) -> RecordPath:
    routing = raw["routing"]
    return RecordPath(
        kafka=raw["kafka"],
        routing=Routing(**routing | {"rules": tuple(RouteRule(**r) for r in routing["rules"])}),
        evolution=Evolution(**raw["evolution"]),
        converters={
            topic: TopicConverters(ConverterSpec(**c["key"]), ConverterSpec(**c["value"]))
            for topic, c in raw["converters"].items()
        },
        transforms=tuple(
            TransformSpec(**t | {"predicate": PredicateSpec(**t["predicate"]) if t["predicate"] else None})
            for t in raw["transforms"]
        ),
        tolerance=Tolerance(**raw["tolerance"]),
        limits=Limits(**raw["limits"]),
    )
