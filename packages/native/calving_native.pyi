from collections.abc import Sequence

__version__: str

class Column:
    """An array, for ``pyarrow.array``."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class JsonDecoder:
    """Reads objects of schemaless JSON into columns.

    ``fields``: name, kind (boolean, long, double, string, date, timestamp, timestamptz, decimal(P,S), struct, list, or
    other: only nulls are taken, and there is no column), and the fields of a struct or the element of a list.
    ``closed``: fields besides these mean nothing; else they may only be null. ``nesting``: levels of objects and
    arrays.
    """

    def __init__(self, fields: Sequence[object], closed: bool, nesting: int) -> None: ...
    def decode(self, values: list[bytes]) -> tuple[Column, list[int]]:
        """A row for each value that was taken, and the places of the others."""
    def decode_column(self, values: object) -> tuple[Column, list[int]]:
        """The same of an Arrow column of bytes without nulls. :raises ValueError: it is another one."""

class Records:
    """Consecutive records of one partition, as columns of equal length."""

    def values(self) -> Column: ...
    def keys(self) -> Column: ...
    def offsets(self) -> Column: ...
    def timestamps(self) -> Column: ...
    def headers(self) -> list[list[tuple[str, bytes | None]]]: ...

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
    def take(self, most: int, timeout_ms: int) -> list[tuple[str | None, int, int, Records | None, Fault | None]]:
        """By topic and partition: records and the offset of the last one, or what is wrong there."""

    def close(self) -> None:
        """Safe to call twice."""

def logged() -> list[tuple[int, str]]:
    """What librdkafka has logged since the last call, with levels of syslog."""
