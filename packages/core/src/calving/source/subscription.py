"""How librdkafka subscribes to the topics that match a regular expression."""

from __future__ import annotations

import re


def subscription(regex: str) -> str:
    """The expression by which librdkafka subscribes to the topics that ``regex`` matches in full. It uses extended
    expressions of POSIX, which know neither ``\\d`` nor groups that only group.
    """
    return f"^({_TOKEN.sub(lambda token: _POSIX.get(token[0], token[0]), regex)})$"


_TOKEN = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\(\?:")
"""What a translation must not look into: an escaped character, or a class of characters."""
_POSIX = {r"\d": "[0-9]", r"\D": "[^0-9]", "(?:": "("}
