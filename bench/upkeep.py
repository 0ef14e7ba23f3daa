"""Upserts with a commit interval of one second into a table that the sink maintains: what does a reader pay, and when?

Each sample compares the table with a copy of its rows in one file, read at the same moment.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import UpgradeFormatVersionUpdate
from rich.console import Console

from bench import latency, steady
from bench.upserts import SCHEMA, make_live
from calving.iceberg.catalog import open_catalog
from calving.services.kafka import kafka
from calving.services.process import Process
from calving.source.client import client_config
from harness.duckdb_extensions import connected
from harness.processes import stat, tree_cpu

_TOPIC, _PARTITIONS = "upkeep", 2
_COPY = ("bench", "copy")
_EVERY_SECONDS = 67.0
"""Between two samples. Maintenance has another rhythm, so samples meet all its phases."""
_SETTLED_SECONDS = 600.0
_SMALL_FILES = 4
"""Readers pay about as much for each small file and its manifest as for a megabyte of rows."""
_START_SECONDS = 120.0
_TICKS_OF_CHILDREN = slice(13, 15)
_TRIES = 3
_QUERIES = {
    "scan": "select count(*), sum(amount), max(\"user\"), max(payload), max(ts) from iceberg_scan('{}')",
    "filter": "select count(*), sum(amount) from iceberg_scan('{}') where id between 1000 and 2000",
}
_PROPERTIES = {
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "calving.expire.max-snapshots": "200",
    "write.target-file-size-bytes": str(64 * 2**20),
}
"""Those of a table that the sink has created, with a target that fits its size."""
Sample = Mapping[str, float]


def measure(folder: Path, console: Console, calving: Path, seconds: float, pause_ms: int) -> object:
    """Each sample goes to ``bench-results/upkeep.jsonl`` at once; returns the extremes of those after ten minutes."""
    keys = {"type": "embedded", "warehouse": str(folder / "warehouse")}
    catalog = open_catalog("iceberg", keys)
    catalog.create_namespace("bench")
    table = catalog.create_table(latency.TABLE, SCHEMA, properties=_PROPERTIES)
    make_live(table, steady.ROWS)
    # pyiceberg itself appends no rows in version 3.
    catalog.commit_table(catalog.load_table(latency.TABLE), (), (UpgradeFormatVersionUpdate(format_version=3),))
    copies = open_catalog("copies", {"type": "embedded", "warehouse": str(folder / "copies")})
    copies.create_namespace("bench")
    with kafka(folder / "kafka") as servers:
        admin = AdminClient(client_config({"bootstrap.servers": servers}))
        admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1)])[_TOPIC].result()
        config = folder / "upkeep.json"
        config.write_text(json.dumps(_settings(servers, keys, pause_ms)))
        with _sending(servers), _sink(calving, config) as pid:
            samples = list(_samples(catalog, copies, pid, seconds))
    found = _told(samples)
    console.print(f"{steady.RATE} upserts/s into {steady.ROWS:,} rows for {seconds:,.0f} s, maintained: {found}")
    return found


def _settings(servers: str, keys: dict[str, str], pause_ms: int) -> dict[str, object]:
    return latency.settings(servers, _TOPIC, keys) | {
        "iceberg.tables.upsert-mode-enabled": True,
        "iceberg.tables.default-id-columns": "id",
        "iceberg.maintenance.enabled": True,
        "iceberg.maintenance.small-files": _SMALL_FILES,
        "iceberg.maintenance.pause-ms": pause_ms,
        "iceberg.maintenance.grace-ms": 300_000,
    }


@contextmanager
def _sending(servers: str) -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=steady.send, args=(servers, _TOPIC, end))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def _sink(calving: Path, config: Path) -> Iterator[int]:
    log = Path("bench-results") / "upkeep.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    worker = Process([str(calving), "run", str(config)], log, {"CALVING_LOG_LEVEL": "INFO"})
    try:
        yield worker.pid
    finally:
        worker.signal(signal.SIGTERM)
        try:
            worker.wait(30)
        except subprocess.TimeoutExpired:
            worker.stop()


def _samples(catalog: Catalog, copies: Catalog, pid: int, seconds: float) -> Iterator[Sample]:
    out = Path("bench-results") / "upkeep.jsonl"
    out.write_text("")
    started = time.monotonic()
    while not steady.commits(catalog.load_table(latency.TABLE)):
        if time.monotonic() > started + _START_SECONDS:
            raise RuntimeError("the sink does not commit, see bench-results/upkeep.log")
        time.sleep(1)
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        table = catalog.load_table(latency.TABLE)
        sample = {"second": round(at), **_size(table), **_cost(table, copies), **_cpu(pid)}
        with out.open("a") as lines:
            lines.write(json.dumps(sample) + "\n")
        yield sample
        time.sleep(max(0.0, began + at + _EVERY_SECONDS - time.monotonic()))


def _size(table: Table) -> dict[str, float]:
    """Of the table's metadata, and of its folder."""
    snapshot = table.current_snapshot()
    summary = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
    metadata = Path(table.metadata_location.removeprefix("file://"))
    on_disk = [file.stat().st_size for file in metadata.parent.parent.rglob("*") if file.is_file()]
    return {
        "data files": int(summary.get("total-data-files", "0")),
        "delete files": int(summary.get("total-delete-files", "0")),
        "manifests": 0 if snapshot is None else len(snapshot.manifests(table.io)),
        "snapshots": len(table.metadata.snapshots),
        "metadata bytes": metadata.stat().st_size,
        "files on disk": len(on_disk),
        "MiB on disk": round(sum(on_disk) / 2**20),
    }


