"""DuckDB for one transform ``Sql``: here it parses and plans a query, and in a process of its own it reads records."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from calving.errors import ConfigError
from calving.model.record_path import Limits
from calving.transforms.query_errors import CUT


class Database:
    """Runs queries over a table called ``records``. ``error``: the class of DuckDB's errors."""

    def __init__(self) -> None:
        """:raises ConfigError: DuckDB is not installed."""
        try:
            import duckdb

            from calving.transforms import query_process
        except ImportError as error:
            raise ConfigError('transform Sql: install "calving[sql]"') from error
        self._process = query_process
        self.error: type[Exception] = duckdb.Error
        self.limits = Limits()
        self._connection: Any = _connection()

    def execute(self, query: str, parameters: Sequence[object] = ()) -> Any:
        """DuckDB's answer to a query that reads no records.

        :raises duckdb.Error: it refuses the query.
        """
        try:
            return self._connection.execute(query, parameters)
        except self._process.INVALIDATING:
            self._connection = _connection()
            raise
        except (UnicodeDecodeError, self.error) as error:
            if isinstance(error, self.error) and str(error):
                raise
            raise self.error(CUT) from error

    def steps(self, table: pa.Table, query: str) -> list[str]:
        """The steps of the query's plan for such a table. No row of it is read."""
        steps: list[str] = []
        with self._planned(table, f"EXPLAIN (FORMAT json) {query}") as planned:
            pending = json.loads(str(planned.fetchall()[0][1]))
        while pending:
            step = pending.pop()
            steps.append(step["name"].strip())
            pending += step["children"]
        return steps

    def types(self, table: pa.Table, query: str) -> Sequence[tuple[str, Any]]:
        """The names of the query's columns for such a table, with DuckDB's types. No row of it is read."""
        with self._planned(table, query) as planned:
            return [(name, kind) for name, kind, *_ in planned.description]

    def run_empty(self, table: pa.Table, query: str) -> None:
        """Run the query for such a table without rows.

        :raises duckdb.Error: DuckDB has no such columns. :raises pa.ArrowException: Arrow has none for the result.
        """
        with self._planned(table, query) as planned:
            planned.to_arrow_table(batch_size=1)

    @contextmanager
    def _planned(self, table: pa.Table, query: str) -> Iterator[Any]:
        connection = self._connection
        connection.register("records", table.slice(0, 0))
        try:
            yield self.execute(query)
        finally:
            if connection is self._connection:
                connection.unregister("records")

    def run(self, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        """The rows, and the places of the columns that are JSON. Arrow has them as text.

        :raises QueryEndedError: the query takes too much time or memory, or ends DuckDB. :raises duckdb.Error: it
            cannot be computed for a row. :raises UnavailableError: no row is the cause.
        """
        with self._process.lent(self.limits) as process:
            return process.run(table, query)


def _connection() -> Any:
    import duckdb

    connection = duckdb.connect(":memory:", config={"threads": 1})
    for setting in ("TimeZone = 'UTC'", "temp_directory = ''", "enable_external_access = false"):
        connection.execute(f"SET {setting}")
    connection.execute("SET lock_configuration = true")
    return connection
