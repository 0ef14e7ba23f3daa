"""Kills Spark's drivers and their workers while a stream writes a table:
``python -m campaign.spark_writes --kills 100``.

Kills come at random moments, and so between any two steps: planning, tasks and commits are processes of their own.
After every other death of a driver its checkpoint has lost that the last batch was done. At the end, each row is in the
table once; of changed rows, the last state of each key. What was read meanwhile are whole batches, each row once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from calving.protocol.batch_ledger import SPARK_BATCH
from calving.services.process import interruptible
from campaign.spark_job import KINDS, READS, RIGHT, SINK, TABLE, Kind, catalog, expected

ROOT = Path(__file__).parents[1]
VERDICT = ("lost", "doubled", "wrong reads")
_DRIVER_EVERY = 8
"""One of so many kills takes the whole driver, and the others one of its Python processes."""
_SECONDS = 1200
"""The longest time without a batch."""


class Job:
    """A driver that is killed, and started again, on one table."""

    def __init__(self, folder: Path, kind: Kind, rng: random.Random) -> None:
        self._folder, self._kind, self._rng = folder, kind, rng
        self._warehouse, self._checkpoint = folder / "warehouse", folder / "checkpoint"
        self._warehouse.mkdir(parents=True)
        self._catalog: Catalog = load_catalog(
            "iceberg", **{key.removeprefix("catalog."): text for key, text in catalog(self._warehouse).items()}
        )
        self._catalog.create_namespace_if_not_exists(TABLE.split(".")[0])
        self.counts: Counter[str] = Counter()
        self._driver = self._started()

    @property
    def batches(self) -> int:
        """The batches that the table holds."""
        if not self._catalog.table_exists(TABLE):
            return 0
        ledger = self._catalog.load_table(TABLE).properties.get(f"{SPARK_BATCH}{SINK}")
        return int(json.loads(ledger)["batch"]) + 1 if ledger is not None else 0

    @property
    def reads(self) -> list[str]:
        """A line for each read that came to its end."""
        path = self._folder / READS
        return path.read_text().splitlines() if path.exists() else []

    def go_on(self, batches: int) -> None:
        """Wait until the table has so many more, and was read, if somebody reads it."""
        wanted, deadline = self.batches + batches, time.monotonic() + _SECONDS
        read = len(self.reads) + (self._kind == "reads")
        while self.batches < wanted or len(self.reads) < read:
            if self._driver.poll() is not None:
                raise RuntimeError(f"the driver ended by itself: see {self._folder}/driver.log")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no batch for {_SECONDS} s: see {self._folder}/driver.log")
            time.sleep(0.05)

    def kill(self, number: int) -> None:
        """Kill the driver, or one of the processes in which it plans, writes and commits."""
        time.sleep(self._rng.uniform(0, 1))
        workers = [*_python_below(self._driver.pid)]
        if number % _DRIVER_EVERY == _DRIVER_EVERY - 1 or not workers:
            self.end()
            self.counts["drivers killed"] += 1
            if self.counts["drivers killed"] % 2:
                self._forget()
            self._driver = self._started()
            return
        with suppress(ProcessLookupError):
            os.kill(self._rng.choice(workers), signal.SIGKILL)
            self.counts["workers killed"] += 1

    def end(self) -> None:
        """Kill the driver with all that is below it."""
        below = [*_python_below(self._driver.pid)]
        os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        for worker in below:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    def verdict(self) -> dict[str, Any]:
        """Compare the rows of the table with those that its batches should have left."""
        found = [tuple(row.values()) for row in self._catalog.load_table(TABLE).scan().to_arrow().to_pylist()]
        wanted, there = Counter(expected(self._kind, self.batches)), Counter(found)
        return {
            "kind": self._kind,
            **self.counts,
            "batches": self.batches,
            "rows": len(found),
            "lost": (wanted - there).total(),
            "doubled": (there - wanted).total(),
            "reads": len(self.reads),
            "wrong reads": sum(line != RIGHT for line in self.reads),
        }

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "campaign.spark_job", str(self._warehouse), str(self._checkpoint), self._kind]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        with (self._folder / "driver.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)

    def _forget(self) -> None:
        """The checkpoint loses that its last batch is done."""
        done = [path for path in (self._checkpoint / "commits").iterdir() if path.name.isdecimal()]
        if done:
            last = max(done, key=lambda path: int(path.name))
            for path in (last, last.with_name(f".{last.name}.crc")):
                path.unlink(missing_ok=True)
            self.counts["entries lost"] += 1


def _python_below(pid: int) -> Iterator[int]:
    """The processes of Python that this one has started, and those that they have started."""
    children: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
            children.setdefault(int(rest.split()[1]), []).append((int(path.parent.name), name))
    waiting = [pid]
    while waiting:
        for child, name in children.get(waiting.pop(), []):
            waiting.append(child)
            if name.startswith("python"):
                yield child


def run(folder: Path, kind: Kind, kills: int, seed: int) -> Mapping[str, Any]:
    """Kill so many times; the verdict."""
    job, started = Job(folder, kind, random.Random(f"{kind} {seed}")), time.monotonic()
    try:
        job.go_on(2)
        for number in range(kills):
            job.kill(number)
            job.go_on(1)
        job.go_on(2)
    finally:
        job.end()
    return {**job.verdict(), "seconds": round(time.monotonic() - started)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="what the stream does to rows; default: each")
    parser.add_argument("--kills", type=int, default=100, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    failed = False
    with interruptible():
        for kind in args.kind or KINDS:
            folder = Path(tempfile.mkdtemp(prefix=f"calving-spark-{kind}-"))
            found = run(folder, kind, args.kills, args.seed)
            print(json.dumps(found), flush=True)
            if any(found[key] for key in VERDICT):
                failed = True
                print(f"see {folder}", flush=True)
            else:
                shutil.rmtree(folder, ignore_errors=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
