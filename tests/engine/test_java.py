"""A JVM that has ended while its Python lives."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from calving.cli import main
from calving.engine.java import forget_a_dead_jvm
from calving.errors import RestartNeededError


class Dead:
    """A gateway whose JVM answers nothing."""

    @property
    def jvm(self) -> SimpleNamespace:
        raise ConnectionRefusedError

    def shutdown(self) -> None:
        raise ConnectionRefusedError


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"_gateway": Dead(), "_jvm": object(), "_active_spark_context": object()}.items():
        monkeypatch.setattr(SparkContext, name, value)


@pytest.mark.usefixtures("dead")
def test_pyspark_may_start_another_one() -> None:
    forget_a_dead_jvm()
    assert (SparkContext._gateway, SparkContext._jvm, SparkContext._active_spark_context) == (None, None, None)


@pytest.mark.usefixtures("dead")
def test_the_one_of_spark_submit_ends_the_process_with_the_code_of_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with pytest.raises(RestartNeededError, match="the JVM of spark-submit has ended"):
        forget_a_dead_jvm()
    monkeypatch.setattr(main, "app", lambda **_: forget_a_dead_jvm())
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 75
