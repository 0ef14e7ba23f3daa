"""The embedded catalog: what it keeps, whom it refuses, and who else reads its database."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from calving.iceberg.catalog import open_catalog

SCHEMA = Schema(NestedField(1, "id", LongType()))


def embedded(folder: Path) -> Catalog:
    return open_catalog("lake", {"type": "embedded", "warehouse": str(folder)})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    found = embedded(tmp_path)
    found.create_namespace("db")
    return found


@pytest.fixture
def other(tmp_path: Path, catalog: Catalog) -> Iterator[Catalog]:
    """pyiceberg's own catalog, on the same database."""
    found = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    yield found
    found.close()


def test_a_start_opens_it_without_sqlalchemy(tmp_path: Path) -> None:
    code = (
        "import sys; from calving.iceberg.catalog import open_catalog;"
        f"open_catalog('lake', {{'type': 'embedded', 'warehouse': {str(tmp_path)!r}}}).create_namespace('db');"
        "print([name for name in ('sqlalchemy', 'requests') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_sql_catalog_of_pyiceberg_reads_and_changes_what_it_wrote(catalog: Catalog, other: Catalog) -> None:
    made = catalog.create_table("db.t", SCHEMA)
    found = other.load_table("db.t")
    assert found.metadata == made.metadata
    with found.transaction() as transaction:
        transaction.set_properties(a="1")
    assert catalog.load_table("db.t").properties["a"] == "1"


def test_it_reads_and_changes_what_the_sql_catalog_of_pyiceberg_wrote(catalog: Catalog, other: Catalog) -> None:
    other.create_namespace("more", {"owner": "me"})
    other.create_table("more.t", SCHEMA)
    with catalog.load_table("more.t").transaction() as transaction:
        transaction.set_properties(a="1")
    assert other.load_table("more.t").properties["a"] == "1"
    assert catalog.load_namespace_properties("more") == {"owner": "me"}


def test_a_database_without_kinds_of_rows_is_read_and_written(tmp_path: Path, catalog: Catalog) -> None:
    catalog.create_table("db.t", SCHEMA)
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type")
    catalog = embedded(tmp_path)
    catalog.create_table("db.u", SCHEMA)
    assert catalog.list_tables("db") == [("db", "t"), ("db", "u")]
    assert catalog.load_table("db.u").name() == ("db", "u")


def test_a_view_of_somebody_else_is_no_table(tmp_path: Path, catalog: Catalog) -> None:
    catalog.create_table("db.v", SCHEMA)
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        connection.execute("UPDATE iceberg_tables SET iceberg_type = 'VIEW'")
    assert catalog.list_tables("db") == []
    for refused in (catalog.load_table, catalog.drop_table):
        with pytest.raises(NoSuchTableError):
            refused("db.v")


def test_of_two_commits_on_the_same_metadata_one_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    catalog.create_table("db.t", SCHEMA)
    write = catalog._write_metadata  # type: ignore[attr-defined]

    def meanwhile(*args: object, **kwargs: object) -> None:
        with embedded(tmp_path).load_table("db.t").transaction() as other:
            other.set_properties(winner="other")
        write(*args, **kwargs)

    catalog._write_metadata = meanwhile  # type: ignore[attr-defined]
    with pytest.raises(CommitFailedException), catalog.load_table("db.t").transaction() as ours:
        ours.set_properties({"winner": "ours", "commit.retry.num-retries": "0"})
    assert embedded(tmp_path).load_table("db.t").properties == {"winner": "other"}


def test_a_table_is_created_once_in_a_namespace_that_exists(catalog: Catalog) -> None:
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table("db.t", SCHEMA)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("none.t", SCHEMA)


def test_tables_are_renamed_dropped_and_registered_again(catalog: Catalog) -> None:
    location = catalog.create_table("db.t", SCHEMA).metadata_location
    assert catalog.rename_table("db.t", "db.u").name() == ("db", "u")
    catalog.drop_table("db.u")
    with pytest.raises(NoSuchTableError):
        catalog.load_table("db.u")
    assert catalog.register_table("db.v", location).metadata_location == location
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table("db.t", "db.v")


def test_namespaces_have_levels_and_properties(catalog: Catalog) -> None:
    catalog.create_namespace("a.b.c", {"owner": "me", "gone": "soon"})
    catalog.create_table("a.b.c.t", SCHEMA)
    assert sorted(catalog.list_namespaces()) == [("a",), ("db",)]
    assert catalog.list_namespaces("a") == [("a", "b")]
    assert catalog.namespace_exists("a.b")
    assert not catalog.namespace_exists("a.c")
    assert catalog.list_tables("a.b.c") == [("a", "b", "c", "t")]
    catalog.update_namespace_properties("a.b.c", {"gone"}, {"owner": "you"})
    assert catalog.load_namespace_properties("a.b.c") == {"owner": "you"}


def test_a_namespace_is_created_once_and_dropped_when_it_is_empty(catalog: Catalog) -> None:
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("db")
    catalog.create_table("db.t", SCHEMA)
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("db")
    catalog.drop_table("db.t")
    catalog.drop_namespace("db")
    assert not catalog.namespace_exists("db")
