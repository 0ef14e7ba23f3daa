"""The workers of a sink, as they describe themselves in their answers (DataComplete)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from calving.model.forms import OLDEST, StoredForm


@dataclass(frozen=True, slots=True)
class Member:
    """One worker: its version, a digest of the settings that decide what is committed, and the newest form that it
    knows.

    The other fields are empty while all workers have the same settings: ``host``, ``file`` is its configuration file
    as it was given, and ``keys`` has a digest of each of these settings, by its key.
    """

    version: str
    settings: str
    form: StoredForm = OLDEST
    host: str = ""
    file: str = ""
    keys: Mapping[str, str] = field(default_factory=dict, hash=False)

    def as_json(self) -> dict[str, object]:
        """The fields that have a value."""
        return {name: value for name, value in asdict(self).items() if value}

    @property
    def short(self) -> Member:
        """The same without the fields for a disagreement."""
        return Member(self.version, self.settings, self.form)

    def differing(self, other: Member) -> tuple[str, ...]:
        """The keys that have another value in ``other``, sorted; none if one of the two does not tell its keys."""
        if not self.keys or not other.keys:
            return ()
        return tuple(sorted(key for key in self.keys.keys() | other.keys if self.keys.get(key) != other.keys.get(key)))
