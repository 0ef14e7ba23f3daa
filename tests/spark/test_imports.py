"""What libraries cost the processes that Spark starts for a write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["planning", "tasks", "commits"])
def test_no_step_of_a_write_imports_pandas_which_takes_a_third_of_all_imports(module: str) -> None:
    code = f"import sys, calving_spark.writers, calving_spark.{module}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_COLLECTED = """
import gc, sys, pyarrow as pa
from pathlib import Path
from pyspark.sql.types import StructType
from calving_spark import tasks
from calving_spark.messages import TaskPlace
from calving_spark.source import DefaultSource
from tests.spark.lake import SparkLake

schema, lake = StructType().add("id", "long"), SparkLake.create(Path(sys.argv[1]))
tasks.place = lambda: TaskPlace("q", "0", 0)
writer = DefaultSource({**lake.options, "path": "lake.t", "sink": "s"}).streamWriter(schema, False)
writer.write(iter([pa.RecordBatch.from_pydict({"id": [1]})]))
sys.exit(len(gc.get_objects()) > 20_000)
"""


def test_the_collection_of_garbage_after_each_task_passes_over_the_libraries(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", _COLLECTED, str(tmp_path)], cwd=ROOT, check=False).returncode == 0
