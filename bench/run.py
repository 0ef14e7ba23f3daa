"""``make bench``: throughput of the whole sink, and the cost of commits. Prints a table, saves JSON."""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyspark
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench import (
    backends,
    commits,
    java_sink,
    latency,
    memory,
    meter,
    mutations,
    partitions,
    records,
    recovery,
    start,
    steady,
)
from bench.upserts import LIVE, SCHEMA, make_live
from bench.upserts import fill as fill_changes
from calving.iceberg.catalog import open_catalog
from calving.services.kafka import kafka
from calving.services.process import interruptible
from calving.source.client import client_config

PARTITIONS = 4
_RECORDS_OF_A_CASE = 200_000
_EPOCH_MS = 1_767_225_600_000


_UPSERT = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.table.bench.events.id-columns": "id"}


@dataclass(frozen=True, slots=True)
class Upserts:
    """A run into a table with live rows: its keys beyond the usual ones, rows and ids in the end."""

    name: str
    keys: Mapping[str, str]
    rows: int
    distinct: int


def record(number: int, ts: str, payload: str) -> bytes:
    """About 176 bytes, six columns."""
    millis = _EPOCH_MS + number
    when = (
        str(millis)
        if ts == "epoch"
        else f'"{datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")}"'
    )
    return (
        f'{{"id":{number},"ts":{when},"user":"user-{number * 7919 % 100_000}",'
        f'"type":"{("click", "view", "buy")[number % 3]}","amount":{number % 100_000 / 100},"payload":"{payload}"}}'
    ).encode()


def fill(servers: str, topic: str, records: int, ts: str) -> float:
    """Mean record size, bytes."""
    admin = AdminClient(client_config({"bootstrap.servers": servers}))
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer(client_config({"bootstrap.servers": servers}, linger_ms=50, compression_type="lz4"))
    letters = random.Random(1)
    payloads = ["".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=80)) for _ in range(1000)]
    size = 0
    for number in range(records):
        value = record(number, ts, payloads[number % 1000])
        size += len(value)
        while True:
            try:
                producer.produce(topic, value, partition=number * PARTITIONS // records)
                break
            except BufferError:
                producer.poll(0.2)
    producer.flush()
    return size / records


def drain(
    calving: Path, servers: str, topic: str, folder: Path, records: int, ts: str, upserts: Upserts | None = None
) -> dict[str, object]:
    """Run the sink over the whole topic, and verify the table."""
    name = topic if upserts is None else f"{topic}-{upserts.name}"
    config = folder / f"{name}.json"
    warehouse = folder / f"warehouse-{name}"
    catalog_keys = {"type": "embedded", "warehouse": str(warehouse)}
    config.write_text(
        json.dumps(
            {
                "name": name,
                "topics": topic,
                "iceberg.tables": "bench.events",
                "iceberg.control.commit.interval-ms": 60_000,
                "iceberg.control.topic": f"control-{name}",
                "kafka.bootstrap.servers": servers,
                **{f"iceberg.catalog.{k}": v for k, v in catalog_keys.items()},
                "spark.master": "local[2]",
                "spark.ui.showConsoleProgress": "false",
                **({} if upserts is None else upserts.keys),
            }
        )
    )
    _create_table(catalog_keys, live=upserts is not None)
    log = Path("bench-results") / f"{name}.log"
    log.parent.mkdir(exist_ok=True)
    command = [str(calving), "run", "--until-caught-up", str(config)]
    usage = meter.run(command, log, {"CALVING_LOG_LEVEL": "INFO"})
    if usage.returncode:
        sys.exit(f"the sink failed, see {log}:\n" + "\n".join(log.read_text().splitlines()[-20:]))
    return {
        **_measured("calving", usage, catalog_keys, records, ts, upserts),
        "stages_cpu_seconds_per_million": _stages(log.read_text(), records, usage.cpu_seconds),
        "first_batch_seconds": _first_batch(log.read_text()),
    }


def drain_with_java(servers: str, topic: str, folder: Path, records: int, ts: str) -> dict[str, object]:
    warehouse = folder / f"java-{topic}"
    catalog_keys = {"type": "embedded", "warehouse": str(warehouse)}
    _create_table(catalog_keys)
    catalog = open_catalog("iceberg", catalog_keys)

    def done() -> bool:
        snapshot = catalog.load_table("bench.events").current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        return summary is not None and summary["total-records"] == str(records)

    log = Path("bench-results") / f"java-{topic}.log"
    usage = java_sink.drain(servers, topic, folder, warehouse, done, log)
    return _measured("Java", usage, catalog_keys, records, ts)


def _measured(
    sink: str,
    usage: meter.Usage,
    catalog_keys: dict[str, str],
    records: int,
    ts: str,
    upserts: Upserts | None = None,
) -> dict[str, object]:
    """The used resources, after a check that the table is complete."""
    rows, distinct = (records, records) if upserts is None else (upserts.rows, upserts.distinct)
    table = open_catalog("iceberg", catalog_keys).load_table("bench.events")
    ids = table.scan(selected_fields=("id",)).to_arrow()["id"]
    if len(ids) != rows or len(ids.unique()) != distinct:
        sys.exit(f"the table of {sink} is wrong: {len(ids)} rows, {len(ids.unique())} distinct, {rows} expected")
    return {
        "sink": sink,
        "ts": ts,
        "records": records,
        "wall_seconds": round(usage.wall_seconds, 2),
        "records_per_second": round(records / usage.wall_seconds),
        "cpu_seconds": round(usage.cpu_seconds, 2),
        "cpu_seconds_per_million": round(usage.cpu_seconds / records * 1e6, 3),
        "peak_mib": round(usage.peak_bytes / 2**20),
    }


def _create_table(catalog_keys: dict[str, str], *, live: bool = False) -> None:
    catalog = open_catalog("iceberg", catalog_keys)
    catalog.create_namespace_if_not_exists("bench")
    # What tables made by Iceberg itself get; without it the Java sink writes gzip.
    table = catalog.create_table("bench.events", SCHEMA, properties={"write.parquet.compression-codec": "zstd"})
    if live:
        make_live(table)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--calving", type=Path, default=Path(sys.executable).parent / "calving")
    parser.add_argument("--ts", choices=("epoch", "iso", "both"), default="both")
    parser.add_argument("--java", action="store_true", help="the Java sink too, after each run of ours")
    cases = (
        "throughput",
        "upserts",
        "steady",
        "latency",
        "start",
        "partitions",
        "commits",
        "mutations",
        "records",
        "backends",
        "memory",
        "recovery",
    )
    parser.add_argument("--only", choices=cases)
    parser.add_argument("--store", choices=recovery.STORES, action="append", help="of --only recovery; default all")
    parser.add_argument("--millions", type=int, action="append", help="rows, of --only mutations; default 1, 4, 20, 50")
    parser.add_argument("--rounds", type=int, default=1, help="of --only recovery: how often each fault")
    parser.add_argument("--faults", default="", help="of --only recovery: a regular expression of their names")
    parser.add_argument("--tighter", action="store_true", help="of --only recovery: with the documented settings")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    args = parser.parse_args()
    console = Console()
    report: dict[str, object] = {
        "machine": f"{platform.machine()}, {len(__import__('os').sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "pyspark": pyspark.__version__,
    }
    with interruptible(), tempfile.TemporaryDirectory(prefix="calving-bench-") as name:
        folder = Path(name)
        if args.only in (None, "throughput"):
            report["throughput"] = _throughput(args, folder, console)
        report |= _changing(args, folder, console)
        if args.only in (None, "latency"):
            report["latency"] = latency.measure(folder / "latency", console)
        if args.only in (None, "start"):
            report["start"] = start.measure(folder / "start", args.calving, console)
        if args.only in (None, "partitions"):
            report["partitions"] = partitions.measure(folder / "partitions", args.calving, console)
        if args.only in (None, "commits"):
            report["commits"] = commits.measure(folder / "commits", console)
        if args.only in (None, "mutations"):
            report["mutations"] = mutations.measure(folder / "mutations", console, args.millions or (1, 4, 20, 50))
        if args.only in (None, "records"):
            report["records"] = records.measure(folder / "records", min(args.records, _RECORDS_OF_A_CASE), console)
        if args.only in (None, "memory"):
            report["memory"] = memory.report(console)
        if args.only in (None, "backends"):
            report["backends"] = backends.measure(folder / "backends", console)
        if args.only in (None, "recovery"):
            stores = tuple(args.store or recovery.STORES)
            report["recovery"] = recovery.measure(
                folder / "recovery", console, stores, args.rounds, args.faults, tighter=args.tighter
            )
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps(report, indent=1))
    console.print(f"saved as {path}")


