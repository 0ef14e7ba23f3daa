"""DuckDB's extensions for Iceberg, from packages: nothing is downloaded."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
from pyiceberg.table import Table


def extensions() -> list[Path]:
    """In the order in which they have to be loaded."""
    packages = (duckdb_extension_avro, duckdb_extension_iceberg)
    return [next(Path(package.__file__).parent.rglob("*.duckdb_extension")) for package in packages]


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for the whole process: loading the extensions takes 0.2 s."""
    connection = duckdb.connect()
    for path in extensions():
        connection.execute(f"LOAD '{path}'")
    # With its cache DuckDB 1.5.5 may apply a wrong deletion vector if a Puffin file holds several.
    connection.execute("SET enable_external_file_cache = false")
    return connection


def connected() -> duckdb.DuckDBPyConnection:
    """A connection to a database that has them."""
    return _database().cursor()


def duckdb_rows(table: Table, columns: str = "*") -> list[tuple[Any, ...]]:
    location = table.metadata_location.removeprefix("file://")
    return sorted(connected().execute(f"select {columns} from iceberg_scan('{location}')").fetchall(), key=repr)
