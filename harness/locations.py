"""Where an embedded catalog says that its tables are. Independent of calving: the checker of campaigns uses it, too."""

from __future__ import annotations

import sqlite3
from pathlib import Path


def locations(database: Path) -> dict[str, str]:
    """Where the metadata of each table is, all at one moment; nothing, if the catalog does not answer now."""
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=0.1) as connection:
            rows = connection.execute("select table_namespace, table_name, metadata_location from iceberg_tables")
            return {f"{space}.{name}": location.removesuffix(".broken") for space, name, location in rows}
    except sqlite3.Error:
        return {}
