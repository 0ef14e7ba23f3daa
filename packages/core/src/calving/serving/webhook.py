"""Tells a webhook when the sink becomes DEGRADED, and when it has recovered."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from calving.retries import Backoff
from calving.serving.connect import explained
from calving.status.health import OWN, Reason, health, reasons
from calving.status.remedies import advice
from calving.status.values import Status

log = logging.getLogger(__name__)

_LOOK_SECONDS, _POST_SECONDS = 5.0, 10.0
_PAUSES = tuple(Backoff(1.0, 8.0).pause(failures) for failures in range(1, 5))
"""The seconds before each further try. After the last one, the post is given up."""


class Changes:
    """Decides what to post: a state that two samples in a row show, if it differs from the last posted state. A worker
    that no longer leads leaves what it has posted as the leader to the next one: that is no recovery.
    """

    def __init__(self) -> None:
        self._told = self._before = self._led = False

    def look(self, found: Sequence[Reason], *, well: bool, leads: bool) -> bool | None:
        """True if the sink has become DEGRADED, False if it has recovered, None if there is nothing to post. ``well``:
        whether the sink is OK, as this worker sees it.
        """
        now = bool(found)
        settled = now == self._before
        has_lost_lead = self._led and not leads
        self._before, self._led = now, leads
        if has_lost_lead and not now:
            self._told = False
        if not settled or now == self._told or not (now or well):
            return None
        self._told = now
        return now


def told_by(status: Status, now: float) -> list[Reason]:
    """The reasons that this worker reports."""
    return [r for r in reasons(status, now) if status.worker.leads or r.cause in OWN]


def message(status: Status, found: Sequence[Reason], now: float) -> dict[str, Any]:
    """The body of a post. ``text`` is for chats, which show it unchanged."""
    sink = status.sink
    state = "DEGRADED" if found else "OK"
    sentences = "; ".join(f"{r.text}; {advice(r.cause)}" for r in found[:5])
    return {
        "sink": sink.name,
        "state": state,
        "worker": sink.member,
        "at": datetime.fromtimestamp(now, UTC).isoformat(timespec="seconds"),
        "reasons": [explained(r) for r in found],
        "text": f"sink {sink.name} is DEGRADED: {sentences}" if found else f"sink {sink.name} has recovered",
    }


class Webhook:
    """Posts on its own thread. A post that fails again and again is dropped."""

    def __init__(
        self,
        url: str,
        status: Callable[[], Status],
        look_seconds: float = _LOOK_SECONDS,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        self._url, self._status = url, status
        self._look_seconds, self._pauses = look_seconds, pauses
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="calving-webhook", daemon=True).start()

    def close(self) -> None:
        """Stop after the running post; does not wait for it."""
        self._ended.set()

    def _run(self) -> None:
        changes = Changes()
        while not self._ended.wait(self._look_seconds):
            status, now = self._status(), time.time()
            reasons_now = told_by(status, now)
            well, leads = health(status, now) == "OK", status.worker.leads
            if changes.look(reasons_now, well=well, leads=leads) is not None:
                self._tell(message(status, reasons_now, now))

    def _tell(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        for pause in (*self._pauses, None):
            request = Request(self._url, data, {"content-type": "application/json"}, method="POST")  # noqa: S310 - see below
            try:
                with urlopen(request, timeout=_POST_SECONDS):  # noqa: S310 - http or https, as the key demands
                    return
            except Exception as error:  # the receiver may cause any error
                reason = type(error).__name__ + (f" {error.code}" if hasattr(error, "code") else "")
                log.warning("the post of state %s to the webhook at %s failed: %s", body["state"], self._host, reason)
            if pause is None or self._ended.wait(pause):
                return

    @property
    def _host(self) -> str:
        """The part of the URL that is no secret."""
        return urlsplit(self._url).hostname or ""
