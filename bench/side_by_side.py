"""The Java sink and calving over the same topics, in turns: what more records cost, start and idle time left out."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import java_sink, throughput
from bench.throughput import Case
from calving.services.kafka import kafka

_TABLES = (("epoch", False), ("iso", False), ("epoch", True), ("iso", True))
_KEYS = {"iceberg.control.commit.interval-ms": str(java_sink.COMMIT_MS)}


def measure(folder: Path, console: Console, calving: Path, counts: Sequence[int]) -> list[dict[str, object]]:
    """Both sinks over the first ``counts[0]`` records of a topic, and over its first ``counts[1]``. The CPU seconds
    between the two are those of the records between; the ratio of these is the figure that counts.
    """
    few, many = counts
    found: list[dict[str, object]] = []
    with kafka(folder / "kafka") as servers:
        throughput.warm(calving, servers, folder)
        for ts in ("epoch", "iso"):
            topic = f"bench-{ts}"
            throughput.create_topic(servers, topic)
            filled = 0
            for records in (few, many):
                throughput.fill(servers, topic, range(filled, records), ts)
                filled = records
                found += _both(servers, folder, calving, topic, records, ts, console)
    _show(found, few, many, console)
    return found


def _both(
    servers: str, folder: Path, calving: Path, topic: str, records: int, ts: str, console: Console
) -> list[dict[str, object]]:
    found = []
    for by_day in (False, True):
        for sink in ("calving", "java"):
            case = Case(f"{sink}-{ts}-{'day' if by_day else 'flat'}-{records}", topic, records, ts, by_day, keys=_KEYS)
            if sink == "java":
                found.append(throughput.drain_with_java(servers, folder, case))
            else:
                found.append(throughput.drain(calving, servers, folder, case))
            shutil.rmtree(folder / case.name)
            said = f"{found[-1]['cpu_seconds']} CPU s, {found[-1]['wall_seconds']} s"
            console.print(f"{case.name}: {said}, {found[-1]['bytes_per_row']} bytes a row")
    return found


def _show(found: Sequence[dict[str, object]], few: int, many: int, console: Console) -> None:
    cpu = {(r["sink"], r["ts"], r["by_day"], r["records"]): float(str(r["cpu_seconds"])) for r in found}
    table = Table(title=f"CPU seconds per million records, from {few:,} to {many:,} records")
    for column in ("timestamps", "partitions", "calving", "Java", "ratio"):
        table.add_column(column)
    for ts, by_day in _TABLES:
        calving, java = (
            (cpu[sink, ts, by_day, many] - cpu[sink, ts, by_day, few]) / (many - few) * 1e6
            for sink in ("calving", "Java")
        )
        table.add_row(ts, "day" if by_day else "none", f"{calving:.2f}", f"{java:.2f}", f"{java / calving:.2f}")
    console.print(table)
