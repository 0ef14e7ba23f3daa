"""The workers of a sink, as they describe themselves in their answers (DataComplete)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from calving.model.forms import OLDEST, StoredForm
from calving.model.text import printable

MOST_KEYS = 60
"""How many digests a worker sends at most. They stand beside every event of its publications."""
_LONGEST_KEY = 200
MOST_TOLD = 6
"""How many workers a coordinator describes at most."""


@dataclass(frozen=True, slots=True)
class Member:
    """One worker: its version, a digest of the settings that decide what is committed, and the newest form that it
    knows.

    The other fields are empty while all workers have the same settings: ``host``, ``file`` is its configuration file
    as it was given, ``id`` is the process, as the control log names it, and ``keys`` has a digest of each of these
    settings, by its key. With many keys, ``level`` times over, keys that begin alike have one digest together.
    """

    version: str
    settings: str
    form: StoredForm = OLDEST
    host: str = ""
    file: str = ""
    keys: Mapping[str, str] = field(default_factory=dict, hash=False)
    level: int = 0
    id: str = ""

    def as_json(self) -> dict[str, object]:
        """The fields that have a value."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def short(self) -> Member:
        """The same without the fields for a disagreement."""
        return Member(self.version, self.settings, self.form)

    def within(self, most: int) -> Member:
        """The same with at most so many digests, if that is possible."""
        member = self
        while len(member.keys) > most and member.level < len(_GROUPS):
            member = member._coarser()
        return member

    def differing(self, other: Member) -> tuple[str, ...]:
        """The keys, or the beginnings of keys, that have another value in ``other``, sorted; none if one of the two
        does not tell its keys. A later version may have put keys together in a way that this one does not know: then
        all that the two tell differs.
        """
        if not self.keys or not other.keys:
            return ()
        one, two = self, other
        while one.level < min(two.level, len(_GROUPS)):
            one = one._coarser()
        while two.level < min(one.level, len(_GROUPS)):
            two = two._coarser()
        return tuple(sorted(key for key in one.keys.keys() | two.keys if one.keys.get(key) != two.keys.get(key)))

    def _coarser(self) -> Member:
        groups: dict[str, list[tuple[str, str]]] = {}
        for key, own in sorted(self.keys.items()):
            groups.setdefault(_GROUPS[self.level](key), []).append((key, own))
        return replace(self, keys={name: digest(items, 8) for name, items in groups.items()}, level=self.level + 1)


def told_key(key: str) -> str:
    """A key as workers name it. One that is too long, or not safe to show, has a digest, by which it stays another than
    all others.
    """
    shown = printable(key, _LONGEST_KEY)
    return key if shown == key else f"{shown} {digest(key, 8)}"


def digest(value: object, letters: int) -> str:
    """A digest of what can be JSON, in hexadecimal letters, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:letters]


def _of_table_or_topic(key: str) -> str:
    return key.rpartition(".")[0] if key.startswith(("iceberg.table.", "iceberg.topic.")) else key


def _first_parts(count: int) -> Callable[[str], str]:
    return lambda key: ".".join(key.split(".")[:count])


_GROUPS: tuple[Callable[[str], str], ...] = (_of_table_or_topic, _first_parts(2), _first_parts(1))
"""By level, the name of the group to which a key goes."""
