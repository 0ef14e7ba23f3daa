"""Where keys stand: in a file with sections a key below a header is taken for one of the section."""

from __future__ import annotations

from collections.abc import Mapping

from calving.errors import ConfigError
from calving.settings.keys import PREFIXES

_TOP = ("topics", "topics.regex", "transforms", "predicates", "value.converter", "key.converter")


def check_places(raw: Mapping[str, str]) -> None:
    """:raises ConfigError: a key of the top level stands below a section, and would be taken for another part's."""
    for key in raw:
        prefix = max((p for p in PREFIXES if key.startswith(p)), key=len, default="")
        name = key.removeprefix(prefix)
        if prefix and (name in _TOP or name.startswith(("iceberg.", "kafka.bootstrap"))) and key not in _TOP:
            raise ConfigError(
                f"unknown key '{key}': {name} is no key of the section [{prefix[:-1]}]: write it above all sections"
            )
