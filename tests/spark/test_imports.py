"""What the processes import that Spark starts for a write: each start of a query waits for it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["planning", "tasks", "commits"])
def test_no_step_of_a_write_imports_pandas_which_takes_a_third_of_all_imports(module: str) -> None:
    code = f"import sys, calving_spark.writers, calving_spark.{module}; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
