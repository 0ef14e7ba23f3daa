"""What is known of the processes of this machine."""

from __future__ import annotations

import time

from harness.processes import Waiting


def test_a_time_of_which_nothing_is_known_counts_as_idle() -> None:
    assert Waiting().slowdown(0, 1) == 1


def test_work_takes_at_least_as_long_as_on_an_idle_machine() -> None:
    waiting, begin = Waiting(every=0.01), time.time()
    waiting.start()
    time.sleep(0.2)
    waiting.stop()
    assert waiting.slowdown(begin, time.time()) >= 1
