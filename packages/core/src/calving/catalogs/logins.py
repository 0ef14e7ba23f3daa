"""Logins at REST catalogs, and their TLS: the properties that pyiceberg takes as objects within objects, and why a
catalog refuses a login: an operator has to replace the login, or to give it a permission.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError

from calving.errors import first_line
from calving.secrets import masked, without_secrets

_OBJECTS = ("auth", "ssl")
_SHAPES: Mapping[str, Callable[[str], object]] = {
    "refresh_margin": int,
    "expires_in": int,
    "scopes": lambda text: [scope.strip() for scope in text.split(",")],
}
"""Parts of a login that are no text."""
_UNKNOWN_LOGIN = (UnauthorizedError, AuthorizationExpiredError, OAuthError)
"""The errors for an unknown login. An expired token is not among them at first: pyiceberg gets a new token for a
``credential``, and repeats the request.
"""
_LOGINS = ("auth.type", "credential", "token", "header.Authorization")
"""The keys that hold a login, in the order in which they count."""


def with_objects(properties: Mapping[str, str]) -> dict[str, Any]:
    """The properties, and those of a login and of TLS as pyiceberg wants them: ``ssl.client.key`` is ``key`` in the
    object ``client`` in the object ``ssl``.
    """
    out: dict[str, Any] = dict(properties)
    for name, text in properties.items():
        *path, last = name.split(".")
        if path and path[0] in _OBJECTS:
            here = out
            for part in path:
                here = here.setdefault(part, {})
            here[last] = _SHAPES.get(last, str)(text)
    return out


def denial(error: BaseException, name: str, properties: Mapping[str, str]) -> str | None:
    """The text for an operator if the catalog ``name`` denies access; None for all other errors."""
    if not isinstance(error, (*_UNKNOWN_LOGIN, ForbiddenError)):
        return None
    catalog = f"the catalog '{name}' at {masked(properties.get('uri', ''))}"
    said = f"{type(error).__name__}: {without_secrets(first_line(error), properties)}"
    login = _login(properties)
    if login is None:
        return f"{catalog} wants a login ({said}): set iceberg.catalog.token or iceberg.catalog.credential"
    if isinstance(error, ForbiddenError):
        return f"{catalog} denies this to the login of {login} ({said}): give that login the permission, or replace it"
    return f"{catalog} does not accept the login of {login} ({said}): it has expired or was withdrawn; replace it"


def _login(properties: Mapping[str, str]) -> str | None:
    """The keys with the login; None if there is none."""
    if properties.get("rest.sigv4-enabled", "").lower() == "true":
        return "iceberg.catalog.client.*, or of the machine, which signs the requests"
    return next((f"iceberg.catalog.{key}" for key in _LOGINS if key in properties), None)
