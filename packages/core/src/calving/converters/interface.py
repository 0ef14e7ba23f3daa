"""The interface of converters: each decodes the bytes of keys or values in one format into columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from calving.model.dead_letters import Stage
from calving.records.arrays import Indices
from calving.records.projection import Projection
from calving.records.values import RecordError, Values


@dataclass(slots=True)
class Decoded:
    """Decoded values, grouped by shape, and bad values, which are not of the format. Each value is in exactly one
    group.
    """

    values: list[Values] = field(default_factory=list)
    bad: list[RecordError] = field(default_factory=list)

    def within(self, outer: Indices) -> Decoded:
        """The same values, with indices in a larger block. ``outer`` holds the indices of these values in that
        block.
        """
        bad = [replace(error, index=outer[error.index]) for error in self.bad]
        return Decoded([values.within(outer) for values in self.values], bad)


class Converter(ABC):
    """Decodes one format. Made for the keys or the values of one topic, with the converter's own options.

    One converter is used for a whole task, so it may cache what it learns about the structure of values. Values are
    never None: a null is a tombstone, and is not passed to converters.

    :raises ConfigError: from the constructor, if an option is wrong.
    """

    projects: ClassVar[bool] = False
    """Whether a projection makes decoding cheaper, so that reading the route field first pays off."""

    @abstractmethod
    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None: ...

    @abstractmethod
    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        """Decode all values. A value that decodes to null is null in its column.

        :raises UnavailableError: a service of the format (a schema registry) does not answer. The values are not the
            cause.
        :raises ConfigError: the service refuses the request.
        """


def stage(is_key: bool) -> Stage:
    """The stage that rejects keys or values that cannot be decoded."""
    return Stage.KEY_CONVERTER if is_key else Stage.VALUE_CONVERTER
