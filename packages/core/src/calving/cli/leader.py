"""Asks the worker that leads why the sink is DEGRADED: it knows what its commits failed of, and no other place does."""

from __future__ import annotations

import contextlib
import json
import socket
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from calving.model.events import Leader
from calving.settings.keys import LOOPBACK

_SECONDS = 2.0
_MOST_BYTES = 4 * 1024 * 1024


def reasons_of(leader: Leader | None, sink: str) -> list[tuple[str, str]] | None:
    """Subject and sentence of each reason, as the leader's status server has them; None if it does not answer."""
    if leader is None or not _reachable(leader):
        return None
    request = Request(f"{leader.url.rstrip('/')}/connectors/{quote(sink, safe='')}/status")  # noqa: S310 - see above
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        with urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
            found = json.loads(answer.read(_MOST_BYTES))
        return [(str(each["subject"]), str(each["text"])) for each in found["calving"]["reasons"]]
    return None


def _reachable(leader: Leader) -> bool:
    """Whether the URL is one of the web; a loopback address is good on the leader's machine only."""
    url = urlsplit(leader.url)
    local = url.hostname in LOOPBACK
    return url.scheme in ("http", "https") and (not local or leader.host == socket.gethostname())
