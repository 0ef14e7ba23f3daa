"""Tables that calving loads and shows, but cannot write."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.transforms import UnknownTransform

from calving.catalogs.foreign import ENCRYPTION
from calving.errors import ConfigError


def refusal(metadata: TableMetadata, *, rewrites: bool) -> str | None:
    """Why the table takes no rows; None if it takes rows.

    ``rewrites``: whether also manifests of former specs are written again, as for deletes.
    """
    if metadata.properties.get(ENCRYPTION):
        return f"it is encrypted ({ENCRYPTION}), and calving cannot encrypt its files"
    specs = metadata.partition_specs if rewrites else [metadata.spec()]
    fields = [field for spec in specs for field in spec.fields if isinstance(field.transform, UnknownTransform)]
    if not fields:
        return None
    return f"calving does not know the transform {fields[0].transform} of its partition field {fields[0].name}"


def check_takes_rows(name: str, metadata: TableMetadata, *, rewrites: bool) -> None:
    """:raises ConfigError: the table takes no rows."""
    why = refusal(metadata, rewrites=rewrites)
    if why is not None:
        raise ConfigError(f"table {name} takes no rows: {why}; route its records elsewhere, or not at all")


def known_order(order: SortOrder) -> SortOrder:
    """The sort order, or none if it has a transform that calving does not know: Iceberg does not require that rows are
    sorted.
    """
    unknown = any(isinstance(field.transform, UnknownTransform) for field in order.fields)
    return UNSORTED_SORT_ORDER if unknown else order
