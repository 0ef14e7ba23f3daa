"""Decides which topics are gone for good, from the broker's answers over a minute.

A topic id that is gone never comes back. A topic without a topic id may come back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from calving.model.offsets import Topic

_MOST = 10_000
"""How many gone topics are kept, at most. They are kept so that tables with rare commits drop them from their ledgers,
too.
"""


class _Looks(NamedTuple):
    first: float
    number: int


class Departures:
    """The topics that the broker has missed in enough lookups to be gone for good."""

    looks, seconds, pause = 4, 60.0, 15.0
    """A topic is gone after ``looks`` lookups in a row that miss it, over at least ``seconds`` seconds. ``pause`` is
    the pause between two lookups in seconds.
    """

    def __init__(self) -> None:
        self._missed: dict[Topic, _Looks] = {}
        self._looked = float("-inf")
        self._gone: dict[Topic, None] = {}

    @property
    def gone(self) -> Collection[Topic]:
        """The last ten thousand topics that are gone."""
        return self._gone.keys()

    def heard(self, topics: Iterable[Topic]) -> None:
        """A worker has read these topics, so they are no longer gone. A topic without a topic id may have been
        recreated.
        """
        for topic in topics:
            self._gone.pop(topic, None)

    def is_due(self, now: float) -> bool:
        """Whether the pause since the last lookup is over."""
        return now - self._looked >= self.pause

    def doubtful(self, now: float, known: Iterable[Topic], listed: Collection[str]) -> frozenset[Topic]:
        """The ``known`` topics to look up at the broker: those whose name is not ``listed``, or is known with several
        topic ids.

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
        """The broker has answered: it does not know the ``missed`` topics among ``asked``. Do not call this without an
        answer.
        """
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
