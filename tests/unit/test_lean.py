"""Processes of our own start without pandas, and have it as soon as somebody's code imports it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

pytest.importorskip("pandas")
SERIES = "pd.Series([1.5, None, float('nan')], index=[3, 4, 5])"


def printed(code: str, **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ | env
    )
    return done.stdout.split()


def test_a_worker_of_spark_starts_without_pandas() -> None:
    code = "import sys; from calving.engine.daemon import preload; preload(); print('pandas' in sys.modules)"
    assert printed(code) == ["False"]


def test_a_process_that_leaves_pandas_out_again_and_again_looks_for_it_once() -> None:
    code = """
import sys
from calving.lean import without_pandas
without_pandas()
before = len(sys.meta_path)
for _ in range(3):
    without_pandas()
print(len(sys.meta_path) - before)
"""
    assert printed(code) == ["0"]


def test_the_daemon_of_spark_collects_no_garbage_until_it_has_imported_what_workers_need() -> None:
    code = """
import gc
from calving.engine.daemon import preload
collected = lambda: sum(each["collections"] for each in gc.get_stats())
before = collected()
preload()
print(collected() - before, gc.isenabled(), gc.get_freeze_count() > 0)
"""
    assert printed(code) == ["0", "True", "True"]


def test_a_driver_of_spark_calls_java_without_pandas() -> None:
    code = """
import sys
from calving.engine.java import ask_about_numpy_alone
from py4j.protocol import INPUT_CONVERTER
ask_about_numpy_alone()
print([converter.can_convert(value) for value in (True, "text", 1) for converter in INPUT_CONVERTER].count(True))
print("pandas" in sys.modules)
"""
    assert printed(code) == ["0", "False"]


def test_a_driver_of_spark_still_converts_values_of_numpy_for_java() -> None:
    code = """
from calving.engine.java import ask_about_numpy_alone
from py4j.protocol import INPUT_CONVERTER
ask_about_numpy_alone()
import numpy as np
(scalar,) = [converter for converter in INPUT_CONVERTER if converter.can_convert(np.int64(3))]
print(scalar.convert(np.int64(3), None))
print(any(converter.can_convert(np.array([1.5])) for converter in INPUT_CONVERTER))
"""
    assert printed(code) == ["3", "True"]


@pytest.mark.parametrize("first", ["", "import pyarrow as pa; pa.array([pa.scalar(1).as_py()]);"])
def test_pandas_that_a_transform_imports_later_is_pandas_to_pyarrow(first: str) -> None:
    code = f"""
from calving.lean import without_pandas
without_pandas()
{first}
import pandas as pd, pyarrow as pa
print(pa.array({SERIES}).null_count, pa.table({{"a": {SERIES}}})["a"].null_count)
print(len(pa.table({{"a": [1, 2]}}).to_pandas()), pa.Table.from_pandas(pd.DataFrame({{"a": {SERIES}}}))["a"].null_count)
"""
    assert printed(code) == ["2", "2", "2", "2"]


def test_where_pandas_is_there_already_it_stays() -> None:
    code = f"""
import pandas as pd
from calving.lean import without_pandas
without_pandas()
import pyarrow as pa
print(pa.array({SERIES}).null_count)
"""
    assert printed(code) == ["2"]


def faults_of_blocks(first: str, **env: str) -> int:
    """Pages that a process gets from the system while it allocates and frees 40 MB twenty times."""
    code = f"""
import resource
from calving.lean import keep_freed_memory
{first}
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    blocks = [libc.malloc(8_000_000) for _ in range(5)]
    for block in blocks:
        ctypes.memset(block, 1, 8_000_000)
    for block in blocks:
        libc.free(block)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    (faults,) = printed(code, **env)
    return int(faults)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_memory_that_a_block_of_records_frees_serves_the_next_block() -> None:
    assert faults_of_blocks("keep_freed_memory()") < faults_of_blocks("") / 5


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_a_users_own_settings_of_memory_win() -> None:
    given = {"MALLOC_TRIM_THRESHOLD_": "1000000"}
    assert faults_of_blocks("keep_freed_memory()", **given) > faults_of_blocks("keep_freed_memory()") * 5


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory")
@pytest.mark.parametrize(("given", "pool"), [({}, "system"), ({"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"}, "jemalloc")])
def test_arrow_shares_the_kept_memory_unless_the_user_chose_a_pool(given: dict[str, str], pool: str) -> None:
    code = """
from calving.lean import keep_freed_memory
keep_freed_memory()
import pyarrow as pa
print(pa.default_memory_pool().backend_name)
"""
    assert printed(code, **given) == [pool]
