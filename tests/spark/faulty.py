"""A catalog that fails once where a file says so, also in processes that Spark starts."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Literal

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import CommitTableResponse, Table

Call = Literal["load_table", "commit_table"]
When = Literal["raises before", "raises after", "dies before", "dies after"]


def plan(warehouse: Path, call: Call, number: int, when: When) -> None:
    """The next call of this kind with this number fails, counted from now on over all processes."""
    (warehouse / "fault").write_text(f"{call} {number} {when}")


def has_failed(warehouse: Path) -> bool:
    return not (warehouse / "fault").exists()


class FaultyCatalog(SqlCatalog):
    """SQL, in one file."""

    def load_table(self, identifier: Any) -> Table:
        when = self._fails("load_table")
        _fail(when, "before")
        table = super().load_table(identifier)
        _fail(when, "after")
        return table

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        when = self._fails("commit_table")
        _fail(when, "before")
        done = super().commit_table(table, requirements, updates)
        _fail(when, "after")
        return done

    def _fails(self, call: str) -> str:
        """How this call fails; empty if it does not."""
        path = Path(self.properties["warehouse"].removeprefix("file://")) / "fault"
        if not path.exists():
            return ""
        planned, number, when = path.read_text().split(" ", 2)
        if planned != call:
            return ""
        if int(number) > 1:
            path.write_text(f"{planned} {int(number) - 1} {when}")
            return ""
        path.unlink()
        return when


def _fail(when: str, now: str) -> None:
    if when == f"dies {now}":
        os.kill(os.getpid(), signal.SIGKILL)
    if when == f"raises {now}":
        raise OSError(f"the catalog failed {now} it had done what was asked")
