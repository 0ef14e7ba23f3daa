"""Which topics are gone for good, by what the broker has said of them over a minute.

A topic is named ``within`` its identity where it has one. With an identity, gone is gone: no other topic ever gets it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

_MOST = 10_000
"""Topics that are known to be gone, so that tables that are seldom committed drop them, too."""


class _Looks(NamedTuple):
    first: float
    number: int


class Departures:
    looks, seconds, pause = 4, 60.0, 15.0
    """So many looks over so long have to agree; between two of them is a pause."""

    def __init__(self) -> None:
        self._missed: dict[str, _Looks] = {}
        self._looked = float("-inf")
        self._gone: dict[str, None] = {}

    @property
    def gone(self) -> Collection[str]:
        """As decided; the last ten thousand of them."""
        return self._gone.keys()

    def heard(self, topics: Iterable[str]) -> None:
        """Somebody has read these: they are not gone, or have come back without an identity that tells them apart."""
        for topic in topics:
            self._gone.pop(topic, None)

    def is_due(self, now: float) -> bool:
        """Whether the pause since the last look is over."""
        return now - self._looked >= self.pause

    def doubtful(self, now: float, known: Iterable[str], listed: Collection[str]) -> frozenset[str]:
        """Those of the ``known`` topics to ask the broker for: not ``listed`` by name, or one name means several.

        The pause begins, whether or not it answers.
        """
        self._looked = now
        identities: dict[str, set[str]] = {}
        for topic in known:
            if topic not in self._gone:
                name, _, identity = topic.partition("@")
                identities.setdefault(name, set()).add(identity)
        return frozenset(
            f"{name}@{identity}" if identity else name
            for name, found in identities.items()
            if name not in listed or len(found - {""}) > 1
            for identity in found
        )

    def looked(self, now: float, asked: Collection[str], missed: Collection[str]) -> None:
        """The broker has answered: of ``asked`` it does not know ``missed``. Where it has not, this is not called."""
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
