"""Gives requests of REST catalogs a time limit."""

from __future__ import annotations

from typing import Any

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

REQUEST_SECONDS = 20.0
"""The time limit for a request. pyiceberg sets none, so a silent server would block the coordinator for ever."""


def limit(session: Session) -> None:
    """Give each request of a session a timeout, unless it has one."""
    for prefix in ("http://", "https://"):
        session.mount(prefix, _TimeoutAdapter())


class _TimeoutAdapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *args: Any, **kwargs: Any) -> Response:
        kwargs["timeout"] = kwargs.get("timeout") or REQUEST_SECONDS
        return super().send(request, *args, **kwargs)
