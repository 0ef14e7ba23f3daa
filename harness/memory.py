"""Memory of a task that writes many partitions: ``python -m harness.memory --partitions 10000 --records 150000``.

Each measurement is a process of its own, as memory that was once taken is seldom given back.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from calving.model.record_path import Limits
from calving.model.tables import TableSpec
from calving.writing.table import TableWriter

_BLOCK = 8_000
_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "customer", LongType(), required=False),
    NestedField(3, "user", StringType(), required=False),
    NestedField(4, "type", StringType(), required=False),
    NestedField(5, "amount", DoubleType(), required=False),
    NestedField(6, "payload", StringType(), required=False),
)
_SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "customer"))


def measure(partitions: int, records: int, file_format: str = "parquet") -> dict[str, object]:
    """In a fresh process: the peak above the interpreter, MiB, and CPU seconds."""
    command = [sys.executable, "-m", "harness.memory", "--format", file_format]
    command += ["--partitions", str(partitions), "--records", str(records)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).resolve().parent.parent
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _block(start: int, count: int, partitions: int) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array([i * 7919 % partitions for i in ids], pa.int64()),
            "user": pa.array([f"user-{i * 7919 % 100_000}" for i in ids]),
            "type": pa.array([("click", "view", "buy")[i % 3] for i in ids]),
            "amount": pa.array([i % 100_000 / 100 for i in ids]),
            "payload": pa.array([f"{i * 2654435761 % 2**32:08x}" * 10 for i in ids]),
        }
    )


def _run(partitions: int, records: int, file_format: str, folder: Path) -> dict[str, object]:
    properties = {"write.format.default": file_format}
    table = TableSpec("bench.t", _SCHEMA.model_dump_json(), _SPEC.model_dump_json(), f"file://{folder}", properties, {})
    limits = Limits()
    TableWriter(table, 0, limits).close()  # imports what it needs
    before, started = _memory("VmRSS"), time.process_time()
    gc.disable()  # as in a task
    writer = TableWriter(table, 0, limits)
    for start in range(0, records, _BLOCK):
        writer.write(_block(start, min(_BLOCK, records - start), partitions))
        while writer.buffered_bytes > limits.buffered_bytes:
            writer.flush_largest()
    files = writer.close()
    if sum(file.record_count for file in files) != records:
        raise RuntimeError("records were lost")
    return {
        "partitions": partitions,
        "records": records,
        "format": file_format,
        "files": len(files),
        "peak_mib": round((_memory("VmHWM") - before) / 1024),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def _memory(name: str) -> int:
    """KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--records", type=int, default=150_000)
    parser.add_argument("--format", choices=("parquet", "orc", "avro"), default="parquet")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="calving-bench-") as name:
        print(json.dumps(_run(args.partitions, args.records, args.format, Path(name))))


if __name__ == "__main__":
    main()
