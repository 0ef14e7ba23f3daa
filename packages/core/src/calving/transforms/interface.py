"""What transforms and predicates are. A third party's are written against this module alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import pyarrow as pa

from calving.records.values import Records

Column = Literal["key", "offset", "timestamp", "headers"]


class UnfitTypeError(ValueError):
    """No record of this type can be taken, whatever its values: the chain need not look which of them cannot."""


class RefusedError(Exception):
    """Some of the records cannot be taken: ``reasons`` by their places in the ``Records`` that ``apply`` got.

    The chain hands in the others once more, and need not look for these.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(f"{len(reasons)} records are refused: {next(iter(reasons.values()), '')}")
        self.reasons = reasons


class Transform(ABC):
    """Changes records, all of one shape at a time; made once per task from its options.

    **Elementwise**: what becomes of a record is a function of that record, its type and the options. It may not depend
    on the other records that are handed in: not their values, not their number. So a decision that concerns the whole
    column may look at the column's type, never at what stands in it (``null_count`` included).

    Values with a schema (``records.typed``) are a column of the schema's Arrow type. Schemaless ones come grouped so
    that all records of a column have the same field names and the same kinds: bool, int64, float64, string, struct,
    list, the null type where the value is null. What has no exact Arrow type is JSON text (``pa.json_()``): integers
    beyond 64 bits, fractions that no double holds, arrays of mixed kinds. ``calving.records.values.objects`` gives the
    Python values of any column, those of JSON text included; ``build`` makes a column of such values.

    ``needs`` names the columns besides topic and value that it looks at; others may be null. To drop records, return
    fewer. What is returned may have another shape, or several: then return several ``Records``. ``index`` tells which
    record is which and must be kept.

    Tombstones (null values) are handed in like any others, if ``tombstones``; else they pass by.

    Any exception out of ``apply`` means that some of the records cannot be taken. The chain finds out which by handing
    in fewer, at worst each alone, so ``apply`` must not remember what it has seen. ``UnfitTypeError`` and
    ``RefusedError`` spare that search. Only a ``CalvingError`` is no record's fault, and stops the sink.

    :raises ConfigError: by the constructor, if an option is wrong.
    """

    needs: ClassVar[frozenset[Column]] = frozenset()
    tombstones: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    """Whether the order of a value's fields may show in the result; where it cannot, JSON is read faster."""

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        """The type that values of this type get, if objects inside of them are only taken apart by name, so that the
        order of their fields cannot show; None: it may.
        """
        return None

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    @abstractmethod
    def apply(self, records: Records) -> Records | list[Records]:
        """The records after this step."""


class Predicate(ABC):
    """Chooses the records that a transform is applied to; elementwise, like a transform."""

    needs: ClassVar[frozenset[Column]] = frozenset()

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    @abstractmethod
    def test(self, records: Records) -> pa.Array:
        """A mask without nulls."""
