"""Errors of failed Spark jobs, translated."""

from __future__ import annotations

import threading

import pytest

from calving.engine.registry import Patience
from calving.engine.spark import Watch, is_forgotten, not_started, verdict
from calving.errors import CalvingError, ConfigError, JobFailedError, UnavailableError

_ABORTED = "An error occurred while calling o47.collect.\n: org.apache.spark.SparkException: Job aborted: {}"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Error from python worker:\n  /bare/python: Error while finding module specification for"
            " 'calving.engine.daemon' (ModuleNotFoundError: No module named 'calving')\nPYTHONPATH was: /x",
            "the Python of Spark's workers lacks the package 'calving'",
        ),
        (
            "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'pyarrow.lib'",
            "lacks the package 'pyarrow'",
        ),
        (
            'java.io.IOException: Cannot run program "/no/python": error=2, No such file or directory',
            "no Python at '/no/python'",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.12, PySpark"
            " cannot run with different minor versions.",
            "workers run Python 3.9, the driver 3.12",
        ),
        (
            "RuntimeError: calving 1.0 is installed for Spark's workers, calving 1.1 for the driver",
            "calving 1.0 is installed for Spark's workers, calving 1.1 for the driver",
        ),
        (
            "Error from python worker:\n  Traceback (most recent call last):\n    File x\n"
            "  ModuleNotFoundError: No module named 'pyarrow'\nPYTHONPATH was: /x",
            "lacks the package 'pyarrow'",
        ),
        (
            'java.io.IOException: Cannot run program "/secret/python": error=13, Permission denied',
            "no Python at '/secret/python'",
        ),
        (
            'java.io.IOException: Cannot run program "x" (in directory "."): Exec failed, error: 2 (No such file)',
            "no Python at 'x'",
        ),
    ],
)
def test_what_no_attempt_can_change_is_said_in_one_sentence(said: str, told: str) -> None:
    error = verdict(_ABORTED.format(said))
    assert isinstance(error, ConfigError)
    assert told in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ExecutorLostFailure (executor 0 exited caused by one of the tasks) Reason: worker lost", JobFailedError),
        (
            "Traceback (most recent call last):\n  File x\ncalving.errors.UnavailableError: topic 't', partition 1: no leader",
            UnavailableError,
        ),
        ("", JobFailedError),
        (
            'java.io.IOException: Cannot run program "/bin/python": error=12, Cannot allocate memory',
            JobFailedError,
        ),
        (
            'java.io.IOException: Cannot run program "/bin/python": error=11, Resource temporarily unavailable',
            JobFailedError,
        ),
        (
            "Traceback (most recent call last):\n  File x\nValueError: field 'note': \"No module named 'acme'\"",
            JobFailedError,
        ),
        (
            "Traceback (most recent call last):\n  File x\nValueError: \"ModuleNotFoundError: No module named 'acme'\"",
            JobFailedError,
        ),
    ],
)
def test_what_may_pass_is_tried_again(said: str, kind: type[CalvingError]) -> None:
    assert type(verdict(_ABORTED.format(said))) is kind


def test_a_job_that_gets_no_resources_is_cancelled() -> None:
    cancelled = threading.Event()
    with Watch(Patience(0.1, 60), lambda: False, cancelled.set) as watch:
        assert cancelled.wait(120)
    assert (watch.no_resources, watch.too_long) == (True, False)


def test_a_job_is_cancelled_until_it_ends() -> None:
    cancelled: list[int] = []
    done = threading.Event()

    def cancel() -> None:
        cancelled.append(1)
        if len(cancelled) == 2:
            done.set()

    with Watch(Patience(0.1, 60), lambda: False, cancel):
        assert done.wait(120)


def test_a_job_that_runs_too_long_is_cancelled() -> None:
    cancelled = threading.Event()
    with Watch(Patience(60, 0.1), lambda: True, cancelled.set) as watch:
        assert cancelled.wait(120)
    assert (watch.no_resources, watch.too_long) == (False, True)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            "java.net.ConnectException: Call From vm/127.0.0.1 to rm:8032 failed on connection exception",
            UnavailableError,
        ),
        ("org.apache.spark.SparkException: YARN application has already ended! It might have been", UnavailableError),
        (
            "org.apache.hadoop.yarn.exceptions.YarnException: Failed to submit application_1_2 to YARN :"
            " application application_1_2 was killed",
            UnavailableError,
        ),
        ("java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", UnavailableError),
        ("org.apache.spark.SparkException: Could not parse Master URL: 'spark:/bad'", ConfigError),
        (
            "org.apache.spark.SparkException: Exception when registering SparkListener\nClassNotFoundException",
            ConfigError,
        ),
        ("java.lang.NumberFormatException: Size must be specified as bytes (b)", ConfigError),
    ],
)
def test_a_cluster_that_is_away_is_told_from_wrong_settings(said: str, kind: type[CalvingError]) -> None:
    error = not_started(
        f"An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: {said}\n\tat x"
    )
    assert type(error) is kind
    assert said.splitlines()[0] in str(error)


_AWAY = """<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.UNAVAILABLE
\tdetails = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:15002: Connection refused"
"""


@pytest.mark.parametrize(
    "said",
    [
        "(org.apache.spark.SparkSQLException) [INVALID_HANDLE.SESSION_CLOSED] The handle 1-2 is invalid.",
        "[INVALID_HANDLE.SESSION_CHANGED] The existing Spark server driver instance has restarted.",
        "[NO_ACTIVE_SESSION] No active Spark session found. Please create a new Spark session.",
        "[RETRIES_EXCEEDED] The maximum number of retries has been exceeded.",
        _AWAY,
    ],
)
def test_a_server_that_is_away_or_has_forgotten_the_session_is_told(said: str) -> None:
    assert is_forgotten(said)
    assert type(not_started(said)) is UnavailableError


def test_what_is_said_of_a_server_that_is_away_is_one_sentence() -> None:
    assert str(not_started(_AWAY)).startswith(
        "Spark does not start yet: failed to connect to all addresses; last error"
    )


def test_the_error_of_a_task_may_name_anything() -> None:
    assert not is_forgotten("Traceback (most recent call last):\n  File x\nValueError: INVALID_HANDLE.SESSION_CLOSED")
