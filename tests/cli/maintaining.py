"""``calving maintain`` in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from calving.cli.maintain import maintain
from calving.runtime.maintenance.maintainer import DEFAULT, MaintenanceOrder
from calving.runtime.maintenance.step import MaintenanceStep
from calving.settings.load import Sink


def steps(
    sink: Sink,
    names: Collection[str] = (),
    tasks: Collection[str] = DEFAULT,
    *,
    now_ms: int = 0,
    other_sinks: Sequence[Sink] = (),
    dry_run: bool = False,
    beside_others: bool = False,
) -> Iterator[MaintenanceStep]:
    """What the command does."""
    order = MaintenanceOrder([*names], tasks, other_sinks, dry_run=dry_run, beside_others=beside_others)
    return maintain(sink, order, now_ms, "test")


def lines(
    sink: Sink,
    names: Collection[str] = (),
    tasks: Collection[str] = DEFAULT,
    *,
    dry_run: bool = False,
    now_ms: int = 0,
    beside_others: bool = False,
) -> list[str]:
    """What the command says."""
    done = steps(sink, names, tasks, now_ms=now_ms, dry_run=dry_run, beside_others=beside_others)
    return [step.line() for step in done]
