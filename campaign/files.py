"""Metadata, manifests and data files as such, without a library of tables."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.orc as orc
import pyarrow.parquet as pq

from campaign.audit import Row

_COLUMNS = ["id", "route", "proof"]


def locations(database: Path) -> dict[str, str]:
    """Where the metadata of each table is, all at one moment; nothing, if the catalog does not answer now."""
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=0.1) as connection:
            rows = connection.execute("select table_namespace, table_name, metadata_location from iceberg_tables")
            return {f"{space}.{name}": location.removesuffix(".broken") for space, name, location in rows}
    except sqlite3.Error:
        return {}


def path_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def avro(location: str) -> list[Any]:
    with path_of(location).open("rb") as file:
        return list(fastavro.reader(file))


def positions(location: str) -> list[tuple[str, int]]:
    """The data files and the places in them that a file of position deletes names."""
    columns = pq.read_table(path_of(location), columns=["file_path", "pos"]).to_pydict()
    return list(zip(columns["file_path"], columns["pos"], strict=True))


def rows(location: str) -> list[Row]:
    """The rows of a data file, whichever format its name says."""
    if location.endswith(".avro"):
        return [Row(*(record[name] for name in _COLUMNS)) for record in avro(location)]
    read = orc.read_table if location.endswith(".orc") else pq.read_table
    columns: Mapping[str, list[Any]] = read(path_of(location), columns=_COLUMNS).to_pydict()
    return [Row(*row) for row in zip(*(columns[name] for name in _COLUMNS), strict=True)]
