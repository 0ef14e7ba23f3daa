"""Asks the worker that leads why the sink is DEGRADED, and how long its commits took. Only the leader knows this."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from calving.model.events import Leader
from calving.settings.keys import LOOPBACK, SinkKeys

_SECONDS = 2.0
_MOST_BYTES = 4 * 1024 * 1024
_UNREADABLE = (OSError, ValueError, LookupError, TypeError)


def read_token(leader: Leader | None, keys: SinkKeys) -> str | None:
    """The token with which this machine may read from the leader's status server. The leader's URL comes from the
    control log, so only a server that the settings name, too, gets it.
    """
    if leader is None:
        return None
    url = urlsplit(leader.url)
    is_here = url.hostname in LOOPBACK and url.port == keys.http_port
    is_named = url.hostname in {name.lower() for name in keys.http_allowed_hosts}
    return keys.http_read_token if is_here or is_named else None


def reasons_of(leader: Leader | None, sink: str, token: str | None = None) -> list[tuple[str, str, str]] | None:
    """The cause, the subject and the sentence of each reason, from the leader's status server; None if the server does
    not answer.
    """
    with contextlib.suppress(*_UNREADABLE):
        connector = _fetched(leader, f"connectors/{quote(sink, safe='')}/status", token)
        reasons = connector["calving"]["reasons"]
        return [(str(each["cause"]), str(each["subject"]), str(each["text"])) for each in reasons]
    return None


def commit_seconds_of(leader: Leader | None, token: str | None = None) -> dict[tuple[str, str], float] | None:
    """How long the catalog took for the last commit of each table that changed rows, by the table and the id of the
    commit. The times come from the leader's status server; None if the server does not answer, or has a version without
    these times.
    """
    with contextlib.suppress(*_UNREADABLE):
        changes = [each["last_change"] for each in _fetched(leader, "api/tables", token)]
        return {(str(c["table"]), str(c["commit_id"])): float(c["steps"]["commit"]) for c in changes if c is not None}
    return None


def _fetched(leader: Leader | None, path: str, token: str | None) -> Any:
    """The server's answer.

    :raises OSError, ValueError: the server does not answer.
    """
    if leader is None or not _reachable(leader):
        raise OSError("there is nobody to ask")
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    request = Request(f"{leader.url.rstrip('/')}/{path}", headers=headers)  # noqa: S310 - see below
    with _OPENER.open(request, timeout=_SECONDS) as answer:
        return json.loads(answer.read(_MOST_BYTES))


class _NoRedirects(HTTPRedirectHandler):
    """Fails on a redirect. Another server would get the token, too."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)


def _reachable(leader: Leader) -> bool:
    """Whether the URL is an http URL without a query, which this machine can reach. A loopback address works only on
    the leader's machine.
    """
    url = urlsplit(leader.url)
    local = url.hostname in LOOPBACK
    is_plain = url.scheme in ("http", "https") and not (url.query or url.fragment)
    return is_plain and (not local or leader.host == socket.gethostname())
