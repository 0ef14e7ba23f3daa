from collections.abc import Sequence

__version__: str

class Rows:
    """A struct array, for ``pyarrow.array``."""

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

class JsonDecoder:
    """Reads objects of schemaless JSON into columns.

    ``fields``: name, kind (boolean, long, double, string, date, timestamp, timestamptz, decimal(P,S), struct, list, or
    other: only nulls are taken, and there is no column), and the fields of a struct or the element of a list.
    ``closed``: fields besides these mean nothing; else they may only be null. ``nesting``: levels of objects and
    arrays.
    """

    def __init__(self, fields: Sequence[object], closed: bool, nesting: int) -> None: ...
    def decode(self, values: list[bytes]) -> tuple[Rows, list[int]]:
        """A row for each value that was taken, and the places of the others."""
