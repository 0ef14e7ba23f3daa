"""The spec of landed files (K8): files of a partitioned table that are in none of its partitions. So a batch becomes
few files, whatever number of partitions it touches; maintenance moves the rows into the table's partitions later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import Field
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AssertTableUUID,
    ValidatableTableRequirement,
)
from pyiceberg.transforms import VoidTransform

from calving.errors import UnavailableError
from calving.iceberg.catalog import find_table, is_rest, reaching, table_id
from calving.iceberg.creation import refuse_final
from calving.retries import Backoff
from calving.writing.partitioning import is_divided

log = logging.getLogger(__name__)

_TRIES, _BACKOFF = 6, Backoff(0.1, 1.6)


def unpartitioned(specs: Iterable[PartitionSpec]) -> PartitionSpec | None:
    """The spec without fields, under which a delete applies to all partitions."""
    return next((spec for spec in specs if not spec.fields), None)


def landing_spec(metadata: TableMetadata) -> PartitionSpec | None:
    """The spec of landed files; None if the table has none yet."""
    specs = metadata.specs().values()
    found = unpartitioned(specs)
    if found is None and metadata.format_version == 1:
        return next((spec for spec in specs if not is_divided(spec)), None)
    return found


def with_landing_spec(catalog: Catalog, name: str, table: Table) -> Table:
    """The table with a spec of landed files, which is added if there is none. The default spec stays. Of several
    workers that do this at the same time, one adds it, and the others find it.

    :raises AccessDeniedError, CatalogRefusedError: the catalog does not let the spec be added.
    :raises UnavailableError: others kept changing the table, or the catalog is away; try again.
    """
    what = f"table {name}: a partition spec for landed files (iceberg.tables.landing = unpartitioned)"
    for number in range(1, _TRIES + 1):
        if landing_spec(table.metadata) is not None:
            return table
        # After an error that says nothing clear, the next load shows whether the spec was added.
        with reaching(catalog, f"{what} was not added"):
            try:
                add_spec(catalog, table, _missing(table.metadata))
                log.info("%s was added", what)
            except CommitFailedException:
                log.info("%s was not added, because somebody else has changed the table", what)
                time.sleep(_BACKOFF.pause(number))  # before the load: the next try builds on the table of then
            except Exception as error:  # catalogs raise exceptions of their own
                refuse_final(catalog, error, f"{what} is refused by the catalog")
                raise
        found = find_table(catalog, table_id(name))
        if found is None:
            raise UnavailableError(f"{what} was not added: the table was dropped meanwhile")
        table = found
    raise UnavailableError(f"{what} was not added: other writers were faster {_TRIES} times")


def _missing(metadata: TableMetadata) -> PartitionSpec:
    """The spec to add. In format version 1 fields of a spec are told apart by their places, so none may be left out: a
    field without values has the void transform.
    """
    number = max(metadata.specs()) + 1
    if metadata.format_version > 1:
        return PartitionSpec(spec_id=number)
    fields = [
        PartitionField(source_id=each.source_id, field_id=each.field_id, transform=VoidTransform(), name=each.name)
        for each in metadata.spec().fields
    ]
    return PartitionSpec(*fields, spec_id=number)


def add_unpartitioned(catalog: Catalog, table: Table) -> None:
    """Add a spec without fields to the table, unless somebody else has changed its specs meanwhile. The default spec,
    by which rows are written, stays.
    """
    try:
        add_spec(catalog, table, PartitionSpec(spec_id=max(table.metadata.specs()) + 1))
    except CommitFailedException as error:
        log.info("table %s: no spec without partitions was added: %s", ".".join(table.name()), error)


def add_spec(catalog: Catalog, table: Table, spec: PartitionSpec) -> None:
    """Add a spec to the table as it was loaded.

    :raises CommitFailedException: somebody else has changed the table, perhaps in the same way.
    """
    same: list[Any] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
    if not is_rest(catalog):  # a REST catalog gives the spec its number, and takes a spec that is there for the same
        same.append(_SameSpecs(specs=tuple(sorted(table.metadata.specs()))))
    catalog.commit_table(table, tuple(same), (AddPartitionSpecUpdate(spec=spec),))


class _SameSpecs(ValidatableTableRequirement):
    """The table must have the specs of these numbers. pyiceberg, which writes the metadata for all catalogs but REST,
    would add a spec a second time; and Java does not read a table that has a number twice.
    """

    type: Literal["assert-specs"] = Field(default="assert-specs")
    specs: tuple[int, ...]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]  # as in pyiceberg
        if base_metadata is None or tuple(sorted(base_metadata.specs())) != self.specs:
            raise CommitFailedException(f"Requirement failed: the partition specs are not {self.specs} any more")
