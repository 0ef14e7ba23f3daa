"""The demo: a real broker, a deterministic stream, real Spark, a real table, and the proof."""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table
from rich.text import Text

from calving.iceberg.catalog import find_table, table_id
from calving.model.offsets import TopicPartition
from calving.runtime import components
from calving.runtime.app import App, Progress
from calving.services.kafka import kafka
from calving.services.process import interruptible
from calving.settings.load import Sink, parse
from calving.source.client import client_config
from calving.terminal.live import showing

TOPIC, TABLE, PARTITIONS = "events", "demo.events", 3
_EPOCH_MS = 1_767_225_600_000
_KINDS = ("click", "view", "purchase", "refund")


def record(number: int) -> bytes:
    """Record ``number`` of the stream, always the same."""
    return json.dumps(
        {
            "id": number,
            "ts": _EPOCH_MS + number * 10,
            "user": f"user-{number * 7919 % 5000}",
            "type": _KINDS[number % 4],
            "amount": number % 10_000 / 100,
            "device": {"os": ("ios", "android")[number % 2], "version": number % 17},
        },
        separators=(",", ":"),
    ).encode()


def run_demo(folder: Path, records: int, console: Console) -> bool:
    """Run the demo. Returns whether the table holds exactly the records that were produced in all runs in
    ``folder``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / "demo.log")
    console.print(f"Starting Kafka in {folder} ...")
    with interruptible(), kafka(folder / "kafka") as servers:
        sink = _sink(servers, folder / "warehouse")
        _create_topic(servers)
        before = _topic_size(sink)
        rows_before = _rows(sink)
        console.print(f"The topic has {before:,} records, the table {rows_before:,} rows. Producing {records:,} more.")
        producer = _Stream(servers, before, records)
        app = App(sink)

        told = False

        def watch(progress: Progress) -> None:
            nonlocal told
            if not told and not console.is_terminal:
                console.print(f"Status page while it runs: {app.url}", soft_wrap=True)
            told = True
            if producer.done and progress.committed_records >= before + records - rows_before:
                took.append(time.monotonic() - started)
                app.stop()
            if producer.error is not None:
                raise producer.error

        started, took = time.monotonic(), list[float]()
        with showing(console, lambda: app.status, lambda: app.url) if console.is_terminal else nullcontext():
            producer.start()
            app.run(on_progress=watch)
        return prove(sink, before + records, took[0] if took else 0.0, console, folder)


class _Stream(threading.Thread):
    """Produces the records, spread over the partitions, at a pace that the eye can follow."""

    def __init__(self, servers: str, first: int, records: int) -> None:
        super().__init__(daemon=True, name="demo-producer")
        self._producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=20, enable_idempotence=True))
        self._first, self._records = first, records
        self.sent = 0
        self.done = False
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for number in range(self._first, self._first + self._records):
                self._produce(number)
            while self._producer.flush(1):
                pass
            self.done = True
        except KafkaException as error:
            self.error = error

    def _produce(self, number: int) -> None:
        while True:
            try:
                self._producer.produce(TOPIC, record(number), partition=number % PARTITIONS)
                break
            except BufferError:
                self._producer.poll(0.1)
        self.sent += 1
        if self.sent % 1000 == 0:
            self._producer.poll(0)
            time.sleep(0.02)


def _sink(servers: str, warehouse: Path) -> Sink:
    return parse(
        {
            "name": "demo",
            "topics": TOPIC,
            "iceberg.tables": TABLE,
            "iceberg.tables.auto-create-enabled": "true",
            "iceberg.tables.default-partition-by": "bucket(user, 4)",
            "iceberg.control.commit.interval-ms": "2000",
            "iceberg.catalog.type": "embedded",
            "iceberg.catalog.warehouse": str(warehouse),
            "iceberg.http.port": "0",
            "kafka.bootstrap.servers": servers,
            "spark.master": "local[2]",
        }
    )


def _create_topic(servers: str) -> None:
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    try:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def _topic_size(sink: Sink) -> int:
    topics = components.source(sink)
    ends = topics.bounds([TopicPartition(TOPIC, p) for p in range(PARTITIONS)]).ends
    return sum(ends.values())


def _rows(sink: Sink) -> int:
    """The number of rows in the table, according to its metadata."""
    table = find_table(components.catalog(sink), table_id(TABLE))
    head = table.current_snapshot() if table is not None else None
    return int(head.summary["total-records"] or 0) if head is not None and head.summary is not None else 0


def prove(sink: Sink, expected: int, seconds: float, console: Console, folder: Path) -> bool:
    """Read the table back with DuckDB, which had no part in writing it, and compare."""
    counts = read_back(sink, expected)
    missing, doubled, foreign = expected - counts.known, counts.rows - counts.distinct, counts.distinct - counts.known
    figures = Table(box=None, show_header=False, pad_edge=False, padding=(0, 3, 0, 0))
    for name, value in (
        ("records produced, ever", expected),
        (f"rows read back by {counts.reader}", counts.rows),
        ("missing", missing),
        ("doubled", doubled),
        ("never produced", foreign),
    ):
        figures.add_row(name, Text(f"{value:,}", justify="right"))
    figures.add_row("seconds until all was committed", Text(f"{seconds:.1f}", justify="right"))
    console.print(figures)
    proven = not (missing or doubled or foreign)
    console.print("[green]Exactly once.[/green]" if proven else "[red]The table is wrong.[/red]")
    console.print("\nTry next:")
    for command, text in (
        ("calving demo --records 1000000", "a million more, proven together with these"),
        (f"grep ' commit ' {folder / 'demo.log'}", "every commit, and how long it took"),
        (f"ls -R {folder / 'warehouse'}", "the table's files: read them with any engine for Iceberg"),
    ):
        console.print(f"  {command}   [dim]{text}[/dim]", highlight=False, soft_wrap=True)
    return proven


class RowCounts(NamedTuple):
    """The number of rows, of distinct ids, and of distinct ids that were produced."""

    reader: str
    rows: int
    distinct: int
    known: int


def read_back(sink: Sink, expected: int) -> RowCounts:
    """Read the table with DuckDB if it is installed with its extension for Iceberg, otherwise with pyiceberg."""
    table = find_table(components.catalog(sink), table_id(TABLE))
    if table is None:
        return RowCounts("nobody", 0, 0, 0)
    try:
        return RowCounts("DuckDB", *_counted_by_duckdb(table.metadata_location, expected))
    except ImportError:
        ids = table.scan(selected_fields=("id",)).to_arrow()["id"]
        distinct = ids.unique()
        return RowCounts("pyiceberg", len(ids), len(distinct), sum(0 <= i < expected for i in distinct.to_pylist()))


def _counted_by_duckdb(metadata: str, expected: int) -> tuple[int, int, int]:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("duckdb_extension_avro", "duckdb_extension_iceberg"):
        (path,) = Path(str(import_module(name).__file__)).parent.rglob("*.duckdb_extension")
        connection.load_extension(str(path))
    counts = "count(*), count(DISTINCT id), count(DISTINCT id) FILTER (WHERE id >= 0 AND id < $expected)"
    query = f"SELECT {counts} FROM iceberg_scan($metadata)"  # noqa: S608 - no part of it is given
    (row,) = connection.execute(query, {"expected": expected, "metadata": metadata}).fetchall()
    rows, distinct, known = row
    return rows, distinct, known


def _log_to(path: Path) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
