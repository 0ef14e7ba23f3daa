"""``make spark-bench``: the same rows through ``calving run``, through Spark's ``format("calving")``, and through
Iceberg's own sink of Spark, which is for an older Spark. Beside these, sinks that write Parquet files or nothing. Each
takes a number of rows and three times as many: what is between the two is the cost of rows, without that of the start.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench import meter, throughput
from bench.throughput import Case
from calving.services.kafka import kafka
from calving.services.process import interruptible

ROOT = Path(__file__).parents[1]
_ROWS_OF_A_FILE = 50_000
SINK = "calving run"
_NAMES = ("calving", "empty", "parquet", "noop")
"""Formats of ``bench.spark_writer``."""
_WITHOUT_TABLE = ("empty", "parquet", "noop")


def write_files(folder: Path, numbers: range) -> None:
    """The rows of these records as Parquet files, as Spark's own source reads them."""
    folder.mkdir(exist_ok=True)
    chance = random.Random(numbers.start)
    for start in range(numbers.start, numbers.stop, _ROWS_OF_A_FILE):
        some = range(start, min(start + _ROWS_OF_A_FILE, numbers.stop))
        lines = b"\n".join(throughput.record(number, "epoch", chance.randbytes(40).hex()) for number in some)
        rows = pj.read_json(io.BytesIO(lines), pj.ReadOptions(block_size=1 << 26))
        moments = rows["ts"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
        rows = rows.set_column(rows.schema.get_field_index("ts"), "ts", moments)
        pq.write_table(rows, folder / f"{start:012}.parquet")


def measure(folder: Path, console: Console, calving: Path, older: Path, records: int) -> list[Mapping[str, object]]:
    """``older``: a Python with the PySpark for which Iceberg has a runtime."""
    found: list[Mapping[str, object]] = []
    folder.mkdir(parents=True)
    with kafka(folder / "kafka") as servers:
        throughput.warm(calving, servers, folder)
        throughput.create_topic(servers, "bench")
        filled = 0
        for count in (records, 3 * records):
            numbers = range(filled, count)
            throughput.fill(servers, "bench", numbers, "epoch")
            write_files(folder / "rows", numbers)
            os.sync()  # otherwise the system writes it all during the first run
            filled = count
            case = Case(f"sink-{count}", "bench", count, "epoch")
            found.append({**throughput.drain(calving, servers, folder, case), "sink": SINK})
            console.print(_said(found[-1]))
            for python in (Path(sys.executable), older):
                for name in _NAMES if python != older else (*_NAMES, "iceberg"):
                    found.append(_written(folder, python, name, count))
                    console.print(_said(found[-1]))
    _show(found, records, console)
    return found


def _written(folder: Path, python: Path, name: str, count: int) -> Mapping[str, object]:
    own = folder / f"{name}-{count}"
    case = Case(own.name, "bench", count, "epoch")
    catalog = throughput.create_table(own / "warehouse", case)
    log = Path("bench-results") / f"spark-{name}-{count}.log"
    command = [str(python), "-m", "bench.spark_writer", name, str(folder / "rows")]
    command += [str(own / "warehouse"), str(own / "checkpoint")]
    paths = os.pathsep.join([str(ROOT), *map(str, sorted(ROOT.glob("packages/*/src")))])
    usage = meter.run(command, log, {"PYSPARK_PYTHON": str(python), "PYTHONPATH": paths})
    if usage.returncode:
        sys.exit(f"{name} failed, see {log}:\n" + "\n".join(log.read_text().splitlines()[-20:]))
    seconds = json.loads(log.read_text().splitlines()[-1])
    version = _version(python)
    used = (
        {"records": count, "cpu_seconds": round(usage.cpu_seconds, 2), "wall_seconds": round(usage.wall_seconds, 2)}
        if name in _WITHOUT_TABLE
        else throughput.measured(name, usage, catalog, case)
    )
    shutil.rmtree(own)
    return {**used, "sink": f"{name}, Spark {version}", "batch_seconds": round(median(seconds[1:] or seconds), 2)}


def _version(python: Path) -> str:
    (found,) = python.parents[1].glob("lib/python3*/site-packages/pyspark-*.dist-info")
    return found.name.removesuffix(".dist-info").removeprefix("pyspark-")


def _said(run: Mapping[str, object]) -> str:
    batch = f", a batch {run['batch_seconds']} s" if "batch_seconds" in run else ""
    return f"{run['sink']}, {run['records']:,} rows: {run['cpu_seconds']} CPU s, {run['wall_seconds']} s{batch}"


def per_cpu_second(runs: Sequence[Mapping[str, object]], records: int) -> dict[str, float]:
    """Rows for each CPU second between the smaller and the larger run, by sink."""
    cpu = {(str(run["sink"]), run["records"]): float(str(run["cpu_seconds"])) for run in runs}
    return {
        sink: 2 * records / (cpu[sink, 3 * records] - cpu[sink, records])
        for sink in dict.fromkeys(name for name, _ in cpu)
    }


def beyond(rows: Mapping[str, float], sink: str, other: str) -> str:
    """Rows for each CPU second that ``sink`` takes beyond those of another sink, as a sentence has it."""
    dearer = 1 / rows[sink] - 1 / rows[other]
    if dearer <= 0:
        return "nothing: the difference is below what this number of rows shows"
    return f"{1 / dearer:,.0f} rows/CPU s, {1 / dearer / rows[SINK]:.0%} of {SINK}"


def _show(runs: Sequence[Mapping[str, object]], records: int, console: Console) -> None:
    rows = per_cpu_second(runs, records)
    table = Table("sink", "rows/CPU s", f"of {SINK}", "median s of a batch", title="Rows beyond the start")
    batches = {run["sink"]: run.get("batch_seconds", "") for run in runs}
    for sink, figure in rows.items():
        table.add_row(sink, f"{figure:,.0f}", f"{figure / rows[SINK]:.0%}", str(batches[sink]))
    console.print(table)
    for sink in rows:
        if sink.startswith("calving, "):
            own = beyond(rows, sink, sink.replace("calving", "empty"))
            console.print(f"{sink}, beyond an empty sink in Python: {own}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--calving", type=Path, default=Path(sys.executable).parent / "calving")
    parser.add_argument("--older", type=Path, required=True, help="a Python with PySpark 4.1")
    parser.add_argument("--out", type=Path, default=Path("bench-results"))
    args = parser.parse_args()
    with interruptible(), tempfile.TemporaryDirectory(prefix="calving-bench-") as name:
        found = measure(Path(name) / "spark", Console(), args.calving, args.older, args.records)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / f"spark-{time.strftime('%Y%m%d-%H%M%S')}.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
