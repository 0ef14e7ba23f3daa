"""DuckDB for one transform ``Sql``: here it parses and plans a query, and in a process of its own it reads records."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from calving.errors import ConfigError
from calving.model.record_path import Limits
from calving.transforms.query_process import lent


class Database:
    """Runs queries over a table called ``records``. ``error``: the class of DuckDB's errors."""

    def __init__(self) -> None:
        """:raises ConfigError: DuckDB is not installed."""
        try:
            import duckdb
        except ImportError as error:
            raise ConfigError('transform Sql: install "calving[sql]"') from error
        self.connection: Any = duckdb.connect(":memory:", config={"threads": 1})
        self.error: type[Exception] = duckdb.Error
        self.limits = Limits()
        for setting in ("TimeZone = 'UTC'", "temp_directory = ''", "enable_external_access = false"):
            self.connection.execute(f"SET {setting}")
        self.connection.execute("SET lock_configuration = true")

    def steps(self, table: pa.Table, query: str) -> list[str]:
        """The steps of the query's plan for such a table. No row of it is read."""
        self.connection.register("records", table.slice(0, 0))
        try:
            plan = self.connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()[0][1]
        finally:
            self.connection.unregister("records")
        steps: list[str] = []
        pending = json.loads(str(plan))
        while pending:
            step = pending.pop()
            steps.append(step["name"].strip())
            pending += step["children"]
        return steps

    def run_empty(self, table: pa.Table, query: str) -> None:
        """Run the query for such a table without rows.

        :raises duckdb.Error: DuckDB has no such columns. :raises pa.ArrowException: Arrow has none for the result.
        """
        self.connection.register("records", table.slice(0, 0))
        try:
            self.connection.execute(query).to_arrow_table(batch_size=1)
        finally:
            self.connection.unregister("records")

    def run(self, table: pa.Table, query: str) -> tuple[pa.Table, set[int]]:
        """The rows, and the places of the columns that are JSON. Arrow has them as text.

        :raises QueryEndedError: the query takes too much time or memory, or ends its process. :raises duckdb.Error: it
            cannot be computed for a row. :raises UnavailableError: no row is the cause.
        """
        with lent(self.limits) as process:
            return process.run(table, query)
