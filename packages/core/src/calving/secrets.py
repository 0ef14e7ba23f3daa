"""Masks passwords in errors, logs and dead letters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote

_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)(?P<login>[^/?#\s]*)@")
_SECRET = re.compile(
    r"passw|secret|token|user\.info|jaas|credential|access.key|account.key|api.?key|authorization|webhook|private"
    r"|key\.pem",
    re.IGNORECASE,
)
_QUERY = re.compile(r"(?P<name>[?&;][^=&;?\s]*(passw|secret|token)[^=&;?\s]*=)[^&;\s'\"]*", re.IGNORECASE)

_SHORTEST = 6
"""The shortest secret that is masked in texts. A shorter one may be part of any word."""


def masked(text: str) -> str:
    """The text, with ``***`` in place of the login in every URL, and of the passwords among the URL's parameters."""
    return _QUERY.sub(r"\g<name>***", _LOGIN.sub(r"\g<scheme>***@", text))


def shown(key: str, value: object) -> str:
    """A setting's value as an error may show it."""
    return "***" if _SECRET.search(key) else masked(repr(value))


def shown_text(key: str, text: str) -> str:
    """Like ``shown``, for text without quotes."""
    return "***" if _SECRET.search(key) else masked(text)


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """A text from another service, with ``***`` in place of the secrets in these settings: the service may repeat the
    secrets that it was sent.
    """
    for key, value in settings.items():
        if _SECRET.search(key):
            for secret in (value, *value.split(":")):
                text = text.replace(secret, "***") if len(secret) >= _SHORTEST else text
    return masked(text)


def without_logins(urls: str) -> tuple[str, str | None]:
    """Comma-separated URLs without their logins, and the first ``user:password`` among them."""
    logins = [match["login"] for match in _LOGIN.finditer(urls)]
    return _LOGIN.sub(r"\g<scheme>", urls), unquote(logins[0]) if logins else None
