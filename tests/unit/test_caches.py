"""Caches that a few long texts, or a few large collections, cannot fill."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from calving.caches import cached_by_identity, cached_by_length
from calving.model.offsets import decode_covered


class Calls:
    """A function of texts that knows for which it was called."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __call__(self, text: str, *, loud: bool = False) -> str:
        self.made.append(text)
        if not text:
            raise ValueError("no text")
        return text.upper() if loud else text

    def cached(self, most: int) -> Calls:
        return cached_by_length(most)(self.__call__)  # type: ignore[return-value]


def test_a_text_is_read_once() -> None:
    calls = Calls()
    cached = calls.cached(10)
    assert [cached("a"), cached("a"), cached("a", loud=True), cached("a", loud=True)] == ["a", "a", "A", "A"]
    assert calls.made == ["a", "a"]


def test_the_texts_that_were_used_longest_ago_go_first() -> None:
    calls = Calls()
    cached = calls.cached(10)
    for text in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"):
        cached(text)
    assert calls.made == ["aaaa", "bbbb", "cccc", "bbbb"]


def test_the_last_text_is_kept_whatever_its_length() -> None:
    calls = Calls()
    cached = calls.cached(10)
    for text in ("a", "b" * 99, "b" * 99, "a"):
        cached(text)
    assert calls.made == ["a", "b" * 99, "a"]


def test_an_error_is_not_kept() -> None:
    calls = Calls()
    cached = calls.cached(10)
    for _ in range(2):
        with pytest.raises(ValueError, match="no text"):
            cached("")
    assert len(calls.made) == 2


def test_coverages_of_somebody_else_stay_in_memory_up_to_a_bound() -> None:
    def kept_after(*numbers: int) -> int:
        for number in numbers:
            decode_covered(json.dumps({f"t{number}": {str(partition): [[0, 1]] for partition in range(60_000)}}))
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        first = kept_after(0, 1)
        assert kept_after(2, 3) < 1.5 * first
    finally:
        tracemalloc.stop()


class Sums:
    """A function of collections that knows for which it was called."""

    def __init__(self) -> None:
        self.made: list[dict[str, int]] = []

    def __call__(self, numbers: dict[str, int], more: dict[str, int]) -> int:
        self.made.append(numbers)
        return sum(numbers.values()) + sum(more.values())


def test_a_result_is_shared_by_calls_with_the_same_objects() -> None:
    sums = Sums()
    cached, numbers, more = cached_by_identity(10)(sums.__call__), {"a": 1}, {"b": 2}
    assert [cached(numbers, more), cached(numbers, more), cached(numbers, more=more)] == [3, 3, 3]
    assert [cached(numbers, {"b": 3}), cached({"a": 2}, more)] == [4, 4]
    assert len(sums.made) == 4


def test_calls_with_the_same_objects_in_another_order_are_other_calls() -> None:
    cached = cached_by_identity(10)(lambda numbers, more: numbers["a"] - more["a"])
    numbers, more = {"a": 1}, {"a": 2}
    assert [cached(numbers, more), cached(more, numbers)] == [-1, 1]


def test_no_result_is_that_of_an_object_that_is_gone() -> None:
    """A new object may get the id of one that is gone."""
    cached = cached_by_identity(10)(lambda numbers: numbers["a"])
    assert all(cached({"a": number}) == number for number in range(1_000))


def test_the_objects_that_were_used_longest_ago_go_first() -> None:
    sums, more = Sums(), dict[str, int]()
    cached = cached_by_identity(10)(sums.__call__)
    a, b, c = ({str(i): i for i in range(4)} for _ in range(3))
    for numbers in (a, b, a, c, a, b):
        cached(numbers, more)
    assert [id(each) for each in sums.made] == [*map(id, (a, b, c, b))]


def test_threads_that_want_the_same_result_compute_it_once() -> None:
    numbers, begun, made = {"a": 1}, threading.Barrier(4), list[int]()

    def slowly(numbers: dict[str, int]) -> int:
        made.append(numbers["a"])
        time.sleep(0.05)
        return numbers["a"]

    cached = cached_by_identity(10)(slowly)

    def ask(_: int) -> int:
        begun.wait()
        return cached(numbers)

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(ask, range(4))] == [1] * 4
    assert made == [1]
