"""Tasks as one Spark job: what classic Spark and Spark Connect have in common."""

from __future__ import annotations

import logging
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType

from calving.engine.interface import Engine, Function
from calving.engine.registry import Patience
from calving.errors import (
    AccessDeniedError,
    CalvingError,
    ConfigError,
    CredentialsExpiredError,
    EngineLostError,
    JobFailedError,
    JobTooLongError,
    NoResourcesError,
    UnavailableError,
)
from calving.secrets import is_harmless
from calving.tasks.spec import TaskResult, TaskSpec
from calving.tasks.task import run_json

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


class Watch:
    """A context around one job. ``cancel`` ends the job from another thread. ``began`` tells whether a task of the job
    runs or has run.
    """

    def __init__(self, patience: Patience, began: Callable[[], bool], cancel: Callable[[], object]) -> None:
        self._patience, self._began, self._cancel = patience, began, cancel
        self._ended = threading.Event()
        self.no_resources = self.too_long = False

    def __enter__(self) -> Watch:
        threading.Thread(target=self._look, name="calving-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _look(self) -> None:
        started, began = time.monotonic(), False
        while not self._ended.wait(_LOOK_SECONDS):
            took = time.monotonic() - started
            try:
                began = began or self._began()
                self.no_resources |= not began and took > self._patience.resources
                self.too_long |= took > self._patience.job
                if self.no_resources or self.too_long:
                    self._cancel()  # and again until the job ends: Spark does not cancel tasks that it has not begun
            except Exception as error:  # Spark's errors while the driver ends: the job reports them
                log.debug("the Spark job cannot be watched: %s", error)


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


JAVA_OPTIONS = "spark.driver.extraJavaOptions"
LOCAL_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""A local JVM only schedules, so optimising its code would cost more than it saves."""

PYTHON_DAEMON, DAEMON = "spark.python.daemon.module", "calving.engine.daemon"
"""The heavy imports happen once, before workers are forked."""

REDACTED = "spark.redaction.regex"
_REDACTED = "(?i)secret|password|token|access[.]?key"
"""Spark's own default."""


def redacted(settings: Mapping[str, str]) -> str:
    """The value of ``REDACTED``, with which Spark's event log and page mask all settings that are not known to be
    harmless.
    """
    # The event log names settings of Hadoop without their prefix.
    secret = (re.escape(key.removeprefix("spark.hadoop.")) for key in sorted(settings) if not is_harmless(key))
    return "|".join([settings.get(REDACTED, _REDACTED), *secret])


class SparkEngine(Engine):
    """An engine on Spark. Tasks and results are sent as JSON, and each job is watched."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    @abstractmethod
    def count_slots(self) -> int:
        """Like ``slots``, but raises Spark's own errors."""

    @abstractmethod
    def map_job(self, function: Function, payloads: Sequence[str]) -> list[str]:
        """Like ``map``, but raises Spark's own errors."""

    @abstractmethod
    def shuffle_job(self, texts: Sequence[str]) -> list[str]:
        """The results of all tasks, and of the receiving tasks that write the shuffled rows, one in each slot."""

    @abstractmethod
    def began(self) -> bool:
        """Whether a task of the running job runs or has run. Called from another thread."""

    @abstractmethod
    def cancel(self) -> None:
        """End the running job. Called from another thread."""

    @abstractmethod
    def is_lost(self, error: Exception) -> bool:
        """Whether Spark takes no more jobs from this engine after this error."""

    @property
    def slots(self) -> int:
        try:
            return self.count_slots()
        except Exception as error:  # from py4j, gRPC or Spark
            raise self._verdict(error) from error

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return self._watched(lambda: self.map_job(function, payloads)) if payloads else []

    def run(self, tasks: Sequence[TaskSpec]) -> list[TaskResult]:
        shuffle = len(tasks) > 1 and any(
            table.distribution != "none" for spec in tasks for table in spec.tables.values()
        )
        texts = [replace(spec, shuffle=shuffle).to_json() for spec in tasks]
        answers = self._watched(lambda: self.shuffle_job(texts)) if shuffle else self.map(run_json, texts)
        return [TaskResult.from_json(text) for text in answers]

    def _watched(self, job: Callable[[], list[str]]) -> list[str]:
        with Watch(self._patience, self.began, self.cancel) as watch:
            try:
                answers = job()
            except Exception as error:  # from py4j, gRPC or Spark: the job failed, or its JVM is ending
                raise self._cancelled(watch) or self._verdict(error) from error
        return answers

    def _verdict(self, error: Exception) -> CalvingError:
        if self.is_lost(error):
            return EngineLostError(f"Spark is gone, and is started again: {task_error(str(error))}")
        return verdict(str(error))

    def _cancelled(self, watch: Watch) -> CalvingError | None:
        if watch.no_resources:
            return NoResourcesError(
                f"Spark gave the job no resources for {self._patience.resources:.0f} s"
                " (iceberg.engine.resources-timeout-ms), and it was cancelled: are there executors, and are they large"
                " enough for what spark.executor.* asks for?"
            )
        if watch.too_long:
            return JobTooLongError(
                f"the Spark job took longer than {self._patience.job:.0f} s (iceberg.engine.job-timeout-ms), and was"
                " cancelled"
            )
        return None
