"""The part of a table's file access that tasks get."""

from __future__ import annotations

from pyiceberg.io import FileIO

_OF_CATALOGS = ("uri", "token", "credential", "scope", "audience", "resource")
_OF_CATALOGS_FROM = ("auth.", "oauth2-", "header.", "rest.", "ssl.", "glue.", "hive.")
"""The prefixes of keys with a catalog's address and logins."""


def carried(io: FileIO) -> dict[str, str]:
    """The properties that are needed to reach the storage, as text. They include the catalog's address and logins only
    if the catalog signs each request to the storage.
    """
    # A REST catalog adds its authenticator to the properties, which cannot be sent to a task.
    properties = {name: str(value) for name, value in io.properties.items() if isinstance(value, str | int)}
    return (
        properties
        if "s3.signer" in properties
        else {name: value for name, value in properties.items() if not _is_catalogs(name)}
    )


def _is_catalogs(name: str) -> bool:
    return name in _OF_CATALOGS or name.startswith(_OF_CATALOGS_FROM)
