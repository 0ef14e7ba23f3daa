"""Lines of snapshots for tests."""

from __future__ import annotations

from collections.abc import Mapping

from calving.model.tables import SnapshotPlace
from calving.protocol.rollback import Ancestor, Line


def line_of(*summaries: Mapping[str, str]) -> Line:
    """A branch with these summaries, head first; its first snapshot has the id and the number 1."""
    count = len(summaries)
    places = [SnapshotPlace(number, number) for number in range(count, 0, -1)]
    return Line([Ancestor(place, place.id - 1 or None, each) for place, each in zip(places, summaries, strict=True)])
