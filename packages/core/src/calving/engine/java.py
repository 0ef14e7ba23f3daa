"""Starts a local JVM whose log goes where this process logs, and limits PySpark's conversions for the JVM."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import Any

from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from calving.errors import RestartNeededError
from calving.secrets import masked

_EXPECTED = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Java says so at each start, because Spark's launcher adds the module."""
_LAST_WORDS_SECONDS = 5.0


def launch(conf: SparkConf) -> Any:
    """A gateway as PySpark makes it. The JVM's standard error goes to ``sys.stderr``, line by line, so that a live view
    is not garbled. Expected warnings are left out.

    :raises Exception: Spark's error. The JVM's messages about it have been written.
    """
    source, sink = os.pipe()
    lines = threading.Thread(target=_hand_on, args=(source,), name="calving-java", daemon=True)
    lines.start()
    try:
        try:
            return launch_gateway(conf, {"stderr": sink})  # type: ignore[no-untyped-call]
        finally:
            os.close(sink)  # the JVM has its own copy, and closes it when it ends
    except Exception:
        lines.join(_LAST_WORDS_SECONDS)
        raise


def forget_a_dead_jvm() -> None:
    """Let PySpark start another JVM, if the JVM of this process has ended.

    :raises RestartNeededError: spark-submit started the JVM, and this process in it.
    """
    gateway = SparkContext._gateway
    if gateway is None:
        return
    try:
        gateway.jvm.System.nanoTime()
    except (Py4JError, OSError) as error:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            raise RestartNeededError("the JVM of spark-submit has ended: start the sink again") from error
        with contextlib.suppress(Exception):  # its connections are broken
            gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None


def end_jvm(seconds: float) -> int | None:
    """End the JVM of this process, whose Spark has stopped; returns its exit code. None: it is not this process's own,
    or runs on after ``seconds``.
    """
    gateway = SparkContext._gateway
    jvm = getattr(gateway, "proc", None)
    if gateway is None or not isinstance(jvm, subprocess.Popen) or jvm.stdin is None:
        return None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    jvm.stdin.close()  # the JVM ends when its input is closed
    with contextlib.suppress(subprocess.TimeoutExpired):
        return jvm.wait(seconds)
    return None


class _NumpyConverter:
    """A converter of PySpark that is used only for NumPy's values."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter

    def can_convert(self, value: object) -> bool:
        is_numpy = any(kind.__module__ == "numpy" for kind in type(value).__mro__)
        return is_numpy and bool(self._converter.can_convert(value))

    def convert(self, value: object, client: Any) -> Any:
        return self._converter.convert(value, client)


def ask_about_numpy_alone() -> None:
    """Keep PySpark from importing its test helpers, and with them pandas, when it calls Java. PySpark uses these
    helpers for each argument to find out whether NumPy is installed; the first time this takes a second of CPU.
    """
    for place, converter in enumerate(INPUT_CONVERTER):
        if isinstance(converter, NumpyScalarConverter | NumpyArrayConverter):
            INPUT_CONVERTER[place] = _NumpyConverter(converter)


def _hand_on(source: int) -> None:
    with open(source, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if line.rstrip() == _EXPECTED or sys.stderr is None:
                continue
            with contextlib.suppress(OSError, ValueError):  # closed; the JVM must not block on its output
                sys.stderr.write(masked(line))
                sys.stderr.flush()
