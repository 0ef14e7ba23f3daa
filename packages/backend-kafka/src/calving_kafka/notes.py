"""What stands beside a stored position: ``calving <topic id> log=<control log's identity>``, in the offset's metadata.

Words are separated by one space; the second is empty where the topic's identity is not known. Version 0.1.0 wrote the
first two words. A rewind names no topic, and ``rewound`` comes first. What others have stored, such as the Java sink,
has none of it.
"""

from __future__ import annotations

from typing import NamedTuple

_PUBLISHED, _REWOUND = "calving", "rewound"


class Note(NamedTuple):
    """Which topic a position is in, and which control log it belongs to.

    ``topic_id`` is empty where the publication named none, and None for a position that no publication has stored;
    ``log_id`` is empty where it is not known.
    """

    topic_id: str | None = None
    log_id: str = ""

    def __str__(self) -> str:
        first = _REWOUND if self.topic_id is None else f"{_PUBLISHED} {self.topic_id}"
        return f"{first} log={self.log_id}"


def read_note(metadata: str | None) -> Note:
    first, *words = (metadata or "").split(" ")
    if first not in (_PUBLISHED, _REWOUND):
        return Note()
    topic_id = (words.pop(0) if words else "") if first == _PUBLISHED else None
    return Note(topic_id, dict(word.split("=", 1) for word in words if "=" in word).get("log", ""))
