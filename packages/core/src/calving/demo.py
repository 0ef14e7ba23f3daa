"""The demo: a real broker, a deterministic stream, real Spark, a real table, and the proof."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.live import Live
from rich.table import Table

from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.iceberg.snapshot import java_date_time
from calving.model.offsets import TopicPartition
from calving.runtime.app import App, Progress
from calving.services.kafka import kafka
from calving.services.process import interruptible
from calving.settings.load import Sink, parse
from calving.source.client import client_config
from calving.source.kafka import Topics

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
    """Whether the table holds exactly what the topic was given, over all runs in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    _log_to(folder / "demo.log")
    console.print(f"Starting Kafka in {folder} ...")
    with interruptible(), kafka(folder / "kafka") as servers:
        sink = _sink(servers, folder / "warehouse")
        _create_topic(servers)
        before = _topic_size(sink)
        rows_before = len(_ids(sink))
        console.print(f"The topic has {before:,} records, the table {rows_before:,} rows. Producing {records:,} more.")
        producer = _Stream(servers, before, records)
        app = App(sink)
        with Live(console=console, refresh_per_second=4) as live:

            def show(progress: Progress) -> None:
                live.update(_table(progress, producer.sent, time.monotonic() - started))
                if producer.done and progress.committed_records >= before + records - rows_before:
                    app.stop()
                if producer.error is not None:
                    raise producer.error

            started = time.monotonic()
            producer.start()
            app.run(on_progress=show)
        return _prove(sink, before + records, console)


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
            "kafka.bootstrap.servers": servers,
            "spark.master": "local[2]",
            "spark.log.level": "ERROR",
            "spark.ui.showConsoleProgress": "false",
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
    topics = Topics(sink.kafka, [TOPIC], None)
    ends = topics.bounds([TopicPartition(TOPIC, p) for p in range(PARTITIONS)]).ends
    return sum(ends.values())


def _ids(sink: Sink) -> pa.ChunkedArray:
    """Read back with pyiceberg, which had no part in writing the files."""
    table = find_table(open_catalog(sink.keys.catalog_name, sink.catalog), table_id(TABLE))
    if table is None:
        return pa.chunked_array([pa.array([], pa.int64())])
    return table.scan(selected_fields=("id",)).to_arrow()["id"]


def _prove(sink: Sink, expected: int, console: Console) -> bool:
    ids = _ids(sink)
    distinct = len(ids.unique())
    missing = expected - distinct
    twice = len(ids) - distinct
    foreign = sum(1 for i in ids.unique().to_pylist() if not 0 <= i < expected)
    console.print(f"Produced {expected:,}; rows {len(ids):,}; missing {missing + foreign:,}; twice {twice:,}.")
    proven = len(ids) == expected == distinct and not foreign
    console.print("[green]Exactly once.[/green]" if proven else "[red]The table is wrong.[/red]")
    return proven


def _table(progress: Progress, sent: int, seconds: float) -> Table:
    table = Table(title=f"calving demo, {seconds:.0f} s")
    for column in ("produced", "read", "lag", "files", "commits", "rows committed", "valid through"):
        table.add_column(column, justify="right")
    through = java_date_time(progress.valid_through_us) if progress.valid_through_us is not None else "-"
    table.add_row(
        f"{sent:,}",
        f"{progress.read:,}",
        f"{progress.behind:,}",
        f"{progress.files:,}",
        f"{progress.commits:,}",
        f"{progress.committed_records:,}",
        through,
    )
    return table


def _log_to(path: Path) -> None:
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
