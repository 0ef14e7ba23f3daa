"""Keeps the live view on the terminal while a sink runs, and log lines above it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator

from rich.console import Console, RenderableType
from rich.live import Live

from calving.secrets import MaskingFormatter
from calving.status.values import Status
from calving.terminal.live import view


class _Lines(logging.Handler):
    """Writes log lines above the live view."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        self._console.print(self.format(record), markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def showing(console: Console, status: Callable[[], Status], url: Callable[[], str | None]) -> Iterator[None]:
    """Show the live view. Above it only warnings are logged, unless CALVING_LOG_LEVEL asks for more."""

    def now() -> RenderableType:
        return view(status(), time.time(), url())

    root = logging.getLogger()
    handlers, lines = list(root.handlers), _Lines(console)
    if "CALVING_LOG_LEVEL" not in os.environ:
        lines.setLevel(logging.WARNING)
    root.handlers[:] = [lines, *(h for h in handlers if isinstance(h, logging.FileHandler))]
    try:
        with Live(console=console, get_renderable=now, refresh_per_second=4):
            yield
    finally:
        root.handlers[:] = handlers
