"""Who gets an answer from the status server: by host name, by site, by token, and by how busy the server is."""

from __future__ import annotations

import base64
import hmac
import logging
import re
from collections.abc import Iterable, Mapping, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from calving.settings.keys import LOOPBACK, SinkKeys

log = logging.getLogger(__name__)

PROBES = ("/healthz", "/readyz")
"""What orchestrators ask. These paths need no token, and are answered however many other requests wait."""
MOST_WAITING = 100
"""The most requests that are answered, or wait for that, at a time."""
_MOST_PATH, _MOST_QUERY = 1024, 16 * 1024
_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
"""Headers of all answers that do not set them: no browser runs, frames, stores or guesses the type of an answer."""


class Access:
    """The rules, from a sink's keys. ``advertised``: the server's URL for others."""

    def __init__(self, keys: SinkKeys, advertised: str) -> None:
        own = urlsplit(advertised)
        self._place = own.netloc.lower()
        named = keys.http_allowed_hosts or (own.hostname or "",)
        self._names = frozenset(name.lower() for name in (*LOOPBACK, keys.http_host, *named))
        self._token, self._read_token = keys.http_token, keys.http_read_token

    def refusal(self, method: str, path: str, query: bytes, headers: Headers) -> Response | None:
        """The answer to a request that is not served; None for any other request."""
        if len(path) > _MOST_PATH or len(query) > _MOST_QUERY:
            return error(414, "the path or the query is too long")
        if "content-length" in headers and "transfer-encoding" in headers:  # a proxy may count on the other one
            return error(400, "a request has a Content-Length or a Transfer-Encoding", {"connection": "close"})
        host = headers.get("host", "").lower()
        if not self._is_own(host):
            return error(400, f"this server is not called {_name(host)[:255]}: see iceberg.http.allowed-hosts")
        if self._is_of_other_site(method, path, host, headers):
            return error(403, "a page of another site has sent this request")
        if path not in PROBES and not self.may_read(headers):
            return error(401, "this needs the token: Authorization: Bearer <iceberg.http.read-token>", _ASK)
        return None

    def change_refusal(self, headers: Headers) -> Response | None:
        """The answer to a request for a change that is not permitted; None if it is."""
        if self._token is None:
            return error(403, "changes are off: set iceberg.http.token")
        if _is_one_of(headers, [self._token]):
            return None
        return error(403, "this needs the token: Authorization: Bearer <iceberg.http.token>")

    def _is_own(self, host: str) -> bool:
        """Whether a Host header names this server. An address always does: a web site can give a browser another
        address for the site's own name, but not another name for an address.
        """
        name = _name(host)
        return name in self._names or "*" in self._names or _is_address(name)

    def _is_of_other_site(self, method: str, path: str, host: str, headers: Headers) -> bool:
        """Whether a browser sends the request for a page that is not this server's. A link to the status page may be
        anywhere.
        """
        origin = headers.get("origin")
        if origin is not None and origin.lower().partition("://")[2] not in (host, self._place):
            return True
        if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
            return False
        is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
        return not (is_link and method == "GET" and path == "/")

    def may_read(self, headers: Headers) -> bool:
        """Whether the client has a token that a read needs, if there is one."""
        if self._read_token is None:
            return True
        return _is_one_of(headers, filter(None, (self._read_token, self._token)))


_HOST = re.compile(r"(\[(?P<address>[^][]*)]|(?P<name>[^][:/?#@\s]+))(:\d*)?")
_ASK = {"www-authenticate": 'Basic realm="calving"'}
"""Makes a browser ask for a password."""


class Guard:
    """The application that answers the requests that ``access`` lets through."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access, self._waiting = app, access, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refused = self._access.refusal(scope["method"], scope["path"], scope["query_string"], headers)
        if refused is None and self._waiting >= MOST_WAITING and scope["path"] not in PROBES:
            refused = error(503, "too many requests at a time")
        self._waiting += 1
        answer = _Answer(send)
        try:
            await (refused or self._app)(scope, receive, answer)
        except Exception as failure:
            # The request is the cause, or comes with it: anybody could fill a log with stack traces.
            log.error("the answer to %s %.80r fails: %.200r", scope["method"], scope["path"], failure)
            if not answer.has_begun:
                await error(500, "the answer fails; the log has the reason")(scope, receive, answer)
        finally:
            self._waiting -= 1


class _Answer:
    """``send``, with the headers that an answer lacks."""

    def __init__(self, send: Send) -> None:
        self._send, self.has_begun = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            _complete(message)
        await self._send(message)


def _complete(message: MutableMapping[str, Any]) -> None:
    given = list(message["headers"])
    present = {name for name, _ in given}
    added = ((name.encode(), value.encode()) for name, value in _HEADERS.items())
    message["headers"] = [*given, *(each for each in added if each[0] not in present)]


def error(code: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error in the form of Kafka Connect's REST."""
    return JSONResponse({"error_code": code, "message": text}, code, headers)


def _is_one_of(headers: Headers, tokens: Iterable[str]) -> bool:
    given = _given(headers.get("authorization", "")).encode()
    return any(hmac.compare_digest(given, token.encode()) for token in tokens)


def _given(authorization: str) -> str:
    """The bearer token, or the password of a Kafka Connect client, which can only send a password."""
    kind, _, given = authorization.partition(" ")
    if kind.lower() != "basic":
        return given.strip() if kind.lower() == "bearer" else ""
    try:
        return base64.b64decode(given, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _name(host: str) -> str:
    """The name or the address in a Host header, without its port; the whole header if it is none of a host."""
    match = _HOST.fullmatch(host)
    return host if match is None else match["address"] or match["name"].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
