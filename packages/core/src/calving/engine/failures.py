"""Finds the reason of a failed Spark job in its stack traces, and whether another attempt could help."""

from __future__ import annotations

import re

from calving.errors import (
    AccessDeniedError,
    CalvingError,
    ConfigError,
    CredentialsExpiredError,
    JobFailedError,
    UnavailableError,
)

_INTERPRETER = "the setting spark.pyspark.python, or PYSPARK_PYTHON, names the interpreter"
_MISSING = re.compile(r"No module named '([\w.]+)'")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_PYTHONS = re.compile(r"Python in worker:? has different version:? \"?([\d.]+)\"? than that in driver:? \"?([\d.]+)")
_VERSIONS = re.compile(r"calving (\S+) is installed for Spark's workers, calving (\S+) for the driver")
_STOPPED = re.compile(
    r"stopped SparkContext|SparkContext (?:was|has been) ?shut ?down|SparkContext is shutting down", re.I
)

_TOLD = (CredentialsExpiredError, AccessDeniedError, UnavailableError)
"""Errors of tasks that are raised with their own class. All other errors fail the job."""


def verdict(text: str) -> CalvingError:
    """The error to raise for Spark's text about a failed job: ``ConfigError`` if every attempt would fail in the same
    way.
    """
    lasting = _lasting(text)
    if lasting is not None:
        return ConfigError(lasting)
    reason = task_error(text)
    name, _, its_text = reason.partition(": ")
    kind = next((kind for kind in _TOLD if name.endswith(kind.__name__)), None)
    return JobFailedError(f"the Spark job failed: {reason}") if kind is None else kind(its_text)


def task_error(text: str) -> str:
    """The task's error in a Spark stack trace; if there is none, the first line with text."""
    _, found, after = text.rpartition("Traceback (most recent call last):\n")
    lines = [line for line in (after if found else text).splitlines() if line.strip(": ")]
    told = [line for line in lines if not line.startswith((" ", "\t", "An error occurred while calling"))]
    return next(iter(told or lines), "").strip(": ") or "Spark does not say why"


def _lasting(text: str) -> str | None:
    if found := _MISSING.search(text):
        name = found.group(1).partition(".")[0]
        return (
            f"the Python of Spark's workers lacks the package '{name}': install calving with all that it needs there,"
            f" in the driver's versions; {_INTERPRETER}"
        )
    if found := _NO_PROGRAM.search(text):
        return f"Spark's workers have no Python at '{found.group(1)}': {_INTERPRETER}"
    if found := _PYTHONS.search(text):
        return (
            f"Spark's workers run Python {found.group(1)}, the driver {found.group(2)}: they must be of the same minor"
            f" version; {_INTERPRETER}"
        )
    if found := _VERSIONS.search(text):
        return f"{found.group(0)}: install the same version for both; {_INTERPRETER}"
    if _STOPPED.search(text):
        return (
            f"Spark has stopped and cannot be started again in this process ({task_error(text)}): start the sink again"
        )
    return None
