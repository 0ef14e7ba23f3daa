"""Decides which topics are gone for good, from the broker's answers over a minute.

A topic id that is gone never comes back. A topic without one may.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from calving.model.offsets import Topic

_MOST = 10_000
"""The number of gone topics that are kept, so that tables with rare commits drop them, too."""


class _Looks(NamedTuple):
    first: float
    number: int


class Departures:
    """The topics that the broker has missed in enough lookups to be gone for good."""

    looks, seconds, pause = 4, 60.0, 15.0
    """A topic is gone after this many lookups without it, over at least so many seconds, with a pause between
    lookups.
    """

    def __init__(self) -> None:
        self._missed: dict[Topic, _Looks] = {}
        self._looked = float("-inf")
        self._gone: dict[Topic, None] = {}

    @property
    def gone(self) -> Collection[Topic]:
        """The topics that are gone; the last ten thousand."""
        return self._gone.keys()

    def heard(self, topics: Iterable[Topic]) -> None:
        """A worker has read these topics: they exist, or were recreated and have no topic id to tell them apart."""
        for topic in topics:
            self._gone.pop(topic, None)

    def is_due(self, now: float) -> bool:
        """Whether the pause since the last lookup is over."""
        return now - self._looked >= self.pause

    def doubtful(self, now: float, known: Iterable[Topic], listed: Collection[str]) -> frozenset[Topic]:
        """The ``known`` topics to look up at the broker: not ``listed`` by name, or one name with several topic ids.

        The pause begins now, whether or not the broker answers.
        """
        self._looked = now
        named: dict[str, set[Topic]] = {}
        for topic in known:
            if topic not in self._gone:
                named.setdefault(topic.name, set()).add(topic)
        return frozenset(
            topic
            for name, topics in named.items()
            if name not in listed or len([topic for topic in topics if topic.id]) > 1
            for topic in topics
        )

    def looked(self, now: float, asked: Collection[Topic], missed: Collection[Topic]) -> None:
        """The broker has answered: of ``asked`` it does not know ``missed``. Do not call this without an answer."""
        self._missed = {topic: looks for topic, looks in self._missed.items() if topic in missed}
        for topic in asked:
            if topic not in missed:
                continue
            first, before = self._missed.get(topic, _Looks(now, 0))
            self._missed[topic] = _Looks(first, before + 1)
            if before + 1 >= self.looks and now - first >= self.seconds:
                del self._missed[topic]
                self._gone[topic] = None
        while len(self._gone) > _MOST:
            del self._gone[next(iter(self._gone))]
