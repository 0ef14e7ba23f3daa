"""A commit interval of one second with ten, a hundred, a thousand partitions: does it hold, what does a batch cost."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.latency import Load, trickle
from calving.services.kafka import kafka

_PARTITIONS = (10, 100, 1000)
_RATE, _SECONDS = 1000, 40


def measure(folder: Path, calving: Path, console: Console) -> list[dict[str, float]]:
    """Seconds; by number of partitions."""
    folder.mkdir(parents=True)
    results: list[dict[str, float]] = []
    with kafka(folder / "kafka") as servers:
        # Leaves what every later start finds in the cache.
        trickle(folder, servers, Load("partitions-first", 1, _RATE, 5), calving)
        for partitions in _PARTITIONS:
            load = Load(f"partitions-{partitions}", partitions, _RATE, _SECONDS)
            found = trickle(folder, servers, load, calving)
            log = (Path("bench-results") / f"{load.topic}.log").read_text()
            results.append({"partitions": partitions, **found, **_batches(log)})
            console.print(results[-1])
    table = Table(*results[0], title=f"{_RATE} records/s, commit interval 1 s, Spark; seconds")
    for found in results:
        table.add_row(*(str(value) for value in found.values()))
    console.print(table)
    return results


def _batches(log: str) -> dict[str, float]:
    """The times of batches, without those of the first seconds, in which Spark warms up."""
    first = re.search(r"first batch finished (\S+) s after the start", log)
    seconds = sorted(float(found) for found in re.findall(r"batch: \d+ records?, \d+ files?, (\S+) s", log)[5:])
    return {
        "first batch": float(first.group(1)) if first else 0.0,
        "batch p50": seconds[len(seconds) // 2] if seconds else 0.0,
        "batch max": seconds[-1] if seconds else 0.0,
    }
