"""The note of a stored position, in the offset's metadata: ``calving <topic id> log=<control log's identity>
by=<publisher> member=<its member id in the group>``.

Words are separated by one space; the second is empty if the topic id is unknown. Version 0.1.0 wrote only the first two
words. The note of a rewind names no topic, and starts with ``rewound``. Positions that others have stored, such as the
Java sink, have no note.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

_PUBLISHED, _REWOUND = "calving", "rewound"


class Note(NamedTuple):
    """The topic and the control log of a stored position.

    ``topic_id`` is empty if the publication named none, and None if no publication stored the position; ``log_id`` is
    empty if it is unknown. ``by`` is the publisher's name, from which its transactional id is made; ``member`` was its
    member id in the consumer group.
    """

    topic_id: str | None = None
    log_id: str = ""
    by: str = ""
    member: str = ""

    def __str__(self) -> str:
        first = _REWOUND if self.topic_id is None else f"{_PUBLISHED} {self.topic_id}"
        words = {"log": self.log_id}
        if self.by:
            words |= {"by": self.by, "member": quote(self.member)}
        return " ".join((first, *(f"{name}={value}" for name, value in words.items())))


def read_note(metadata: str | None) -> Note:
    first, *words = (metadata or "").split(" ")
    if first not in (_PUBLISHED, _REWOUND):
        return Note()
    topic_id = (words.pop(0) if words else "") if first == _PUBLISHED else None
    said = dict(word.split("=", 1) for word in words if "=" in word)
    return Note(topic_id, said.get("log", ""), said.get("by", ""), unquote(said.get("member", "")))