def _cost(table: Table, copies: Catalog) -> dict[str, float]:
    """Of queries, beside the same ones of the same rows in one file."""
    location = table.metadata_location.removeprefix("file://")
    rows = connected().execute(f"select * from iceberg_scan('{location}')").to_arrow_table()
    if rows.num_rows != steady.ROWS:
        kept = shutil.copytree(Path(location).parents[1], Path("bench-results") / "wrong-rows", dirs_exist_ok=True)
        raise RuntimeError(f"DuckDB reads {rows.num_rows:,} rows of {location}; a copy of the table is in {kept}")
    if copies.table_exists(_COPY):
        copies.purge_table(_COPY)
    copy = copies.create_table(_COPY, table.schema())
    copy.append(rows.cast(table.schema().as_arrow()))
    found: dict[str, float] = {}
    for name, query in _QUERIES.items():
        live = _seconds(query.format(location))
        fresh = _seconds(query.format(copy.metadata_location.removeprefix("file://")))
        found |= {f"{name} s": live[0], f"{name} CPU s": live[1]}
        found |= {f"{name} ratio": round(live[0] / fresh[0], 2), f"{name} CPU ratio": round(live[1] / fresh[1], 2)}
    return {"rows": rows.num_rows, **found}


def _seconds(query: str) -> tuple[float, float]:
    """Wall time and CPU, the best of some tries."""
    connection = connected()
    walls, cpus = [], []
    for _ in range(_TRIES):
        wall, cpu = time.perf_counter(), time.process_time()
        _answer(connection, query)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return round(min(walls), 4), round(min(cpus), 4)


def _answer(connection: duckdb.DuckDBPyConnection, query: str) -> Sequence[object]:
    return connection.execute(query).fetchall()


def _cpu(pid: int) -> dict[str, float]:
    """Seconds so far: of all, and of the processes that rewrite files, which are the ended children of the worker."""
    ended = sum(map(int, stat(pid)[_TICKS_OF_CHILDREN]))
    return {"CPU s of all": round(tree_cpu(pid), 1), "CPU s of rewriting": round(ended / 100, 1)}


def _told(samples: Sequence[Sample]) -> dict[str, object]:
    """Of the samples after ten minutes; of all, if it did not take that long."""
    later = [each for each in samples if each["second"] >= _SETTLED_SECONDS] or list(samples)
    names = [name for name in later[0] if name != "second"]
    spans = {
        name: {
            "min": min(each[name] for each in later),
            "median": statistics.median(each[name] for each in later),
            "max": max(each[name] for each in later),
        }
        for name in names
    }
    return {"samples": len(later), **spans}
