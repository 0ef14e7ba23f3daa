"""What a converter is: one format, from the bytes of keys or values to columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from calving.records.indices import Indices
from calving.records.projection import Projection
from calving.records.values import RecordError, Values


@dataclass(slots=True)
class Decoded:
    """Values by shape, and those that are not of the format. Every value is in one of them, once."""

    values: list[Values] = field(default_factory=list)
    bad: list[RecordError] = field(default_factory=list)

    def within(self, outer: Indices) -> Decoded:
        """The same, of values that are those at ``outer`` of others."""
        bad = [replace(error, index=outer[error.index]) for error in self.bad]
        return Decoded([values.within(outer) for values in self.values], bad)


class Converter(ABC):
    """One format. Made for the keys or the values of one topic, with the converter's own options.

    Kept for a whole task, so it may learn what the values look like. Values are never None: a null is a tombstone,
    and no converter sees it.

    :raises ConfigError: by the constructor, if an option is wrong.
    """

    projects: ClassVar[bool] = False
    """Whether a projection makes decoding cheaper, so that it pays to look at the route field first."""

    @abstractmethod
    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None: ...

    @abstractmethod
    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        """All values. A value that decodes to null is null in its column.

        :raises Unavailable: what the format needs (a schema registry) does not answer; nothing is wrong with the
            values.
        :raises ConfigError: it refuses to answer.
        """


def stage(is_key: bool) -> str:
    """Connect's name of the stage, for dead letters."""
    return "KEY_CONVERTER" if is_key else "VALUE_CONVERTER"
