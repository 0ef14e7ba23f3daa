"""The Java sink and calving over the same topics, in turns: what more records cost, start and idle time left out."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import java_sink, throughput
from bench.throughput import Case
from calving.services.kafka import kafka

_KEYS = {"iceberg.control.commit.interval-ms": str(java_sink.COMMIT_MS)}


def measure(
    folder: Path,
    console: Console,
    calving: Path,
    counts: Sequence[int],
    kinds: Sequence[str],
    rounds: int,
    properties: Mapping[str, str],
) -> list[dict[str, object]]:
    """Both sinks over the first ``counts[0]`` records of a topic, and over its first ``counts[1]``. The CPU seconds
    between the two are those of the records between; the ratio of these is the figure that counts. Of several
    ``rounds`` the median counts. ``kinds`` of timestamps: ``epoch``, ``iso``. ``properties``: of the tables of both,
    beyond the usual ones.
    """
    few, many = counts
    found: list[dict[str, object]] = []
    with kafka(folder / "kafka") as servers:
        throughput.warm(calving, servers, folder)
        for ts in kinds:
            topic = f"bench-{ts}"
            throughput.create_topic(servers, topic)
            filled = 0
            for records in (few, many):
                throughput.fill(servers, topic, range(filled, records), ts)
                os.sync()  # otherwise the system writes the topic to disk during the first run
                filled = records
                for by_day, number in product((False, True), range(rounds)):
                    name = f"{ts}-{'day' if by_day else 'flat'}-{records}-{number}"
                    case = Case(name, topic, records, ts, by_day, keys=_KEYS, properties=properties)
                    found += _both(servers, folder, calving, case, console)
    _show(found, few, many, console)
    return found


def _both(servers: str, folder: Path, calving: Path, case: Case, console: Console) -> list[dict[str, object]]:
    found = []
    for sink in ("calving", "java"):
        own = replace(case, name=f"{sink}-{case.name}")
        if sink == "java":
            found.append(throughput.drain_with_java(servers, folder, own))
        else:
            found.append(throughput.drain(calving, servers, folder, own))
        shutil.rmtree(folder / own.name)
        said = f"{found[-1]['cpu_seconds']} CPU s, {found[-1]['wall_seconds']} s"
        console.print(f"{own.name}: {said}, {found[-1]['bytes_per_row']} bytes a row")
    return found


def _show(found: Sequence[dict[str, object]], few: int, many: int, console: Console) -> None:
    runs: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
    for r in found:
        runs[r["sink"], r["ts"], r["by_day"], r["records"]].append(float(str(r["cpu_seconds"])))
    cpu = {case: median(seconds) for case, seconds in runs.items()}
    table = Table(title=f"CPU seconds per million records, from {few:,} to {many:,} records")
    for column in ("timestamps", "partitions", "calving", "Java", "ratio"):
        table.add_column(column)
    for ts, by_day in dict.fromkeys((r["ts"], r["by_day"]) for r in found):
        calving, java = (
            (cpu[sink, ts, by_day, many] - cpu[sink, ts, by_day, few]) / (many - few) * 1e6
            for sink in ("calving", "Java")
        )
        table.add_row(str(ts), "day" if by_day else "none", f"{calving:.2f}", f"{java:.2f}", f"{java / calving:.2f}")
    console.print(table)
