"""Sentences about the settings of a sink, as sentences about options."""

from __future__ import annotations

import re

_ONLY_OF_SINKS = re.compile(
    r" \(if the sink creates the table,[^()]*(?:\([^()]*\)[^()]*)*\)| or iceberg\.tables\.default-id-columns"
)
"""Advice that names a setting of which there is no option."""
_PREFIX = re.compile(r"\biceberg\.(?:tables|table\.\S+)\.(?=[a-z])")


def as_options(sentence: str) -> str:
    """The sentence, with the settings of a sink's tables as the options that they are."""
    return _PREFIX.sub("", _ONLY_OF_SINKS.sub("", sentence))
