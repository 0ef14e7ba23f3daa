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
_TASKS = "Traceback (most recent call last):\n"
"""What precedes the error of a task. The text after it may hold anything."""
_GRPC = re.compile(r'details = "(.+)"')
_MISSING = re.compile(
    r"(?:^\s*|Error while finding module specification for .*\()ModuleNotFoundError: No module named '([\w.]+)'", re.M
)
_NO_PROGRAM = re.compile(r'IOException: Cannot run program "([^"]+)"[^:]*: (?:Exec failed, )?error[=:] ?(?:2|13)\b')
_PYTHONS = re.compile(r"Python in worker:? has different version:? \"?([\d.]+)\"? than that in driver:? \"?([\d.]+)")
_VERSIONS = re.compile(r"RuntimeError: (calving \S+ is installed for Spark's workers, calving \S+ for the driver)")
_FORGOTTEN = re.compile(
    r"INVALID_HANDLE\.|NO_ACTIVE_SESSION|StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED|stopped SparkContext"
)
"""Spark Connect's server is away, or knows the session no more."""
_AWAY = re.compile(
    r"All masters are unresponsive|error from cluster scheduler|stopped SparkContext|on a running MetricsSystem"
    r"|(?:YARN )?application \S* ?(?:has (?:already )?ended|was killed|.*failed \d+ times)"
    r"|ConnectException|UnknownHostException|NoRouteToHostException|SocketTimeoutException|ConnectTimeout"
    r"|StandbyException|Only one SparkContext|connect to the Java server",
    re.I,
)
"""A cluster that is away, or has ended the application, while Spark starts."""

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


def not_started(text: str) -> CalvingError:
    """The error to raise for Spark's text about its start: ``UnavailableError`` if its cluster or server is away."""
    if _AWAY.search(text) or is_forgotten(text):
        return UnavailableError(f"Spark does not start yet: {task_error(text)}")
    return ConfigError(f"spark.*: Spark does not start: {text}")


def is_forgotten(text: str) -> bool:
    """Whether an error of Spark Connect says that its server is away, or does not know the session any more."""
    return _TASKS not in text and _FORGOTTEN.search(text) is not None


def task_error(text: str) -> str:
    """The task's error in a Spark stack trace; if there is none, the first line with text."""
    if _TASKS not in text and (told := _GRPC.search(text)):
        return told.group(1)
    _, separator, after = text.rpartition(_TASKS)
    lines = [line for line in (after if separator else text).splitlines() if line.strip(": ")]
    first = [line for line in lines if not line.startswith((" ", "\t", "An error occurred while calling"))]
    return next(iter(first or lines), "").strip(": ") or "Spark does not say why"


def _lasting(text: str) -> str | None:
    if match := _MISSING.search(text):
        name = match.group(1).partition(".")[0]
        return (
            f"the Python of Spark's workers lacks the package '{name}': install calving with all that it needs there,"
            f" in the driver's versions; {_INTERPRETER}"
        )
    if match := _NO_PROGRAM.search(text):
        return f"Spark's workers have no Python at '{match.group(1)}': {_INTERPRETER}"
    if match := _PYTHONS.search(text):
        return (
            f"Spark's workers run Python {match.group(1)}, the driver {match.group(2)}: they must be of the same minor"
            f" version; {_INTERPRETER}"
        )
    if match := _VERSIONS.search(text):
        return f"{match.group(1)}: install the same version for both; {_INTERPRETER}"
    return None
