"""``make bench``: throughput of the whole sink, and the cost of commits. Prints a table, saves JSON."""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyspark
from rich.console import Console
from rich.table import Table

from bench import (
    backends,
    commits,
    fleet,
    latency,
    memory,
    mutations,
    partitions,
    planning,
    records,
    recovery,
    rewriting,
    rollback,
    side_by_side,
    start,
    steady,
    upkeep,
)
from bench.throughput import PARTITIONS, Case, create_topic, drain, fill, partial_record, record, warm
from bench.upserts import LIVE, changes, changes_and_inserts
from bench.upserts import fill as fill_changes
from calving.services.kafka import kafka
from calving.services.process import interruptible

_RECORDS_OF_A_CASE = 200_000
_UPSERT = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.table.bench.events.id-columns": "id"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--calving", type=Path, default=Path(sys.executable).parent / "calving")
    parser.add_argument("--ts", choices=("epoch", "iso", "both"), default="both")
    cases = (
        "throughput",
        "java",
        "upserts",
        "partial-updates",
        "steady",
        "upkeep",
        "rewriting",
        "beside-maintenance",
        "latency",
        "start",
        "partitions",
        "commits",
        "mutations",
        "records",
        "backends",
        "memory",
        "planning",
        "recovery",
        "rollback",
        "fleet",
    )
    parser.add_argument("--only", choices=cases)
    parser.add_argument("--store", choices=recovery.STORES, action="append", help="of --only recovery; default all")
    parser.add_argument("--millions", type=int, action="append", help="rows, of --only mutations; default 1, 4, 20, 50")
    parser.add_argument("--rounds", type=int, default=1, help="of --only recovery, java, beside-maintenance")
    parser.add_argument("--faults", default="", help="of --only recovery: a regular expression of their names")
    parser.add_argument("--page-version", choices=("v1", "v2"), help="of Parquet files, of --only java, for both sinks")
    parser.add_argument("--tighter", action="store_true", help="of --only recovery: with the documented settings")
    parser.add_argument("--seconds", type=float, default=3600, help="of --only upkeep")
    parser.add_argument("--spark", type=Path, help="of --only rewriting: a Python with PySpark 4.1")
    parser.add_argument("--pause-ms", type=int, default=1_000, help="between commits of maintenance, of --only upkeep")
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
        if args.only == "java":
            counts = (args.records, 3 * args.records)
            properties = {} if args.page_version is None else {"write.parquet.page-version": args.page_version}
            report["java"] = side_by_side.measure(
                folder / "java", console, args.calving, counts, _kinds(args), args.rounds, properties
            )
        report |= _changing(args, folder, console)
        if args.only in (None, "latency"):
            report["latency"] = latency.measure(folder / "latency", console)
        report |= _drivers(args, folder, console)
        if args.only in (None, "commits"):
            report["commits"] = commits.measure(folder / "commits", console)
        if args.only in (None, "rollback"):
            report["rollback"] = rollback.measure(folder / "rollback", console)
        if args.only in (None, "mutations"):
            report["mutations"] = mutations.measure(folder / "mutations", console, args.millions or (1, 4, 20, 50))
        if args.only in (None, "records"):
            report["records"] = records.measure(folder / "records", min(args.records, _RECORDS_OF_A_CASE), console)
        if args.only in (None, "memory"):
            report["memory"] = memory.report(console)
        if args.only in (None, "planning"):
            report["planning"] = planning.report(console)
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


def _kinds(args: argparse.Namespace) -> tuple[str, ...]:
    """Of timestamps."""
    return ("epoch", "iso") if args.ts == "both" else (args.ts,)


def _throughput(args: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, object]]:
    results = []
    with kafka(folder / "kafka") as servers:
        warm(args.calving, servers, folder)
        for kind in _kinds(args):
            topic = f"bench-{kind}"
            create_topic(servers, topic)
            size = fill(servers, topic, range(args.records), kind)
            console.print(f"{args.records:,} records of {size:.0f} bytes, ts as {kind}")
            results.append(drain(args.calving, servers, folder, Case(topic, topic, args.records, kind)))
    _show(results, console)
    return results


def _drivers(args: argparse.Namespace, folder: Path, console: Console) -> dict[str, object]:
    """Of what sinks cost before they read much."""
    measures = {"start": start.measure, "partitions": partitions.measure, "fleet": fleet.measure}
    chosen = {name: measure for name, measure in measures.items() if args.only in (None, name)}
    return {name: measure(folder / name, args.calving, console) for name, measure in chosen.items()}


def _changing(args: argparse.Namespace, folder: Path, console: Console) -> dict[str, object]:
    """Of records that replace rows, and of the maintenance that their tables need."""
    found: dict[str, object] = {}
    if args.only in (None, "upserts"):
        found["upserts"] = _upserts(args, folder, console)
    if args.only in (None, "partial-updates"):
        found["partial-updates"] = _partial_updates(args, folder, console)
    if args.only in (None, "steady"):
        found["steady"] = steady.measure(folder / "steady", console, args.calving)
    if args.only == "rewriting":
        found["rewriting"] = rewriting.measure(folder / "rewriting", console, args.spark)
    if args.only == "beside-maintenance":
        found["beside-maintenance"] = latency.beside_maintenance(folder / "beside", console, args.rounds)
    if args.only == "upkeep":
        found["upkeep"] = upkeep.measure(folder / "upkeep", console, args.calving, args.seconds, args.pause_ms)
    return found


def _upserts(args: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, object]]:
    """The same records, one of ten of them for a live row, appended and upserted in turns."""
    with kafka(folder / "kafka-of-upserts") as servers:
        topic = "bench-changes"
        rows = fill_changes(servers, topic, changes_and_inserts(args.records), PARTITIONS, record)
        cases = (
            Case("append", topic, args.records, "epoch", live=True, rows=LIVE + args.records, distinct=rows),
            Case("upsert", topic, args.records, "epoch", live=True, rows=rows, distinct=rows, keys=_UPSERT),
        )
        return _in_turns(args, servers, folder, console, cases)


def _partial_updates(args: argparse.Namespace, folder: Path, console: Console) -> list[dict[str, object]]:
    """Updates of random live rows: with all fields, and without two of them, which the rows keep."""
    keeping = {**_UPSERT, "iceberg.tables.unset-fields": "keep"}
    with kafka(folder / "kafka-of-partial-updates") as servers:
        cases = []
        for kind, of_kind, keys in (("whole", record, _UPSERT), ("partial", partial_record, keeping)):
            fill_changes(servers, f"bench-{kind}", changes(args.records), PARTITIONS, of_kind)
            cases.append(
                Case(kind, f"bench-{kind}", args.records, "epoch", live=True, rows=LIVE, distinct=LIVE, keys=keys)
            )
        return _in_turns(args, servers, folder, console, cases)


def _in_turns(
    args: argparse.Namespace, servers: str, folder: Path, console: Console, cases: Sequence[Case]
) -> list[dict[str, object]]:
    """The cases one after the other, as often as there are rounds."""
    results = [
        {**drain(args.calving, servers, folder, replace(case, name=f"{case.name}-{number}")), "sink": case.name}
        for number in range(args.rounds)
        for case in cases
    ]
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
