"""The interface of converters: each decodes the bytes of keys or values in one format into columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from calving.model.dead_letters import Stage
from calving.records.fields import Projection
from calving.records.values import Decoded

__all__ = ["Converter", "Decoded", "stage"]


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
        :raises FullBlockError: the values take too much memory together: decode fewer of them at once. It is never
            raised for a single value.
        """


def stage(is_key: bool) -> Stage:
    """The stage that rejects keys or values that cannot be decoded."""
    return Stage.KEY_CONVERTER if is_key else Stage.VALUE_CONVERTER
