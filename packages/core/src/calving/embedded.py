"""The catalog of ``type = embedded``: SQLite beside a local warehouse.

Its database has the layout of JDBC catalogs, so that pyiceberg's SQL catalog and Java's JDBC catalog open it, too.
pyiceberg's own class would do the same by way of SQLAlchemy, which takes longer to import than all the rest of a start.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog, MetastoreCatalog, PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table, TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View

if TYPE_CHECKING:
    import pyarrow as pa

Name = str | Identifier

_LAYOUT = (
    "CREATE TABLE IF NOT EXISTS iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT"
    " NULL, table_name VARCHAR(255) NOT NULL, metadata_location VARCHAR(1000), previous_metadata_location"
    " VARCHAR(1000), iceberg_type VARCHAR(5), PRIMARY KEY (catalog_name, table_namespace, table_name))",
    "CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, namespace"
    " VARCHAR(255) NOT NULL, property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000) NOT NULL, PRIMARY KEY"
    " (catalog_name, namespace, property_key))",
)
_FIND = "SELECT * FROM iceberg_tables WHERE (catalog_name, table_namespace, table_name) = (?, ?, ?)"
_LIST = "SELECT * FROM iceberg_tables WHERE (catalog_name, table_namespace) = (?, ?)"
# Without iceberg_type, which old databases lack: where it is null, readers take the row for a table.
_INSERT = (
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) VALUES (?, ?, ?, ?)"
)
_REPLACE = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ?"
    " WHERE (catalog_name, table_namespace, table_name) = (?, ?, ?) AND metadata_location = ?"
)
_RENAME = (
    "UPDATE iceberg_tables SET table_namespace = ?, table_name = ?"
    " WHERE (catalog_name, table_namespace, table_name) = (?, ?, ?)"
)
_DROP = "DELETE FROM iceberg_tables WHERE (catalog_name, table_namespace, table_name) = (?, ?, ?)"
_NAMESPACES = (
    "SELECT table_namespace FROM iceberg_tables WHERE catalog_name = ?1"
    " UNION SELECT namespace FROM iceberg_namespace_properties WHERE catalog_name = ?1"
)
_PROPERTIES = (
    "SELECT property_key, property_value FROM iceberg_namespace_properties WHERE (catalog_name, namespace) = (?, ?)"
)
_SET = "INSERT INTO iceberg_namespace_properties VALUES (?, ?, ?, ?)"
_UNSET = "DELETE FROM iceberg_namespace_properties WHERE (catalog_name, namespace, property_key) = (?, ?, ?)"
_UNSET_ALL = "DELETE FROM iceberg_namespace_properties WHERE (catalog_name, namespace) = (?, ?)"
_LOCK_SECONDS = 30.0


class EmbeddedCatalog(MetastoreCatalog):
    """``uri``: ``sqlite:///`` and the path of the database, which is created if it is missing."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._database = properties["uri"].removeprefix("sqlite:///")
        with self._transaction() as connection:
            for statement in _LAYOUT:
                connection.execute(statement)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._database, timeout=_LOCK_SECONDS)) as connection:
            connection.row_factory = sqlite3.Row
            with connection:  # commits, or rolls back after an error
                yield connection

    def create_table(
        self,
        identifier: Name,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        namespace = Catalog.namespace_from(identifier)
        self._check_namespace(namespace)
        version = int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
        schema = self._convert_schema_if_needed(schema, version)  # type: ignore[arg-type]
        folder = self._resolve_table_location(location, _text(namespace), Catalog.table_name_from(identifier))
        place = load_location_provider(folder, properties).new_table_metadata_file_location()
        metadata = new_table_metadata(schema, partition_spec, sort_order, folder, properties)
        self._write_metadata(metadata, load_file_io(self.properties, place), place)
        self._insert(identifier, place)
        return self.load_table(identifier)

    def register_table(self, identifier: Name, metadata_location: str, overwrite: bool = False) -> Table:
        if overwrite:
            raise NotImplementedError("register_table with overwrite")
        self._check_namespace(Catalog.namespace_from(identifier))
        self._insert(identifier, metadata_location)
        return self.load_table(identifier)

    def load_table(self, identifier: Name) -> Table:
        location = self._location(identifier)
        metadata = FromInputFile.table_metadata(load_file_io(self.properties, location).new_input(location))
        io = self._load_file_io(metadata.properties, location)
        return Table(Catalog.identifier_to_tuple(identifier), metadata, location, io, self)

    def _location(self, identifier: Name) -> str:
        with self._transaction() as connection:
            found = connection.execute(_FIND, self._key(identifier)).fetchone()
        if found is None or not _is_table(found) or not found["metadata_location"]:
            raise NoSuchTableError(f"Table does not exist: {_text(identifier)}")
        return str(found["metadata_location"])

    def drop_table(self, identifier: Name) -> None:
        self._location(identifier)
        with self._transaction() as connection:
            connection.execute(_DROP, self._key(identifier))

    def rename_table(self, from_identifier: Name, to_identifier: Name) -> Table:
        self._location(from_identifier)
        self._check_namespace(Catalog.namespace_from(to_identifier))
        with _one_of_a_name(to_identifier), self._transaction() as connection:
            connection.execute(_RENAME, (*self._key(to_identifier)[1:], *self._key(from_identifier)))
        return self.load_table(to_identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        name = table.name()
        try:
            current: Table | None = self.load_table(name)
        except NoSuchTableError:
            current = None
        staged = self._update_and_stage_table(current, name, requirements, updates)
        if current is not None and staged.metadata == current.metadata:
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        if current is None:
            self._insert(name, staged.metadata_location)
        else:
            self._replace(name, current.metadata_location, staged.metadata_location)
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def _insert(self, identifier: Name, location: str) -> None:
        with _one_of_a_name(identifier), self._transaction() as connection:
            connection.execute(_INSERT, (*self._key(identifier), location))

    def _replace(self, identifier: Name, former: str, location: str) -> None:
        with self._transaction() as connection:
            changed = connection.execute(_REPLACE, (location, former, *self._key(identifier), former))
        if changed.rowcount < 1:
            raise CommitFailedException(f"Table has been updated by another process: {_text(identifier)}")

    def list_tables(self, namespace: Name) -> list[Identifier]:
        self._check_namespace(namespace)
        place = Catalog.identifier_to_tuple(namespace)
        with self._transaction() as connection:
            found = connection.execute(_LIST, (self.name, _text(namespace))).fetchall()
        return [(*place, row["table_name"]) for row in found if _is_table(row)]

    def create_namespace(self, namespace: Name, properties: Properties = EMPTY_DICT) -> None:
        if self.namespace_exists(namespace):
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {_text(namespace)}")
        try:
            with self._transaction() as connection:
                self._set(connection, namespace, properties or {"exists": "true"})
        except sqlite3.IntegrityError as error:
            raise NamespaceAlreadyExistsError(f"Namespace already exists: {_text(namespace)}") from error

    def drop_namespace(self, namespace: Name) -> None:
        if tables := self.list_tables(namespace):
            raise NamespaceNotEmptyError(f"Namespace {_text(namespace)} has {len(tables)} tables")
        with self._transaction() as connection:
            connection.execute(_UNSET_ALL, (self.name, _text(namespace)))

    def namespace_exists(self, namespace: Name) -> bool:
        place = Catalog.identifier_to_tuple(namespace)
        return any(found[: len(place)] == place for found in self._namespaces())

    def list_namespaces(self, namespace: Name = ()) -> list[Identifier]:
        place = Catalog.identifier_to_tuple(namespace)
        if place:
            self._check_namespace(place)
        depth = len(place) + 1
        below = {found[:depth] for found in self._namespaces() if len(found) >= depth}
        return sorted(found for found in below if found[:-1] == place)

    def load_namespace_properties(self, namespace: Name) -> Properties:
        self._check_namespace(namespace)
        with self._transaction() as connection:
            return {row[0]: row[1] for row in connection.execute(_PROPERTIES, (self.name, _text(namespace)))}

    def update_namespace_properties(
        self, namespace: Name, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        current = self.load_namespace_properties(namespace)
        summary, _ = self._get_updated_props_and_update_summary(current, removals, updates)
        with self._transaction() as connection:
            replaced = {*(removals or ()), *updates}
            connection.executemany(_UNSET, [(self.name, _text(namespace), key) for key in replaced])
            self._set(connection, namespace, updates)
        return summary

    def _set(self, connection: sqlite3.Connection, namespace: Name, properties: Properties) -> None:
        rows = [(self.name, _text(namespace), key, value) for key, value in properties.items()]
        connection.executemany(_SET, rows)

    def _namespaces(self) -> set[Identifier]:
        with self._transaction() as connection:
            return {Catalog.identifier_to_tuple(row[0]) for row in connection.execute(_NAMESPACES, (self.name,))}

    def _check_namespace(self, namespace: Name) -> None:
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"Namespace does not exist: {_text(namespace)}")

    def _key(self, identifier: Name) -> tuple[str, str, str]:
        return self.name, _text(Catalog.namespace_from(identifier)), Catalog.table_name_from(identifier)

    def list_views(self, namespace: Name) -> list[Identifier]:
        return []

    def view_exists(self, identifier: Name) -> bool:
        return False

    def load_view(self, identifier: Name) -> View:
        raise NotImplementedError("views in an embedded catalog")

    def drop_view(self, identifier: Name) -> None:
        raise NotImplementedError("views in an embedded catalog")

    def register_view(self, identifier: Name, metadata_location: str) -> View:
        raise NotImplementedError("views in an embedded catalog")


@contextlib.contextmanager
def _one_of_a_name(identifier: Name) -> Iterator[None]:
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise TableAlreadyExistsError(f"Table already exists: {_text(identifier)}") from error


def _text(identifier: Name) -> str:
    return ".".join(Catalog.identifier_to_tuple(identifier))


def _is_table(row: sqlite3.Row) -> bool:
    """Java's and Rust's catalogs keep views in the same place; old databases have no column for the kind."""
    return "iceberg_type" not in row.keys() or row["iceberg_type"] in (None, "TABLE")  # noqa: SIM118 - a row has no `in`