def _throughput(args: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, object]]:
    results = []
    with kafka(folder / "kafka") as servers:
        fill(servers, "bench-first", 1000, "iso")
        # Leaves what every later start finds in the cache.
        drain(args.calving, servers, "bench-first", folder, 1000, "iso")
        for kind in ("epoch", "iso") if args.ts == "both" else (args.ts,):
            topic = f"bench-{kind}"
            size = fill(servers, topic, args.records, kind)
            console.print(f"{args.records:,} records of {size:.0f} bytes, ts as {kind}")
            results.append(drain(args.calving, servers, topic, folder, args.records, kind))
            if args.java:
                results.append(drain_with_java(servers, topic, folder, args.records, kind))
    _show(results, console)
    return results


def _changing(args: argparse.Namespace, folder: Path, console: Console) -> dict[str, object]:
    """Of records that replace rows."""
    found: dict[str, object] = {}
    if args.only in (None, "upserts"):
        found["upserts"] = _upserts(args, folder, console)
    if args.only in (None, "steady"):
        found["steady"] = steady.measure(folder / "steady", console, args.calving)
    return found


def _upserts(args: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, object]]:
    """The same records, one of ten of them for a live row, appended and upserted in turns."""
    results = []
    with kafka(folder / "kafka-of-upserts") as servers:
        rows = fill_changes(servers, "bench-changes", args.records, PARTITIONS, record)
        for number in range(args.rounds):
            for kind, keys, expected in (
                ("append", {}, LIVE + args.records),
                ("upsert", _UPSERT, rows),
            ):
                upserts = Upserts(f"{kind}-{number}", keys, expected, rows)
                found = drain(args.calving, servers, "bench-changes", folder, args.records, "epoch", upserts)
                results.append({**found, "sink": kind})
    _show(results, console)
    return results


def _show(results: Sequence[Mapping[str, object]], console: Console) -> None:
    table = Table(title="Throughput, whole process tree, start-up included")
    for column in (
        "sink",
        "ts",
        "records/s",
        "CPU s/M records",
        "wall s",
        "peak MiB",
        "stages, CPU s/M",
        "1st batch s",
    ):
        table.add_column(column)
    for r in results:
        stages = r.get("stages_cpu_seconds_per_million")
        text = ", ".join(f"{k} {v}" for k, v in stages.items()) if isinstance(stages, dict) else ""
        keys = ("sink", "ts", "records_per_second", "cpu_seconds_per_million", "wall_seconds", "peak_mib")
        table.add_row(*(str(r[k]) for k in keys), text, str(r.get("first_batch_seconds", "")))
    console.print(table)


if __name__ == "__main__":
    main()
