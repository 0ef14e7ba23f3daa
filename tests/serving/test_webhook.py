"""A webhook is told of DEGRADED and of recovery, and no more often."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from calving.model.offsets import Span, TopicPartition
from calving.serving.webhook import Changes, Webhook, told_by
from calving.status.health import Reason
from calving.status.remedies import Cause
from harness.waiting import wait_for
from tests.serving.sinks import Worker, not_leading, status

BAD = [Reason(Cause.TABLE_FAILING, "db.t", "table db.t: it is gone")]


class Hook:
    """Somebody who listens, and fails as often as he is told."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.failures = 0
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                failing, hook.failures = hook.failures > 0, max(0, hook.failures - 1)
                if not failing:
                    hook.heard.append(body)
                self.send_response(500 if failing else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/services/hunter2"


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    yield found
    found.server.shutdown()
    found.server.server_close()


def wait_for_messages(hook: Hook, count: int) -> None:
    wait_for(lambda: len(hook.heard) >= count, 120, 0.02)


def test_degraded_and_recovery_are_each_told_once(hook: Hook) -> None:
    worker = Worker(status(time.time(), broken=1))
    webhook = Webhook(hook.url, lambda: worker.status, 0.02, (0.01,))
    try:
        wait_for_messages(hook, 1)
        worker.status = status(time.time())
        wait_for_messages(hook, 2)
        time.sleep(0.2)
    finally:
        webhook.close()
    assert [(each["sink"], each["state"]) for each in hook.heard] == [("orders", "DEGRADED"), ("orders", "OK")]
    assert hook.heard[0]["reasons"][0]["subject"] == "db.t000"
    assert hook.heard[0]["text"].startswith("sink orders is DEGRADED: table db.t000")


def test_a_hook_that_fails_is_told_again_and_its_secret_is_not_logged(
    hook: Hook, caplog: pytest.LogCaptureFixture
) -> None:
    hook.failures = 2
    caplog.set_level(logging.WARNING)
    webhook = Webhook(hook.url, lambda: status(time.time(), broken=1), 0.02, (0.01, 0.01, 0.01))
    try:
        wait_for_messages(hook, 1)
    finally:
        webhook.close()
    assert len(caplog.messages) == 2 and "127.0.0.1" in caplog.text and "HTTPError 500" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_hook_that_always_fails_is_given_up(hook: Hook, caplog: pytest.LogCaptureFixture) -> None:
    hook.failures = 1_000
    webhook = Webhook(hook.url, lambda: status(time.time(), broken=1), 0.02, (0.01, 0.01))
    time.sleep(1)
    webhook.close()
    assert hook.failures == 1_000 - 3 and len(caplog.messages) == 3


def test_a_moment_is_not_told() -> None:
    changes = Changes()
    assert [
        changes.look(found, well=not found, leads=True) for found in ([], BAD, [], [], BAD, BAD, BAD, [], BAD, [], [])
    ] == [
        *[None] * 5,
        True,
        *[None] * 4,
        False,
    ]


def test_what_the_leader_tells_no_other_worker_tells() -> None:
    found = status(time.time(), broken=1)
    assert told_by(found, time.time())
    assert told_by(not_leading(found), time.time()) == []


def test_a_worker_that_starts_over_has_not_recovered() -> None:
    changes = Changes()
    seen = [changes.look(found, well=False, leads=True) for found in (BAD, BAD, [], [])]
    assert seen == [None, True, None, None]
    assert changes.look([], well=True, leads=True) is False


def test_a_change_of_leader_is_no_recovery() -> None:
    changes = Changes()
    assert [changes.look(BAD, well=False, leads=True) for _ in range(2)] == [None, True]
    assert [changes.look([], well=True, leads=False) for _ in range(3)] == [None] * 3
    assert [changes.look(BAD, well=False, leads=False) for _ in range(2)] == [None, True]


def test_a_worker_tells_that_it_is_paused_and_of_positions_that_somebody_has_moved_before_it() -> None:
    found = not_leading(status(time.time()))
    unread = {TopicPartition("orders", 0): (Span(5, 9),)}
    paused = replace(found, worker=replace(found.worker, paused_at=60.0, unread=unread))
    assert {r.cause for r in told_by(paused, time.time())} == {Cause.PAUSED, Cause.POSITION_MOVED}
