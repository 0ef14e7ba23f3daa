"""The sink opens a lost engine again, and waits for one that cannot be reached or starts late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from calving.engine.interface import Engine, Function, LocalEngine
from calving.engine.opening import OpeningEngine
from calving.engine.registry import Patience
from calving.errors import ConfigError, EngineLostError, NoResourcesError, UnavailableError, UnexpectedError


class Failing(LocalEngine):
    """Raises the next of ``errors`` in each call; None: the call succeeds."""

    def __init__(self, *errors: Exception | None) -> None:
        self._errors, self.closed = list(errors), False

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return super().map(function, payloads)

    def close(self) -> None:
        self.closed = True
        raise OSError("the server is away")


def opening(*engines: Engine | Exception) -> Callable[[], Engine]:
    waiting = list(engines)

    def open_it() -> Engine:
        found = waiting.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return open_it


def shout(engine: Engine) -> list[str]:
    return engine.map(str.upper, ["a"])


def test_a_lost_engine_is_closed_and_opened_again() -> None:
    lost = Failing(EngineLostError("its server has ended the session"))
    engine = OpeningEngine(opening(lost, LocalEngine()))
    with pytest.raises(EngineLostError, match="has ended the session"):
        shout(engine)
    assert shout(engine) == ["A"]
    assert lost.closed


def test_a_failed_job_keeps_its_engine() -> None:
    kept = Failing(UnavailableError("topic 't': no leader"))
    engine = OpeningEngine(opening(kept))
    with pytest.raises(UnavailableError):
        shout(engine)
    assert shout(engine) == ["A"]
    assert not kept.closed


def test_an_engine_that_cannot_be_reached_is_opened_again() -> None:
    engine = OpeningEngine(opening(UnavailableError("away"), UnavailableError("away"), LocalEngine()))
    for _ in range(2):
        with pytest.raises(UnavailableError, match="away"):
            shout(engine)
    assert shout(engine) == ["A"]


def test_an_engine_that_does_not_start_is_not_opened_again() -> None:
    engine = OpeningEngine(opening(ConfigError("no such master")))
    for _ in range(2):
        with pytest.raises(ConfigError, match="no such master"):
            shout(engine)


def test_an_engine_that_has_started_before_can_start_again() -> None:
    """Settings are not wrong suddenly."""
    lost = Failing(EngineLostError("gone"))
    engine = OpeningEngine(opening(lost, ConfigError("does not start"), ConfigError("does not start"), LocalEngine()))
    with pytest.raises(EngineLostError):
        shout(engine)
    for _ in range(2):
        with pytest.raises(UnexpectedError, match="does not start"):
            shout(engine)
    assert shout(engine) == ["A"]


def test_no_resources_stop_a_sink_that_never_had_any() -> None:
    with pytest.raises(ConfigError, match="no executors"):
        shout(OpeningEngine(opening(Failing(NoResourcesError("no executors")), LocalEngine())))


def test_a_sink_that_had_resources_asks_for_new_ones() -> None:
    engine = OpeningEngine(opening(Failing(None, NoResourcesError("no executors")), LocalEngine()))
    assert shout(engine) == ["A"]
    with pytest.raises(NoResourcesError, match="no executors"):
        shout(engine)
    assert shout(engine) == ["A"]


def test_resources_that_are_lost_again_are_no_error_of_the_settings() -> None:
    """A new engine of a sink that has worked."""
    first, second = Failing(None, EngineLostError("gone")), Failing(NoResourcesError("no executors"))
    engine = OpeningEngine(opening(first, second, LocalEngine()))
    assert shout(engine) == ["A"]
    for error in (EngineLostError, NoResourcesError):
        with pytest.raises(error):
            shout(engine)
    assert shout(engine) == ["A"]


def test_an_engine_that_starts_late_is_an_error_each_time_it_is_late_and_is_used_at_last() -> None:
    room = threading.Event()

    def wait() -> Engine:
        room.wait()
        return LocalEngine()

    engine = OpeningEngine(wait, Patience(resources=0.2))
    engine.begin()
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"not started for 0 s \(iceberg.engine.resources-timeout-ms\)"):
            shout(engine)
    engine.begin()  # the time begins again
    time.sleep(0.3)
    with pytest.raises(UnavailableError, match="does it have the resources"):
        engine.begin()
    room.set()
    assert shout(engine) == ["A"]
