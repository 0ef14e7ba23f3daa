"""Addresses of HTTP services, as users write them."""

from __future__ import annotations

import re

_URL = re.compile(
    r"https?://([^/?#@\s]*@)?(\[[^\]\s]+\]|[^/?#@:,\s\[\]]+)(:(?P<port>[^/?#,\s]*))?(?P<path>([/?]\S*)?)", re.IGNORECASE
)


def port_and_path(url: str) -> tuple[int | None, str]:
    """An HTTP URL's port, None if it names none, and what follows the host and the port.

    :raises ValueError: it is none; the text says what it must be, and has nothing of the URL, where a login may be.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError("must be a URL that begins with http:// or https://")
    port = match["port"]
    if port is None:
        return None, match["path"]
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65536:
        raise ValueError("its port must be a number from 1 to 65535")
    return int(port), match["path"]
