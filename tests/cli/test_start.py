"""A start imports only needed modules."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from calving.engine.interface import Engine, LocalEngine
from calving.engine.opening import OpeningEngine
from calving.errors import ConfigError
from harness.topic import Topic
from tests.cli.commands import Cli

HEAVY = ("numpy", "pandas", "pyarrow", "pyiceberg", "pyspark", "requests", "sqlalchemy")
"""Each takes longer to import than it takes to join a group."""


def test_a_worker_starts_without_pandas_and_what_only_a_rest_catalog_needs() -> None:
    """Where they are installed: together they take longer to import than everything else."""
    code = (
        "import sys; from calving.lean import without_pandas; without_pandas();"
        "import calving.runtime.parts, pyiceberg.io.pyarrow, pyarrow as pa; pa.scalar(1);"
        "print([name for name in ('pandas', 'pyiceberg.catalog.rest', 'requests', 'pyspark') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nothing_heavy_is_imported_before_a_worker_joins_its_group_and_spark_only_afterwards(
    topic: Callable[..., Topic], tmp_path: Path, unique: str
) -> None:
    made = Cli(tmp_path, topic(), unique)
    made.keys |= {"iceberg.engine": "spark", "spark.master": "local[1]"}
    code = f"""
import json, os, sys
from calving.source.kafka import KafkaGroup
told = {{}}
def tell(name, step):
    original = getattr(KafkaGroup, name)
    def wrapped(*args):
        told.setdefault(step, sorted({set(HEAVY)!r} & sys.modules.keys()))
        if step == "joined":
            print(json.dumps(told), flush=True)
            os._exit(0)
        original(*args)
    setattr(KafkaGroup, name, wrapped)
tell("__init__", "joining")
tell("_on_assign", "joined")
sys.argv = ["calving", "run", {str(made.config)!r}]
from calving.cli.main import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    found = json.loads(done.stdout)
    assert found["joining"] == []
    assert "pyspark" not in found["joined"]


@pytest.mark.parametrize("backend", ["kafka", "redis", "zookeeper"])
def test_a_backend_imports_nothing_heavy(backend: str) -> None:
    code = (
        f"import sys; from calving.backend.interface import find; find({backend!r});"
        f"import calving_{backend}.session, calving_{backend}.cursor;"
        f"print(sorted({set(HEAVY)!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_engine_is_opened_once_whoever_asks_for_it_first() -> None:
    opened: list[Engine] = []

    def open_it() -> Engine:
        opened.append(LocalEngine())
        return opened[-1]

    engine = OpeningEngine(open_it)
    asking = [threading.Thread(target=lambda: engine.slots) for _ in range(8)]
    for each in asking:
        each.start()
    engine.begin()
    for each in asking:
        each.join()
    assert engine.run([]) == []
    assert len(opened) == 1


def test_an_engine_that_does_not_start_is_an_error_before_anybody_needs_it() -> None:
    def refuse() -> Engine:
        raise ConfigError("spark.*: Spark does not start")

    engine = OpeningEngine(refuse)
    with pytest.raises(ConfigError, match="Spark does not start"):
        while True:
            engine.begin()


def test_an_engine_that_is_still_being_opened_does_not_hold_up_a_stop() -> None:
    never = threading.Event()

    def hang() -> Engine:
        never.wait()
        raise AssertionError

    engine = OpeningEngine(hang)
    engine.begin()
    engine.close()
    never.set()


def test_one_thread_at_a_time_imports_an_engine_or_a_catalog() -> None:
    """Python finds a deadlock where two begin at different ends of pyiceberg's circle of modules."""
    code = """
import os, sys, threading
from calving.engine.opening import OpeningEngine
from calving.engine.interface import open_engine
from calving.importing import IMPORTING
with IMPORTING:
    engine = OpeningEngine(lambda: open_engine("spark", "x", {"spark.remote": "sc://localhost:1"}))
    engine.begin()
    threading.Event().wait(0.5)
    print("calving.engine.connect" in sys.modules)
while "calving.engine.connect" not in sys.modules:
    threading.Event().wait(0.1)
print(True, flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_only_the_thread_that_goes_without_pandas_does() -> None:
    code = """
import sys, threading
from calving.lean import _Refusing
sys.meta_path.insert(0, _Refusing())
found = []
def other():
    found.append(all(finder.find_spec("pandas", None) is None for finder in sys.meta_path[:1]))
thread = threading.Thread(target=other)
thread.start()
thread.join()
try:
    sys.meta_path[0].find_spec("pandas", None)
except ImportError:
    print(found)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[True]\n"
