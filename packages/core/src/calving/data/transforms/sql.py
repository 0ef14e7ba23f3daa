"""One SELECT over the records, run in the task by DuckDB."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from calving.data.records import Records
from calving.data.transforms.columns import check_options, required
from calving.data.transforms.interface import Transform
from calving.errors import ConfigError

_PLACE = "__calving_place"
_SELECT = re.compile(r"\s*select\s+(?!distinct\b)", re.IGNORECASE)


class Sql(Transform):
    """``query``: a SELECT from ``records``, whose columns are the value's fields.

    Each row comes from one record: WHERE drops records, no join, aggregate or DISTINCT. The query reaches nothing
    outside: no files, no network. Tombstones pass by.
    """

    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("query",), "Sql")
        query = required(options, "query", "Sql").strip().rstrip(";")
        match = _SELECT.match(query)
        if match is None or ";" in query:
            raise ConfigError("transform Sql: the query is one SELECT ... FROM records, without DISTINCT")
        # Each row says which record it comes from; DuckDB's own error names what cannot be traced back.
        self._query = f"SELECT {_PLACE} AS {_PLACE}, {query[match.end() :]}"
        self._connection: Any = None

    def apply(self, records: Records) -> Records:
        if not pa.types.is_struct(records.value.type):
            raise ValueError(f"an object is wanted, not {records.value.type}")
        table = pa.Table.from_struct_array(pa.chunked_array([records.value]))
        places = pa.array(range(len(records)), pa.int32())
        connection = self._open()
        connection.register("records", table.append_column(_PLACE, places))
        try:
            found = connection.execute(self._query).to_arrow_table()
        finally:
            connection.unregister("records")
        origin = found.column(0).combine_chunks()
        if len(origin.unique()) < len(origin):
            raise ValueError("the query makes several rows of one record")
        names = [i for i, name in enumerate(found.column_names) if not name.startswith(_PLACE)]
        rows = found.select(names).combine_chunks().to_struct_array()
        rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
        return records.take(origin.cast(pa.int32())).with_value(rows)

    def _open(self) -> Any:
        if self._connection is None:
            try:
                import duckdb
            except ImportError as error:
                raise ConfigError('transform Sql: install "calving[sql]"') from error
            self._connection = duckdb.connect(":memory:", config={"threads": 1})
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET lock_configuration = true")
        return self._connection
