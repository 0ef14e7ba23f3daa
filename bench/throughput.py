"""The whole sink over a topic, started as a user starts it, until all is read; the Java sink over the same topic."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform

from bench import java_sink, meter
from bench.upserts import SCHEMA, make_live
from calving.iceberg.catalog import open_catalog
from calving.source.client import client_config

PARTITIONS = 4
TABLE = "bench.events"
_EPOCH_MS = 1_767_225_600_000
_MS_BETWEEN_RECORDS = 40
"""Five million records are 2.3 days."""
_BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day"))


@dataclass(frozen=True, slots=True)
class Case:
    """One sink over one topic, from its start to its last commit."""

    name: str
    """Of the sink; differs between the cases of one folder."""
    topic: str
    records: int
    ts: str
    """``epoch`` or ``iso``."""
    by_day: bool = False
    live: bool = False
    """The table has ``upserts.LIVE`` rows at the start."""
    rows: int | None = None
    """In the table at the end; None: as many as records."""
    distinct: int | None = None
    """Ids there; None: as many as rows."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Of the configuration, beyond the usual ones."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of the table, beyond the usual ones."""


def record(number: int, ts: str, payload: str) -> bytes:
    """About 176 bytes, six columns."""
    millis = _EPOCH_MS + number * _MS_BETWEEN_RECORDS
    when = (
        str(millis)
        if ts == "epoch"
        else f'"{datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")}"'
    )
    return (
        f'{{"id":{number},"ts":{when},"user":"user-{number * 7919 % 100_000}",'
        f'"type":"{("click", "view", "buy")[number % 3]}","amount":{number % 100_000 / 100},"payload":"{payload}"}}'
    ).encode()


def partial_record(number: int, ts: str, payload: str) -> bytes:
    """The same without ``type`` and ``user``."""
    fields = json.loads(record(number, ts, payload))
    left = {name: value for name, value in fields.items() if name not in ("user", "type")}
    return json.dumps(left, separators=(",", ":")).encode()


def create_topic(servers: str, topic: str) -> None:
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()


def fill(servers: str, topic: str, numbers: range, ts: str) -> float:
    """Send the records of these numbers, each with a payload of its own. Returns their mean size in bytes."""
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=50, compression_type="lz4"))
    chance = random.Random(numbers.start)
    size = 0
    for number in numbers:
        value = record(number, ts, chance.randbytes(40).hex())
        size += len(value)
        while True:
            try:
                producer.produce(topic, value, partition=number // 1000 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.2)
    producer.flush()
    return size / len(numbers)


def warm(calving: Path, servers: str, folder: Path) -> None:
    """Leaves what every later start finds in the cache."""
    create_topic(servers, "bench-first")
    fill(servers, "bench-first", range(1000), "iso")
    drain(calving, servers, folder, Case("bench-first", "bench-first", 1000, "iso"))


def drain(calving: Path, servers: str, folder: Path, case: Case) -> dict[str, object]:
    """Run calving over the whole topic, and verify the table."""
    catalog_keys = create_table(folder / case.name, case)
    config = folder / f"{case.name}.json"
    config.write_text(
        json.dumps(
            {
                "name": case.name,
                "topics": case.topic,
                "iceberg.tables": TABLE,
                "iceberg.control.commit.interval-ms": 60_000,
                "iceberg.control.topic": f"control-{case.name}",
                "kafka.bootstrap.servers": servers,
                **{f"iceberg.catalog.{k}": v for k, v in catalog_keys.items()},
                "spark.master": "local[2]",
                "spark.ui.showConsoleProgress": "false",
                **case.keys,
            }
        )
    )
    log = _log(case)
    usage = meter.run([str(calving), "run", "--until-caught-up", str(config)], log, {"CALVING_LOG_LEVEL": "INFO"})
    if usage.returncode:
        sys.exit(f"the sink failed, see {log}:\n" + "\n".join(log.read_text().splitlines()[-20:]))
    return {
        **measured("calving", usage, catalog_keys, case),
        "stages_cpu_seconds_per_million": _stages(log.read_text(), case.records, usage.cpu_seconds),
        "first_batch_seconds": _first_batch(log.read_text()),
    }


def drain_with_java(servers: str, folder: Path, case: Case) -> dict[str, object]:
    """Run the Java sink until its last commit, and verify the table."""
    warehouse = folder / case.name
    catalog_keys = create_table(warehouse, case)
    catalog = open_catalog("iceberg", catalog_keys)

    def done() -> bool:
        snapshot = catalog.load_table(TABLE).current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        return summary is not None and summary["total-records"] == str(case.records)

    usage = java_sink.drain(servers, case.name, case.topic, folder, warehouse, done, _log(case))
    return measured("Java", usage, catalog_keys, case)


def create_table(warehouse: Path, case: Case) -> dict[str, str]:
    """Create the table; returns the keys of its catalog."""
    catalog_keys = {"type": "embedded", "warehouse": str(warehouse)}
    catalog = open_catalog("iceberg", catalog_keys)
    catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])
    spec = _BY_DAY if case.by_day else UNPARTITIONED_PARTITION_SPEC
    # What tables made by Iceberg itself get; without it the Java sink writes gzip.
    properties = {"write.parquet.compression-codec": "zstd", **case.properties}
    table = catalog.create_table(TABLE, SCHEMA, partition_spec=spec, properties=properties)
    if case.live:
        make_live(table)
    return catalog_keys


def _log(case: Case) -> Path:
    log = Path("bench-results") / f"{case.name}.log"
    log.parent.mkdir(exist_ok=True)
    return log


def measured(sink: str, usage: meter.Usage, catalog_keys: Mapping[str, str], case: Case) -> dict[str, object]:
    """The used resources, after a check that the table is complete."""
    rows = case.records if case.rows is None else case.rows
    distinct = rows if case.distinct is None else case.distinct
    table = open_catalog("iceberg", catalog_keys).load_table(TABLE)
    ids = table.scan(selected_fields=("id",)).to_arrow()["id"]
    size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    if len(ids) != rows or len(ids.unique()) != distinct:
        sys.exit(f"the table of {case.name} is wrong: {len(ids)} rows, {len(ids.unique())} distinct, {rows} expected")
    return {
        "sink": sink,
        "ts": case.ts,
        "by_day": case.by_day,
        "records": case.records,
        "wall_seconds": round(usage.wall_seconds, 2),
        "records_per_second": round(case.records / usage.wall_seconds),
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "cpu_seconds_per_million": round(usage.cpu_seconds / case.records * 1e6, 3),
        "peak_mib": round(usage.peak_bytes / 2**20),
        "bytes_per_row": round(size / rows, 1),
    }


def _stages(log: str, records: int, cpu_seconds: float) -> dict[str, float]:
    """Stages of the tasks; overhead is the rest: Spark, start-up, librdkafka's threads, coordination."""
    found = re.findall(r"stages, CPU seconds: (.*)", log)
    pairs = re.findall(r"(\w+) ([\d.]+)", found[-1]) if found else []
    stages = {name: float(seconds) for name, seconds in pairs}
    stages["overhead"] = cpu_seconds - sum(stages.values())
    return {name: round(seconds / records * 1e6, 3) for name, seconds in stages.items()}


def _first_batch(log: str) -> float | None:
    match = re.search(r"first batch finished (\S+) s after the start", log)
    return float(match.group(1)) if match else None
