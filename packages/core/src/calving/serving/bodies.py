"""The bodies of requests."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

_MOST_BYTES = 1024 * 1024


async def json_body(request: Request) -> Any:
    """The body as JSON; None if it is no JSON, too long, nested too deep, or does not come to its end."""
    content = bytearray()
    try:
        async for part in request.stream():
            content += part
            if len(content) > _MOST_BYTES:
                return None
        return json.loads(content)
    except (ValueError, RecursionError, ClientDisconnect):
        return None


def is_text(text: str) -> bool:
    """Whether text can be written. JSON may have half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
