"""The settings by which the drivers create and write tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calving.model.mutations import RowMutations
from calving.model.offsets import Coverage
from calving.model.record_path import TYPE_SHARE, Evolution, Limits
from calving.model.tables import Unit
from calving.records.inferred import InferredType


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How one table is created and changed; ``mutations`` is None if records are appended."""

    partition_by: tuple[str, ...] = ()
    id_columns: tuple[str, ...] = ()
    location: str | None = None
    mutations: RowMutations | None = None
    columns: Mapping[str, InferredType] = field(default_factory=dict)
    """Columns with which the table is created."""
    types: Mapping[str, InferredType] = field(default_factory=dict)
    """The types that columns get when they occur in records, by name."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """The units in which whole numbers count moments, by the dotted name of the column."""

    @property
    def declared(self) -> Mapping[str, InferredType]:
        """All declared types."""
        return {**self.types, **self.columns}


@dataclass(frozen=True, slots=True)
class TableRules:
    """How tables are created and written."""

    write_properties: Mapping[str, str] = field(default_factory=dict)
    create_properties: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    defaults: TableSettings = TableSettings()
    force_optional: bool = False
    left_out: Callable[[str, Mapping[str, str]], Coverage] = lambda name, properties: {}
    """The offsets to skip for a table with these properties."""
    evolution: Evolution = field(default_factory=Evolution)
    limits: Limits = field(default_factory=Limits)
    share: float = TYPE_SHARE
    """If at most this share of a new column's values needs a wider type, these values do not decide the type of the
    column.
    """
    any_year: bool = False
    """Whether dates and timestamps outside the years 1 to 9999 are taken."""
    tolerates: bool = False
    """Whether bad records become dead letters."""

    def of(self, table: str) -> TableSettings:
        return self.tables.get(table, self.defaults)

    @property
    def fold(self) -> bool:
        """Whether names of columns that differ only in case are one name."""
        return self.evolution.case_insensitive

    def key(self, name: str) -> str:
        """The form of a column's name that must be unique in a table."""
        return name.lower() if self.fold else name
