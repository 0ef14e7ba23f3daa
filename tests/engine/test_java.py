"""A JVM that has ended while its Python lives."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from pyspark import SparkConf, SparkContext

from calving.cli import main
from calving.engine import java
from calving.engine.java import forget_a_dead_jvm
from calving.engine.spark import LOCAL_JAVA
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


@pytest.mark.parametrize("options", [None, "-Xmx64m"])
def test_the_launchers_jvm_has_the_options_of_a_short_one_unless_the_user_gives_some(
    monkeypatch: pytest.MonkeyPatch, options: str | None
) -> None:
    monkeypatch.delenv("SPARK_LAUNCHER_OPTS", raising=False)
    if options is not None:
        monkeypatch.setenv("SPARK_LAUNCHER_OPTS", options)
    started: list[str] = []
    monkeypatch.setattr(java, "launch_gateway", lambda *_: started.append(os.environ["SPARK_LAUNCHER_OPTS"]))
    java.launch(SparkConf(loadDefaults=False), LOCAL_JAVA)
    assert started == [options or LOCAL_JAVA]
    assert os.environ.get("SPARK_LAUNCHER_OPTS") == options
