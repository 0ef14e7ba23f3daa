"""What a task gets of a table's file access."""

from __future__ import annotations

from pyiceberg.io import FileIO

_OF_CATALOGS = ("uri", "token", "credential", "scope", "audience", "resource")
_OF_CATALOGS_FROM = ("auth.", "oauth2-", "header.", "rest.", "ssl.", "glue.", "hive.")
"""How the keys of a catalog's address and logins begin."""


def carried(io: FileIO) -> dict[str, str]:
    """The properties that reach the storage, as text. The catalog's address and logins are not among them, unless the
    catalog signs each request to the storage.
    """
    # A REST catalog puts its authenticator among them, which cannot travel.
    found = {name: str(value) for name, value in io.properties.items() if isinstance(value, str | int)}
    return found if "s3.signer" in found else {name: value for name, value in found.items() if not _is_catalogs(name)}


def _is_catalogs(name: str) -> bool:
    return name in _OF_CATALOGS or name.startswith(_OF_CATALOGS_FROM)
