"""CPU of rewriting small files into one: by calving, and by Spark's ``rewrite_data_files`` with Iceberg's own runtime.

As a program it is Spark's part, ``python -m bench.rewriting WAREHOUSE TABLE ...``, with a Python that has PySpark 4.1.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.upserts import SCHEMA
from calving.cli.maintain import maintain
from calving.iceberg.catalog import open_catalog
from calving.runtime.maintenance.maintainer import MaintenanceOrder
from calving.settings.load import parse
from harness.processes import tree_cpu
from harness.spark_reader import session

_FILES, _ROWS = 200, 10_000
_MILLIONS = _FILES * _ROWS / 1e6
_BY_CALVING, _BY_SPARK = ("bench.a", "bench.b"), ("bench.c", "bench.d")
"""One after the other: a JVM that has just begun is slower."""


def measure(folder: Path, console: Console, python: Path) -> dict[str, list[float]]:
    """CPU seconds of a million rows, of each table in turn, without the start of processes. ``python``: one with
    PySpark 4.1.
    """
    folder.mkdir(parents=True)
    warehouse = folder / "warehouse"
    catalog = open_catalog("iceberg", {"type": "embedded", "warehouse": str(warehouse)})
    catalog.create_namespace("bench")
    files = _files(folder / "files")
    for name in (*_BY_CALVING, *_BY_SPARK):
        catalog.create_table(name, SCHEMA).add_files(files, check_duplicate_files=False)
    found = {"calving": [_by_calving(warehouse, name) for name in _BY_CALVING]}
    found["spark"] = _by_spark(python, warehouse)
    for name in (*_BY_CALVING, *_BY_SPARK):
        table = catalog.load_table(name)
        left, rows = len(table.inspect.data_files()), len(table.scan(selected_fields=("id",)).to_arrow())
        if (left, rows) != (1, _FILES * _ROWS):
            raise RuntimeError(f"{name} has {left} files with {rows} rows")
    shown = Table("by", "CPU s of a million rows, in turn", title=f"{_FILES} files of {_ROWS:,} rows become one")
    for who, seconds in found.items():
        shown.add_row(who, ", ".join(map(str, seconds)))
    console.print(shown)
    return found


def _files(folder: Path) -> list[str]:
    """Those that all tables have, written as other programs do, without ids of columns."""
    folder.mkdir()
    chance = random.Random(1)
    letters = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=80)) for _ in range(1000)]
    paths = [folder / f"{number:03}.parquet" for number in range(_FILES)]
    for number, path in enumerate(paths):
        ids = range(number * _ROWS, (number + 1) * _ROWS)
        columns = {
            "id": pa.array(ids, pa.int64()),
            "ts": pa.array([1_767_225_600_000_000 + i * 1000 for i in ids], pa.timestamp("us", "UTC")),
            "user": pa.array([f"user {chance.randrange(100_000)}" for _ in ids]),
            "type": pa.array([chance.choice(("view", "click", "order")) for _ in ids]),
            "amount": pa.array([chance.random() * 1000 for _ in ids]),
            "payload": pa.array([chance.choice(letters) for _ in ids]),
        }
        pq.write_table(pa.table(columns), path, compression="zstd")
    return [f"file://{path}" for path in paths]


def _by_calving(warehouse: Path, name: str) -> float:
    keys = {
        "name": "rewriting",
        "topics": "t",
        "iceberg.tables": name,
        "kafka.bootstrap.servers": "localhost:1",
        "iceberg.catalog.type": "embedded",
        "iceberg.catalog.warehouse": str(warehouse),
    }
    used = time.process_time()
    for _ in maintain(parse(keys), MaintenanceOrder(tasks=("compact",)), int(time.time() * 1000), "bench"):
        pass
    return round((time.process_time() - used) / _MILLIONS, 2)


def _by_spark(python: Path, warehouse: Path) -> list[float]:
    command = [str(python), "-m", "bench.rewriting", str(warehouse), *_BY_SPARK]
    root = Path(__file__).parents[1]
    paths = [*map(str, root.glob("packages/*/src")), str(root)]
    run = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": ":".join(paths)}, stdout=subprocess.PIPE, check=True, text=True
    )
    found: list[float] = json.loads(run.stdout.splitlines()[-1])
    return found


def main() -> None:
    where, *names = sys.argv[1:]
    found = []
    with session(where) as spark:
        for name in names:
            used = tree_cpu(os.getpid())
            spark.sql(f"call iceberg.system.rewrite_data_files(table => '{name}')").collect()
            found.append(round((tree_cpu(os.getpid()) - used) / _MILLIONS, 2))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
