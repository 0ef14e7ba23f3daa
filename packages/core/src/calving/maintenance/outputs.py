"""What the new files of a rewriting are like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, PrimitiveType

from calving.catalogs.foreign import known_order
from calving.errors import ConfigError
from calving.iceberg.locations import carried
from calving.iceberg.manifests import LINEAGE_VERSION
from calving.maintenance.strategy import Z_COLUMNS, Strategy
from calving.model.tables import TableSpec
from calving.writing.keys import key
from calving.writing.layout import Layout

ROW_ID, LAST_UPDATED = 2147483540, 2147483539
"""The ids of the columns that keep the row lineage of format version 3 in a data file (K6)."""
LINEAGE = (
    NestedField(ROW_ID, "_row_id", LongType(), required=False),
    NestedField(LAST_UPDATED, "_last_updated_sequence_number", LongType(), required=False),
)


@dataclass(frozen=True, slots=True)
class OutputSpec:
    """``table``: as it is written, with a sort order if rows are sorted by it. ``z_order``: the names of the columns of
    a z-order. ``tracks``: whether it is kept where each row has gone, because rows may be deleted meanwhile.
    """

    table: TableSpec
    z_order: tuple[str, ...] = ()
    tracks: bool = True

    @property
    def order(self) -> str:
        """The order of the rows for people; empty if they stay as they were."""
        if self.z_order:
            return f"in z-order of {', '.join(self.z_order)}"
        return "sorted" if self.table.sort_order_json is not None else ""


def output_spec(
    table: Table, write_properties: Mapping[str, str], strategy: Strategy | None = None, *, tracks: bool = True
) -> OutputSpec:
    """The table as new files are written: in its default spec. ``strategy``: by default ``sort`` if the table has a
    sort order, else ``bin-pack``.

    :raises ConfigError: the strategy does not fit the table, or the table cannot be written.
    """
    metadata = table.metadata
    schema, name = metadata.schema(), ".".join(table.name())
    order = known_order(table.sort_order())
    is_sorted = not order.is_unsorted if strategy is None else strategy.name == "sort"
    if is_sorted and order.is_unsorted:
        raise ConfigError(
            "strategy sort needs a sort order of the table that calving knows, such as `ALTER TABLE ..."
            f" WRITE ORDERED BY` makes; or set iceberg.table.{name}.maintenance.strategy"
        )
    if strategy is not None:
        _check_columns(schema, strategy.columns)
    if metadata.format_version >= LINEAGE_VERSION:
        schema = Schema(*schema.fields, *LINEAGE, schema_id=schema.schema_id)
    spec = TableSpec(
        name=name,
        schema_json=schema.model_dump_json(),
        spec_json=metadata.spec().model_dump_json(),
        location=metadata.location,
        properties={**metadata.properties, **write_properties},
        io_properties=carried(table.io),
        sort_order_json=order.model_dump_json() if is_sorted else None,
        has_sorted_rows=is_sorted,
    )
    Layout(spec)
    return OutputSpec(spec, strategy.columns if strategy is not None else (), tracks)


def _check_columns(schema: Schema, columns: tuple[str, ...]) -> None:
    """:raises ConfigError: one of these cannot be in a z-order."""
    for column in columns:
        if column not in schema.column_names:
            raise ConfigError(f"{Z_COLUMNS}: there is no column {column}")
        field = schema.find_field(column)
        try:
            if not isinstance(field.field_type, PrimitiveType):
                raise ConfigError(f"column {column} is {field.field_type}")
            key(schema, field.field_id, IdentityTransform())
        except ConfigError as error:
            raise ConfigError(f"{Z_COLUMNS}: {error}") from error
