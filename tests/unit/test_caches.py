"""A cache that a few long texts cannot fill."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from calving.caches import cached_by_length
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
