"""What a start costs, in what it imports."""

from __future__ import annotations

import subprocess
import sys


def test_a_worker_starts_without_pandas_and_the_rest_catalog() -> None:
    """Where they are installed: together they take longer to import than everything else."""
    code = (
        "import sys; from calving.lean import without_pandas; without_pandas();"
        "import calving.runtime.app, pyiceberg.io.pyarrow, pyarrow as pa; pa.scalar(1);"
        "print([name for name in ('pandas', 'pyiceberg.catalog.rest', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
