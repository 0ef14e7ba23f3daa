"""How far the reading of a range has come: a bar at a terminal, elsewhere a line in the log from time to time."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from calving.terminal.texts import count, percent

log = logging.getLogger(__name__)

_LINE_SECONDS = 10.0


class RangeBar:
    """``console``: None if there is no terminal."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._bar: tuple[Progress, TaskID] | None = None
        self._name, self._total, self._told = "", 0, 0.0

    @contextmanager
    def of(self, name: str, total: int) -> Iterator[None]:
        """Show the reading of ``total`` offsets."""
        self._name, self._total, self._told = name, total, time.monotonic()
        if self._console is None:
            yield
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as shown:
            self._bar = shown, shown.add_task(f"backfill {name}", total=total)
            yield

    def show(self, read: int) -> None:
        """So many offsets were read."""
        if self._bar is not None:
            shown, task = self._bar
            shown.update(task, completed=read)
        elif time.monotonic() - self._told >= _LINE_SECONDS:
            self._told = time.monotonic()
            share = percent(read / self._total) if self._total else "-"
            log.info("backfill %s: %s of %s offsets are read, %s", self._name, count(read), count(self._total), share)
