"""``calving maintain`` in this process."""

from __future__ import annotations

from collections.abc import Collection

from calving.cli.maintain import DEFAULT, maintain
from calving.settings.load import Sink


def lines(
    sink: Sink,
    names: Collection[str] = (),
    tasks: Collection[str] = DEFAULT,
    *,
    dry_run: bool = False,
    now_ms: int = 0,
) -> list[str]:
    """What the command says."""
    return [step.line() for step in maintain(sink, names, tasks, now_ms=now_ms, dry_run=dry_run)]
