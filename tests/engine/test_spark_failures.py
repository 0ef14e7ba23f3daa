"""Errors of failed Spark jobs, translated."""

from __future__ import annotations

import threading

import pytest

from calving.engine.failures import verdict
from calving.engine.interface import Patience
from calving.engine.watch import Watch
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
        ("Cannot call methods on a stopped SparkContext.", "start the sink again"),
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
    ],
)
def test_what_may_pass_is_tried_again(said: str, kind: type[CalvingError]) -> None:
    assert type(verdict(_ABORTED.format(said))) is kind


def test_a_job_that_gets_no_resources_is_cancelled() -> None:
    cancelled = threading.Event()
    with Watch(Patience(0.1, 60), lambda: False, cancelled.set) as watch:
        assert cancelled.wait(30)
    assert (watch.no_resources, watch.too_long) == (True, False)


def test_a_job_is_cancelled_until_it_ends() -> None:
    cancelled: list[int] = []
    done = threading.Event()

    def cancel() -> None:
        cancelled.append(1)
        if len(cancelled) == 2:
            done.set()

    with Watch(Patience(0.1, 60), lambda: False, cancel):
        assert done.wait(30)


def test_a_job_that_runs_too_long_is_cancelled() -> None:
    cancelled = threading.Event()
    with Watch(Patience(60, 0.1), lambda: True, cancelled.set) as watch:
        assert cancelled.wait(30)
    assert (watch.no_resources, watch.too_long) == (False, True)
