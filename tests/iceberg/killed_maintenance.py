"""Maintains a table in processes of which each is killed (SIGKILL) one step later than the one before, until one ends.

A step is the start of a file, a deletion, the request to the catalog, and its answer.
``python -m tests.iceberg.killed_maintenance WAREHOUSE TABLE FILE``: the file has the rows that must be there after each.
"""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyiceberg.catalog.sql  # noqa: F401 - once, and not in each process
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table

from calving.iceberg.catalog import open_catalog
from calving.iceberg.target import IcebergTarget
from tests.iceberg.histories import MutationTable
from tests.iceberg.reader import rows_of


def die_at(last: int) -> None:
    steps = itertools.count()

    def step() -> None:
        if next(steps) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(kind: Any, name: str) -> None:
        original = getattr(kind, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            step()
            return original(*args, **kwargs)

        setattr(kind, name, wrapped)

    before(PyArrowFile, "create")
    before(PyArrowFileIO, "delete")
    before(Table, "_do_commit")
    before(IcebergTarget, "_see")


def in_a_process(work: Any) -> int:
    """Its exit status. The parent starts no threads, so that it may fork."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at_each_step(work: Callable[[int], None], check: Callable[[], None]) -> int:
    """Do ``work``, which dies at the step of its argument, until it ends, and ``check`` each time; the exit status."""
    for kills in range(200):
        ended = in_a_process(lambda last=kills: work(last))
        if ended not in (0, -signal.SIGKILL) or in_a_process(check):
            return 1
        if ended == 0:
            print(kills)
            return 0
    return 1


def kills(module: str, warehouse: Path, table: MutationTable) -> int:
    """How often a module like this one was killed before its work ended. The table keeps the rows that it has now."""
    expected = warehouse / "rows.txt"
    expected.write_text(repr(table.rows()))
    command = [sys.executable, "-m", module, str(warehouse), table.name, str(expected)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout)


def main() -> int:
    warehouse, name, file = sys.argv[1:]
    expected = Path(file).read_text()

    def table() -> MutationTable:
        return MutationTable(open_catalog("iceberg", {"type": "embedded", "warehouse": warehouse}), name)

    def maintain(last: int) -> None:
        die_at(last)
        table().maintain_only()

    def check() -> None:
        assert repr(rows_of(table().table)) == expected

    return killed_at_each_step(maintain, check)


if __name__ == "__main__":
    sys.exit(main())
