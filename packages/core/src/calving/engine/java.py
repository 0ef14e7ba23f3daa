"""Starts a local JVM whose log goes where this process logs, and limits PySpark's conversions for the JVM."""

from __future__ import annotations

import contextlib
import os
import string
import subprocess
import sys
import threading
from collections.abc import Iterator
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
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_LAUNCHER = "SPARK_LAUNCHER_OPTS"
"""Java's options for the short JVM in which spark-submit makes the command of the real one."""
_PLAIN = frozenset(string.ascii_letters + string.digits + "._-/,;@%+$()[]{}<>*'\"&|~^?")
"""Characters that a properties file has as they are, everywhere in keys and values."""


def launch(conf: SparkConf, launcher: str) -> Any:
    """A gateway as PySpark makes it, but with the settings in a file in memory, which only this user can read: PySpark
    makes them arguments, which every user of the machine sees. The JVM's standard error goes to ``sys.stderr``, line by
    line, so that a live view is not garbled. Expected warnings are left out. ``launcher``: as ``_submitting`` takes it.

    :raises Exception: Spark's error. The JVM's messages about it have been written.
    """
    source, sink = os.pipe()
    lines = threading.Thread(target=_hand_on, args=(source,), name="calving-java", daemon=True)
    lines.start()
    try:
        try:
            with (
                _in_memory(conf) as settings,
                _submitting(f"--load-spark-defaults --properties-file /dev/fd/{settings}", launcher),
            ):
                return launch_gateway(None, {"stderr": sink, "pass_fds": (settings,)})  # type: ignore[no-untyped-call]
        finally:
            os.close(sink)  # the JVM has its own copy, and closes it when it ends
    except Exception:
        lines.join(_LAST_WORDS_SECONDS)
        raise


@contextlib.contextmanager
def _in_memory(conf: SparkConf) -> Iterator[int]:
    """A file in memory with the settings, as Java reads them; no file system has it."""
    file = os.memfd_create("spark.conf")
    try:
        for key, value in conf.getAll():
            os.write(file, f"{_escaped(key)}={_escaped(value)}\n".encode("ascii"))
        yield file
    finally:
        os.close(file)


def _escaped(text: str) -> str:
    """A key or a value for a properties file, which may have any character."""
    units = text.encode("utf-16-be", "surrogatepass")
    codes = (int.from_bytes(units[i : i + 2]) for i in range(0, len(units), 2))
    return "".join(chr(c) if chr(c) in _PLAIN else f"\\u{c:04x}" for c in codes)


@contextlib.contextmanager
def _submitting(arguments: str, launcher: str) -> Iterator[None]:
    """Give these arguments to the spark-submit that PySpark starts. ``launcher``: Java's options for its launcher, if
    the user gives none.
    """
    before = {name: os.environ.get(name) for name in (_ARGUMENTS, _LAUNCHER)}
    os.environ[_ARGUMENTS] = f"{arguments} {before[_ARGUMENTS] or 'pyspark-shell'}"
    os.environ.setdefault(_LAUNCHER, launcher)
    try:
        yield
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


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
