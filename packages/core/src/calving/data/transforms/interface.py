"""What transforms and predicates are. A third party's are written against this module alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import pyarrow as pa

from calving.data.records import Records

Column = Literal["key", "offset", "timestamp", "headers"]


class Transform(ABC):
    """Changes records, all of one shape at a time; made once per task from its options.

    ``needs`` names the columns besides topic and value that it looks at; others may be null. To drop records, return
    fewer. What is returned may have another shape; ``index`` tells which record is which and must be kept.

    Tombstones (null values) are handed in like any others, if ``tombstones``; else they pass by.

    Any exception out of ``apply`` means that some of the records cannot be taken: the chain finds out which by handing
    in fewer, so ``apply`` must not remember what it has seen.

    :raises ConfigError: by the constructor, if an option is wrong.
    """

    needs: ClassVar[frozenset[Column]] = frozenset()
    tombstones: ClassVar[bool] = True

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    @abstractmethod
    def apply(self, records: Records) -> Records:
        """The records after this step."""


class Predicate(ABC):
    """Chooses the records that a transform is applied to."""

    needs: ClassVar[frozenset[Column]] = frozenset()

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    @abstractmethod
    def test(self, records: Records) -> pa.Array:
        """A mask without nulls."""
