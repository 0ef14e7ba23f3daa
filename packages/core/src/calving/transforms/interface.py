"""The interfaces of transforms and predicates. Third-party ones need no other module of calving."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Set
from typing import ClassVar, Literal

import pyarrow as pa

from calving.model.record_path import Limits
from calving.model.text import counted
from calving.records.values import Records

Column = Literal["key", "offset", "timestamp", "headers"]


NO_FIELDS: frozenset[str] = frozenset()


class UnfitTypeError(ValueError):
    """The transform accepts no record of this type, whatever its values: the chain rejects all of them at once."""


class RefusedError(Exception):
    """The transform rejects some records. ``reasons`` are by the records' indices in the ``Records`` that ``apply``
    got.

    The chain calls ``apply`` once more with the other records, and does not search for the rejected ones.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        refused = counted(len(reasons), "record is", "records are")
        super().__init__(f"{refused} refused: {next(iter(reasons.values()), '')}")
        self.reasons = reasons


class Transform(ABC):
    """Changes records, one shape at a time. Made once per task from its options.

    **Elementwise**: the result for a record is a function of that record, its type and the options. It must not depend
    on the other records of the call: neither on their values nor on their number. So a decision about a whole column
    may use the column's type, never its values (nor ``null_count``).

    Values with a schema (``records.typed``) are a column of the schema's Arrow type. Schemaless values are grouped, so
    that all records of a column have the same field names and the same types: bool, int64, float64, string, struct,
    list, or the null type for null, and for the items of a list without other items. Values without an exact Arrow type
    are JSON text (``pa.json_()``): integers beyond 64 bits, fractions that no double holds, arrays of mixed types.
    ``calving.records.values.objects`` converts any column to Python values, JSON text included; ``build`` makes a
    column of such values.

    ``needs`` names the columns besides topic and value that the transform reads; others may be null. To drop records,
    return fewer, and say which in ``drops``. The results may have another shape, or several shapes: then return several
    ``Records``. ``index`` identifies each record and must be kept.

    Tombstones (null values) are passed to ``apply`` if ``tombstones`` is true. Otherwise they skip the transform.

    An exception from ``apply`` means that some of the records are bad. The chain finds them by calling ``apply`` with
    fewer records, at worst with each alone, so ``apply`` must keep no state between calls. ``UnfitTypeError`` and
    ``RefusedError`` make that search unnecessary. A ``CalvingError`` means that no record is the cause, and stops the
    sink.

    :raises ConfigError: from the constructor, if an option is wrong.
    """

    needs: ClassVar[frozenset[Column]] = frozenset()
    tombstones: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    """Whether the result may depend on the order of a value's fields. If it does not, JSON is decoded faster."""
    keeps_names: ClassVar[bool] = False
    """Whether each field of the result is made of the field of that name, or of none."""
    keeps_paths: ClassVar[bool] = False
    """Whether the names of fields stay, also of dotted ones that lead into a field, and no field's value matters to
    another field: only then a stored row can complete a value that has the changed fields alone.
    """
    null_types: frozenset[str] | None = None
    """The fields, in lower case, whose type may matter to the result where they are null; None: all fields, of the key
    too. In all other fields a null of a schemaless value may have the type that other values have, so that more values
    share a column.
    """

    def becomes(self, kind: pa.DataType) -> pa.DataType | None:
        """The result type for values of this type; None if the order of fields may matter. It does not matter if the
        transform reads objects only by field name.
        """
        return None

    required: Set[str] = frozenset()
    """The fields that values with a schema must have, else they are bad."""

    def former(self, names: frozenset[str]) -> frozenset[str] | None:
        """The names of all fields of which fields of these names may be made, each in lower case; None: any."""
        return names if self.keeps_names or self.keeps_paths else None

    drops: ClassVar[str] = ""
    """The records that the transform may drop, in words. They count as filtered. If it is empty, the transform drops
    none: a record for which it returns nothing is bad.
    """

    def dropped_as(self, dropped: Records) -> str:
        """What these dropped records of one call of ``apply`` are, in one or two words, by which they are counted;
        empty: they are counted by the step's name alone.
        """
        return ""

    images: bool = True
    """Whether before images of updates are needed, which only mutation tables read. The chain sets it."""

    fold: bool = False
    """Whether fields whose names differ only by case go to one column. The chain sets it."""

    reads_topic: Callable[[str], bool] = staticmethod(lambda topic: False)
    """Whether the sink wants schema changes of the tables whose records are in a topic. The chain sets it."""

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    def limit(self, limits: Limits) -> None:
        """The limits of the task. The chain calls it once, before the first records."""
        return  # most transforms take no more than their records do

    @abstractmethod
    def apply(self, records: Records) -> Records | list[Records]:
        """The records after this step."""


def by_name(transform: Transform, names: frozenset[str]) -> frozenset[str] | None:
    """``former`` of a transform that gives no field another name."""
    return names


class Predicate(ABC):
    """Selects the records to which a transform applies. Elementwise, like a transform."""

    needs: ClassVar[frozenset[Column]] = frozenset()
    null_types: frozenset[str] | None = None
    """As ``Transform.null_types``."""

    @abstractmethod
    def __init__(self, options: Mapping[str, str]) -> None: ...

    @abstractmethod
    def test(self, records: Records) -> pa.Array:
        """A mask without nulls."""
