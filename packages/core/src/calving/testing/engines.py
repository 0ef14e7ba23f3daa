"""The contract of engines, as tests."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from calving.engine.interface import Engine
from calving.errors import UnavailableError
from calving.model.record_path import RecordPath, Routing
from calving.tasks.spec import TaskSpec


def shout(payload: str) -> str:
    return payload.upper()


def fail(payload: str) -> str:
    raise ValueError(f"no good: {payload}")


def find_nothing(payload: str) -> str:
    raise UnavailableError(f"nobody answers: {payload}")


class EngineContract:
    """The contract of engines: an engine maps any function of a module over payloads, and reports the errors that the
    function raises. The fixture ``engine`` is an open engine.

    Workers must be able to import ``calving.testing``, and with it pytest.
    """

    @pytest.fixture
    def engine(self) -> Engine:
        raise NotImplementedError("an engine's tests define the fixture 'engine'")

    def test_it_has_room_for_a_task(self, engine: Engine) -> None:
        assert engine.slots >= 1

    def test_payloads_come_back_in_their_order(self, engine: Engine) -> None:
        payloads = [f"payload {i}" for i in range(engine.slots * 3 + 1)]
        assert engine.map(shout, payloads) == [f"PAYLOAD {i}" for i in range(len(payloads))]

    def test_a_function_of_any_module_can_be_mapped(self, engine: Engine) -> None:
        assert engine.map(str.title, ["one", "two"]) == ["One", "Two"]

    def test_a_payload_comes_as_it_was_given(self, engine: Engine) -> None:
        payloads = ["", "a\nb\0c", "ü€😀", "'\"\\", "x" * 1_000_000]
        assert engine.map(str.strip, payloads) == payloads

    def test_of_no_payloads_there_is_nothing(self, engine: Engine) -> None:
        assert engine.map(shout, []) == []
        assert engine.run([]) == []

    def test_what_a_function_raises_is_told(self, engine: Engine) -> None:
        with pytest.raises(Exception, match="no good: payload"):
            engine.map(fail, ["payload"])

    def test_what_may_pass_is_told_from_what_failed(self, engine: Engine) -> None:
        with pytest.raises(UnavailableError, match="nobody answers: payload"):
            engine.map(find_nothing, ["payload"])

    def test_it_goes_on_after_a_failure(self, engine: Engine) -> None:
        with pytest.raises(Exception, match="no good"):
            engine.map(fail, ["payload"])
        assert engine.map(shout, ["payload"]) == ["PAYLOAD"]

    def test_jobs_run_beside_each_other(self, engine: Engine) -> None:
        others = [other for _ in range(2) if (other := engine.for_other_jobs()) is not None]
        with ThreadPoolExecutor() as pool:
            jobs = [pool.submit(each.map, shout, [f"{i} a", f"{i} b"]) for i, each in enumerate([engine, *others])]
        assert [each.result() for each in jobs] == [[f"{i} A", f"{i} B"] for i in range(len(jobs))]

    def test_every_task_runs_and_has_its_result(self, engine: Engine) -> None:
        path = RecordPath({"bootstrap.servers": "localhost:1"}, Routing())
        tasks = [TaskSpec(number, (), path, {}, {}) for number in range(3)]
        assert [result.number for result in engine.run(tasks)] == [0, 1, 2]

    def test_it_can_be_closed_twice(self, engine: Engine) -> None:
        engine.close()
        engine.close()
