from collections.abc import Sequence

__version__: str
INTERFACE: int
"""Another number with every change of a signature here."""

class Column:
    """An array, for ``pyarrow.array``."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class Decoder:
    """Reads records of one form into columns.

    ``fields``: of each its names (the first one is the column's), its kind, what is inside it, and how a null is
    written: -2 as a value, -1 not at all, 0 or 1 as this branch of a union of two. ``src/kinds.rs`` has the kinds.
    ``cells``: the most cells (places of 8 bytes in columns) of one record. A record with more is refused. The first
    cell of an element of a list or a map does not count.
    """

    @staticmethod
    def of_json(fields: Sequence[object], closed: bool, fold: bool, nesting: int, cells: int) -> Decoder:
        """Of objects. ``closed``: fields besides these mean nothing; else they may only be null. ``fold``: names are
        compared in lower case, in which those of the fields are. ``nesting``: levels of objects and arrays.
        """
    @staticmethod
    def of_whole_json(fields: Sequence[object], nesting: int, cells: int) -> Decoder:
        """Of objects that have no fields besides these."""
    @staticmethod
    def of_avro(fields: Sequence[object], cells: int) -> Decoder:
        """Of records in Avro's binary form."""
    @staticmethod
    def of_protobuf(fields: Sequence[object], message: Sequence[object], cells: int) -> Decoder:
        """Of messages. ``message``: of each field its number, whether it is ``optional``, ``plain``, ``repeated`` or a
        ``map``, its form, the choice that it is of, the fields of a message, and an enum's numbers with their names,
        the default first. ``src/protobuf.rs`` has the forms.
        """
    def decode(self, values: object, head: bytes, tail: bytes) -> tuple[Column, list[int], list[int]]:
        """A row for each value that was taken, and the places of those that were refused, and of those that are not
        between ``head`` and ``tail``. ``values``: a list of bytes, or an Arrow column of them without nulls.

        :raises ValueError: it is another column.
        :raises OverflowError: the records together have more than 4 times ``cells``.
        """
    def decode_whole(self, values: object) -> tuple[Column, list[int], list[tuple[list[int], Column]]]:
        """The same of whole objects: rows, the places of values that were refused, and the shapes with their rows.

        A shape is the fields that its objects have, by their places and in order, with -1 behind those of an object
        in a field, and -2 in its stead where it is null; in a list one item stands for all, and -2 for none.
        """

class Records:
    """Consecutive records of one partition, as columns of equal length."""

    def values(self) -> Column: ...
    def keys(self) -> Column: ...
    def offsets(self) -> Column: ...
    def timestamps(self) -> Column: ...
    def headers(self) -> list[list[tuple[str, bytes | None]] | None]:
        """None for a record with a header whose name is not UTF-8.

        :raises RuntimeError: the records were taken without their headers.
        """

Fault = tuple[int, str]
"""librdkafka's code of an error, and its text."""

class Consumer:
    """A consumer of the librdkafka that the process has loaded.

    :raises LookupError: it is not loaded, or of another version. :raises ValueError: a property is wrong.
    """

    def __init__(self, library: str, version: int, properties: Sequence[tuple[str, str]]) -> None: ...
    def learn(self, topic: str, timeout_ms: int) -> Fault | None: ...
    def assign(self, partitions: Sequence[tuple[str, int, int]]) -> Fault | None: ...
    def unassign(self, partitions: Sequence[tuple[str, int, int]]) -> Fault | None: ...
    def take(
        self, most: int, timeout_ms: int, headers: bool
    ) -> list[tuple[str | None, int, int, Records | None, Fault | None]]:
        """By topic and partition: records and the offset of the last one, or what is wrong there. ``headers``: whether
        the records come with theirs.
        """

    def close(self) -> None:
        """Safe to call twice."""

def logged() -> list[tuple[int, str]]:
    """What librdkafka has logged since the last call, with levels of syslog."""
