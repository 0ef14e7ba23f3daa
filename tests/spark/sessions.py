"""Sessions of Spark of four kinds: classic and Connect, on this machine's threads and on a standalone cluster."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from calving.host import cache_folder
from calving.services.process import LOOPBACK
from harness.jvm import spark
from tests.engine.connect_server import ConnectServer
from tests.engine.standalone import Cluster

Kind = Literal["classic local", "classic standalone", "connect local", "connect standalone"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CHOSEN = "CALVING_SPARK"
"""The variable that names the kind for the tests here; `make spark-matrix` sets it."""
_ROOT = str(Path(__file__).parents[2])


def chosen() -> Kind:
    """The kind of the sessions of these tests."""
    named = os.environ.get(CHOSEN, KINDS[0])
    (kind,) = [each for each in KINDS if each == named] or pytest.fail(f"{CHOSEN} is {named}, and none of {KINDS}")
    return kind


def is_connect() -> bool:
    """Whether they are Connect's, which have no Spark context."""
    return chosen().startswith("connect")


def started(writer: DataStreamWriter) -> StreamingQuery:
    """A query with ``foreachBatch``. For its process of Python Spark Connect waits ten seconds, and a machine that does
    other things needs more to import PySpark; a start that has failed so is repeated.
    """
    while True:
        try:
            return writer.start()
        except PySparkException as failure:
            if "worker failed to connect back" not in str(failure):
                raise


def python_of_spark() -> str:
    """A program for Spark's processes of Python that imports PySpark where it is installed. Spark names archives of its
    sources first, which hold no compiled code: a second and a half of each process, and there are six for each query.
    """
    program = cache_folder() / f"python-of-spark-{hashlib.sha256((sys.executable + _ROOT).encode()).hexdigest()[:12]}"
    if not program.exists():
        cache_folder().mkdir(parents=True, exist_ok=True)
        made = program.with_name(f"{program.name}.{os.getpid()}")
        made.write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(_ROOT)} exec {shlex.quote(sys.executable)} "$@"\n')
        made.chmod(0o755)
        made.rename(program)
    return str(program)


class Sessions:
    """One session at a time, which stays until somebody wants one of another kind. ``folder``: for what they write."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack, self._numbers = folder, contextlib.ExitStack(), itertools.count()
        self._open: tuple[Kind, SparkSession] | None = None

    def of(self, kind: Kind) -> SparkSession:
        """A session of this kind."""
        if self._open is None or self._open[0] != kind:
            self.close()
            self._open = kind, self._stack.enter_context(opened(kind, self._folder / str(next(self._numbers))))
        return self._open[1]

    def close(self) -> None:
        """End the session."""
        self._open = None
        self._stack.close()


@contextlib.contextmanager
def opened(kind: Kind, folder: Path) -> Iterator[SparkSession]:
    """A session. Where it is local, a task may fail once. Tasks find the modules of the tests."""
    api, where = kind.split()
    folder.mkdir()
    common = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    with contextlib.ExitStack() as stack:
        settings = {**common, **stack.enter_context(_standalone(folder) if where == "standalone" else _local())}
        if api == "connect":
            # What gRPC does when a process forks may end the new one, before it becomes another program.
            os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
            server = ConnectServer(folder, python_of_spark(), settings, PYTHONPATH=_ROOT)
            stack.callback(server.close)
            stack.callback(os.environ.pop, "SPARK_CONNECT_MODE_ENABLED", None)  # PySpark sets it for the whole process
            made = SparkSession.builder.remote(server.properties["spark.remote"]).getOrCreate()
            stack.callback(made.stop)
        else:
            made = stack.enter_context(session_on({**settings, "spark.sql.warehouse.dir": str(folder / "warehouse")}))
        yield made


@contextlib.contextmanager
def _local() -> Iterator[Mapping[str, str]]:
    """Settings of threads of one process."""
    yield {
        "spark.master": "local[2, 2]",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        **spark(),
    }


@contextlib.contextmanager
def _standalone(folder: Path) -> Iterator[Mapping[str, str]]:
    """Settings of a cluster that runs meanwhile."""
    cluster = Cluster(folder / "cluster")
    try:
        cluster.worker(2, PYTHONPATH=_ROOT)
        yield cluster.properties
    finally:
        cluster.stop()


@contextlib.contextmanager
def session_on(settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session of this process with these settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", python_of_spark())
        patch.setenv("PYTHONPATH", _ROOT, prepend=os.pathsep)
        made = SparkSession.builder.config(map={**settings}).getOrCreate()
        made.sparkContext.setLogLevel("OFF")
        try:
            yield made
        finally:
            made.stop()
