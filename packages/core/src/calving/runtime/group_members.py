"""The members of a sink's consumer group, as commands see them that work only on a stopped sink."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from calving.errors import CommandFailedError
from calving.model.text import counted
from calving.source.interface import Source

_MEMBERS_SECONDS = 10.0


def mind_members(source: Source, groups: Iterable[str]) -> None:
    """Refuse while the group has members. A worker that has just ended may stay a member until its session
    times out.
    """
    deadline = time.monotonic() + _MEMBERS_SECONDS
    for group in groups:
        while refusals := [*running(source, group)]:
            if time.monotonic() > deadline:
                raise CommandFailedError(refusals[0])
            time.sleep(0.5)


def running(source: Source, group: str) -> Iterator[str]:
    """A sentence on the members of the group, if it has any now."""
    if members := len(source.members(group)):
        yield f"group {group} has {counted(members, 'member')}: stop all workers of the sink first"
