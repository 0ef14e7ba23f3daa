"""Explains why a REST catalog refuses a login: an operator has to replace the login, or to give it a permission."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.exceptions import AuthorizationExpiredError, ForbiddenError, OAuthError, UnauthorizedError

from calving.errors import first_line
from calving.secrets import masked, without_secrets

_UNKNOWN_LOGIN = (UnauthorizedError, AuthorizationExpiredError, OAuthError)
"""The errors for an unknown login. An expired token is not among them at first: pyiceberg gets a new token for a
``credential``, and repeats the request.
"""
_LOGINS = ("auth.type", "credential", "token", "header.Authorization")
"""The keys that hold a login, in the order in which they count."""


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
