"""Loads, creates and evolves the tables of batches. One catalog update per table and batch."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.casting.evolution import SchemaChanges, UnfitError
from calving.catalogs.foreign import check_takes_rows, known_order
from calving.errors import AccessDeniedError, ConfigError, CredentialsExpiredError, UnavailableError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.creation import CREATED_BY, create_table, evolve
from calving.iceberg.evolution import new_table
from calving.iceberg.expiry import MAX_SNAPSHOTS
from calving.iceberg.landing import landing_spec, with_landing_spec
from calving.iceberg.loading import find_tables
from calving.iceberg.locations import carried
from calving.iceberg.manifests import LINEAGE_VERSION
from calving.iceberg.rules import (
    VERSION_KEY,
    TableRules,
    check_mutations,
    check_soft_addition,
    in_use,
    lost_versions,
    new_version,
    reserved_mark,
    spelt_mutations,
)
from calving.iceberg.schemas import as_in, spec_names
from calving.model.events import TableReference
from calving.model.files import DataFile
from calving.model.offsets import encode_coverage
from calving.model.tables import Distribution, MissingTable, RefusedChange, SchemaChange, TableSpec
from calving.writing.layout import Layout
from calving.writing.partitioning import is_divided
from calving.writing.properties import WriteProperties

log = logging.getLogger(__name__)

_UNUSED_SECONDS = 600.0
_MOST_MISSING = 1_000
"""The most missing tables that are cached: records can name any number of missing tables."""
DEFAULT_PROPERTIES = {
    # These properties keep the cost of a commit constant at short intervals. ``auto-create-props`` may override each of
    # them.
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    MAX_SNAPSHOTS: "200",
}


class Tables:
    """The sink's tables as they were last loaded."""

    def __init__(
        self,
        catalog: Catalog,
        catalog_name: str,
        rules: TableRules,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._catalog, self._catalog_name, self._rules, self._clock = catalog, catalog_name, rules, clock
        self._used: dict[str, float] = {}
        """The time when records last went to a table or needed a missing one, the oldest first."""
        self._known: dict[str, Table] = {}
        self._specs: dict[str, TableSpec] = {}
        self._missing: dict[str, None] = {}
        self._refused: dict[str, str] = {}
        self._refused_changes: dict[str, tuple[RefusedChange, ...]] = {}
        self._denied: dict[str, AccessDeniedError] = {}
        """Tables that this batch cannot have, because the catalog denies access to them."""
        self.witness: str | None = None
        """A table that could be loaded; None if there was none so far. Then it is unclear whether the catalog denies a
        table, or everything.
        """
        self._warned: set[str] = set()
        """Tables about whose soft-delete-field a warning was logged."""
        self.troubled: Mapping[str, UnavailableError] = {}
        """Tables that could not be loaded when they were last looked for, and why."""

    def refresh(self, names: Iterable[str]) -> None:
        """Load these tables again, and the tables that were missing. If at least one table can be loaded, a table that
        cannot be loaded stays as it was before: its files wait for its commit, and the other tables go on (C4). A table
        that records name, and to which the catalog denies access, takes no record of this batch.

        :raises UnavailableError: no table can be loaded; or a table cannot be loaded that was not loaded before.
        """
        wanted = sorted({*names, *self._missing})
        tables, troubled = find_tables(self._catalog, wanted, self._known, self._refuse, self.witness)
        for name in troubled.keys() - self.troubled.keys():
            log.warning("%s; its files are written for the table as it was loaded before", troubled[name])
        kept = {name: each for name, each in self.troubled.items() if name in self._known and name not in tables}
        self.troubled = kept | troubled
        for name, table in tables.items():
            if name not in troubled:
                with self._refusing(name):
                    self._take(name, table)

    def _refuse(self, name: str, error: UnavailableError) -> None:
        with self._refusing(name):
            raise error

    @property
    def loaded(self) -> Mapping[str, Table]:
        """The tables as they were last loaded."""
        return dict(self._known)

    def drop_unused(self, kept: Collection[str] = ()) -> None:
        """Between batches, drop tables that no record has used for a while: names come from records, so their number is
        unbounded. ``kept``: tables that are not dropped.

        A dropped table is loaded again when a record needs it.
        """
        self._refused.clear()
        self._refused_changes.clear()
        self._denied.clear()
        idle = [name for name, at in self._used.items() if self._clock() - at > _UNUSED_SECONDS]
        missing = [name for name in self._used if name in self._missing]
        for name in {*idle, *missing[:-_MOST_MISSING]}.difference(kept):
            for known in (self._used, self._known, self._specs, self._missing):
                known.pop(name, None)

    def specs(self) -> Mapping[str, TableSpec]:
        """The tables, with what this batch cannot have of them."""
        refused = self._refused_changes
        return {name: replace(s, refused=refused.get(name, ())) for name, s in self._specs.items()}

    @property
    def missing(self) -> Mapping[str, MissingTable]:
        """The tables that were looked for and do not exist."""
        rules = self._rules
        properties = {**rules.create_properties, **rules.write_properties}
        version = new_version(self._catalog, {**DEFAULT_PROPERTIES, **rules.create_properties}) if rules.nanos else 0
        return {
            name: replace(rules.of(name).missing, moments=rules.moments(name, version), properties=properties)
            for name in self._missing
        }

    @property
    def refused(self) -> Mapping[str, str]:
        """The tables that take no record of this batch, because they can neither be created nor written, and why."""
        return dict(self._refused)

    def check_access(self) -> None:
        """:raises AccessDeniedError: the catalog has denied a table, and no table could be loaded so far."""
        if self.witness is None:
            for error in self._denied.values():
                raise error

    def reference(self, name: str) -> TableReference:
        """The reference to a table in events."""
        self._use(name)
        identifier = table_id(name)
        return TableReference(
            self._catalog_name, identifier[:-1], identifier[-1], self._known[name].metadata.table_uuid
        )

    def apply(self, changes: Iterable[SchemaChange]) -> None:
        """Load or create the missing tables that records need, and make the schema changes that records need.

        :raises ConfigError: the change is not possible.
        :raises UnavailableError: others kept changing the table; try again.
        :raises BadRecordError: a few values would be bad in a new column, and bad records are not tolerated.
        """
        changes = list(changes)
        self.refresh({change.table for change in changes if change.kind == "load"})
        changes = [change for change in changes if change.kind != "load"]
        for name, group in itertools.groupby(sorted(changes, key=lambda n: n.table), key=lambda n: n.table):
            mine = [*SchemaChanges(group, fold=self._rules.fold).values()]
            create = next((change for change in mine if change.kind == "create"), None)
            if create is not None and find_table(self._catalog, table_id(name)) is None:
                self._create_or_refuse(name, create)
            changes = [change for change in mine if change.kind in ("add", "widen", "optional", "rename")]
            if changes:
                refused = evolve(self._catalog, name, changes, self._rules)
                self._refused_changes[name] = (*self._refused_changes.get(name, ()), *refused)
            self._look(name)

    def _around(self, name: str) -> str | None:
        """The table whose name is a leading part of this name of a missing table; None if there is none. Most catalogs
        would place the new table in the folder of the other one, whose orphan removal would delete the new one's files.
        """
        parts = table_id(name)
        outer = (parts[:depth] for depth in range(2, len(parts)))
        return next((".".join(each) for each in outer if find_table(self._catalog, each) is not None), None)

    def _use(self, name: str) -> None:
        self._used.pop(name, None)
        self._used[name] = self._clock()

    def _look(self, name: str) -> None:
        is_written = name in self._specs
        with self._refusing(name):
            self._take(name, find_table(self._catalog, table_id(name)))
        if is_written and name in self._refused:
            raise UnavailableError(
                f"table {name}: {self._refused[name]}: it was changed while a batch was written; the batch starts again"
            )

    def _take(self, name: str, found: Table | None) -> None:
        if name not in self._used:
            self._use(name)
        self._known.pop(name, None)
        before = self._specs.pop(name, None)
        self._missing.pop(name, None)
        if found is None:
            self._missing[name] = None
        else:
            self._refused.pop(name, None)
            self.witness = name
            _check_version(found.metadata.format_version, f"table {name}")
            check_takes_rows(name, found.metadata, rewrites=self._rules.of(name).mutations is not None)
            if self._lands(name, found):
                found = with_landing_spec(self._catalog, name, found)
            spec = self._spec(name, found)
            if self._rules.is_named_by_records(name) and spec != before:
                Layout(spec)  # else the tasks would find out that the table cannot be written, and end the batch
            self._specs[name] = spec
            self._known[name] = found

    def _spec(self, name: str, table: Table) -> TableSpec:
        metadata = table.metadata
        properties = {**metadata.properties, **self._rules.write_properties}
        distribution: Distribution = WriteProperties.of(properties, name).distribution
        order = known_order(table.sort_order())
        if distribution == "range" and order.is_unsorted:
            distribution = "hash"
        landed = landing_spec(metadata) if self._lands(name, table) else None
        if landed is not None or (distribution == "hash" and metadata.spec().is_unpartitioned()):
            distribution = "none"
        rules = self._rules.of(name)
        id_columns, mutations = rules.id_columns, in_use(table.schema(), rules.mutations)
        if mutations is not None:
            id_columns = as_in(table.schema(), id_columns, fold=self._rules.fold)
            mutations = spelt_mutations(table.schema(), mutations, fold=self._rules.fold)
            check_mutations(name, metadata.format_version, table.schema(), id_columns, mutations)
            check_soft_addition(name, mutations, table.schema(), spec_names(metadata))
            warnings = (reserved_mark(name, mutations), lost_versions(name, table.schema(), mutations))
            for warning in warnings if name not in self._warned else ():
                if warning is not None:
                    self._warned.add(name)
                    log.warning(warning)
            distribution = "keys"
        return TableSpec(
            name=name,
            schema_json=metadata.schema().model_dump_json(),
            spec_json=(landed or metadata.spec()).model_dump_json(),
            location=metadata.location,
            properties=properties,
            io_properties=carried(table.io),
            sort_order_json=order.model_dump_json(),
            distribution=distribution,
            held_json=encode_coverage(self._rules.left_out(name, properties)),
            id_columns=id_columns,
            mutations=mutations,
            partition_names=spec_names(metadata),
            moments=self._rules.moments(name, metadata.format_version),
            on_type_change=rules.on_type_change,
            declared=rules.declared,
            moved_to_json=metadata.spec().model_dump_json() if landed is not None else None,
        )

    def _lands(self, name: str, table: Table) -> bool:
        """Whether files of the table are landed. A table without partitions has nothing to land beside."""
        return self._rules.of(name).landing == "unpartitioned" and is_divided(table.spec())

    def delete_files(self, files: Mapping[str, Sequence[DataFile]]) -> None:
        """Delete files that will not be committed, ignoring errors."""
        for name, files_of_table in files.items():
            for file in files_of_table:
                try:
                    self._known[name].io.delete(file.file_path)
                except Exception as error:  # an orphan file does no harm
                    log.info("table %s: file %s was not deleted: %s", name, file.file_path, error)

    def _create_or_refuse(self, name: str, change: SchemaChange) -> None:
        """Create the table, unless no record of this batch can create it.

        :raises ConfigError: the settings have to be changed first.
        """
        if (outer := self._around(name)) is not None:
            self._refused[name] = f"its name leads through the table {outer}, and a table cannot be within another"
        elif change.type is None and change.seen is None:
            self._refused[name] = "it does not exist, and no record of this batch can create it"
        else:
            with self._refusing(name):
                self._create(name, change)

    @contextlib.contextmanager
    def _refusing(self, name: str) -> Iterator[None]:
        """If the table cannot be created or written because of what records hold or name, their records are bad, and
        the other tables go on.

        :raises ConfigError: the settings name the table, so they have to be changed, or the table.
        """
        try:
            yield
        except UnfitError as error:
            self._refused[name] = str(error)
        except CredentialsExpiredError:
            raise
        except (ConfigError, AccessDeniedError) as error:
            if not self._rules.is_named_by_records(name):
                raise
            if isinstance(error, AccessDeniedError):
                self._denied[name] = error
            reason = str(error).removeprefix(f"table {name}: ")
            own = reason.removeprefix(f"table {name} ")
            self._refused[name] = reason if own == reason else f"it {own}"

    def _create(self, name: str, change: SchemaChange) -> None:
        named = self._rules.created_by(name, change.keys)
        mark = {CREATED_BY: self._rules.creator} if self._rules.creator else {}
        properties = {**DEFAULT_PROPERTIES, **mark, **self._rules.create_properties}
        version = new_version(self._catalog, properties)
        _check_version(version, VERSION_KEY)
        schema, spec = new_table(name, change, named, version)
        rules = named.of(name)
        if rules.mutations is not None:
            id_columns = as_in(schema, rules.id_columns, fold=self._rules.fold)
            mutations = spelt_mutations(schema, rules.mutations, fold=self._rules.fold)
            check_mutations(name, version, schema, id_columns, mutations, new=True)
            check_soft_addition(name, mutations, schema, [field.name for field in spec.fields])
            properties["format-version"] = str(version)  # a catalog's unknown default must not apply
        create_table(self._catalog, name, schema, spec, rules.location, properties)


def _check_version(version: int, what: str) -> None:
    if version > LINEAGE_VERSION:
        raise ConfigError(f"{what}: format version {version} is not known, only 1 to {LINEAGE_VERSION}")
