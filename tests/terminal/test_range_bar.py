"""How far a range was read, at a terminal and in the log."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from calving.terminal import range_bar
from calving.terminal.range_bar import RangeBar


def test_a_terminal_shows_a_bar() -> None:
    text = io.StringIO()
    bar = RangeBar(Console(file=text, force_terminal=True, width=100))
    with bar.of("x", 200):
        bar.show(50)
    assert "backfill x" in text.getvalue()
    assert "50/200" in text.getvalue()


def test_without_a_terminal_the_log_has_a_line_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bar = RangeBar(None)
    with bar.of("x", 200):
        bar.show(10)
        assert not caplog.messages
        monkeypatch.setattr(range_bar, "_LINE_SECONDS", 0.0)
        bar.show(199)
    assert caplog.messages == ["backfill x: 199 of 200 offsets are read, 99%"]
