"""The input of a task: plain values, sent to executors as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from calving.model.offsets import Range
from calving.model.record_path import RecordPath
from calving.model.tables import TableSpec


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
        return _JSON.dump_json(self).decode()

    @staticmethod
    def from_json(text: str) -> TaskSpec:
        """:raises ValidationError: the text is not that of ``to_json``."""
        return _JSON.validate_json(text)


_JSON = TypeAdapter(TaskSpec)
