"""Changes of rows by the rows of a DataFrame: what an option says about them, and which of them a task writes (S13)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from calving.casting.converted import Converted
from calving.errors import BadRecordError, ConfigError
from calving.iceberg.batches import repeated_key
from calving.model.files import DataFile
from calving.model.record_path import Evolution, Limits
from calving.model.tables import RowMutations, TableSpec
from calving.records.fields import name_mapping
from calving.records.values import Values, texts
from calving.tasks.mutations import Conversion, Origin
from calving.tasks.operations import UNCLEAR, operations
from calving.tasks.spec import TaskSpec
from calving.writing.changes import DELETE, INSERT, OPERATION, TRUNCATE, UPDATE, LastChanges, identity_of
from calving.writing.key_files import KeyWriter
from calving.writing.key_runs import are_last, numbered
from calving.writing.mutations import ChangeWriter

_ONE = r"(?:'[^']*'|\"[^\"]*\")"
_EQUALS = re.compile(rf"\s*`?(?P<column>[^\s`=]+)`?\s*==?\s*(?P<texts>{_ONE})\s*")
_AMONG = re.compile(
    rf"\s*`?(?P<column>[^\s`=]+)`?\s+IN\s*\(\s*(?P<texts>{_ONE}(?:\s*,\s*{_ONE})*)\s*\)\s*", re.IGNORECASE
)
_TELLING: Mapping[str, tuple[type[spark.DataType], ...]] = {
    "cdc-field": (spark.StringType, spark.CharType, spark.VarcharType, spark.BooleanType),
    "apply-as-deletes": (
        spark.StringType,
        spark.CharType,
        spark.VarcharType,
        spark.BooleanType,
        spark.IntegralType,
    ),
}
"""The types of the columns that an option names, of which the texts are compared."""
_TEXT = re.compile(r"'([^']*)'|\"([^\"]*)\"")


@dataclass(frozen=True, slots=True)
class DeleteCondition:
    """The rows that delete: those with one of these texts in this column. Spaces at its end do not count: Spark fills a
    CHAR with them.
    """

    column: str
    texts: tuple[str, ...]

    @staticmethod
    def parse(text: str) -> DeleteCondition:
        """:raises ValueError: the condition is not one of these."""
        found = _EQUALS.fullmatch(text) or _AMONG.fullmatch(text)
        if found is not None:
            return DeleteCondition(found["column"], tuple(one or other for one, other in _TEXT.findall(found["texts"])))
        raise ValueError("must be such as: op = 'DELETE', or: op IN ('d', 'D'); for anything else add a column")

    def of(self, values: Values) -> pa.Array:
        """The operation of each row: rows that do not delete replace."""
        column = pc.utf8_rtrim(pa.array(texts(values.data, self.column), pa.string()), " ")
        wanted = pa.array([text.rstrip(" ") for text in self.texts])
        return pc.if_else(pc.is_in(column, wanted), DELETE, UPDATE).cast(pa.int8())


class OnlyChanges(LastChanges):
    """The changes of a table whose rows have no order: each key may come once. ``what`` names the batch."""

    def __init__(self, table: TableSpec, what: str) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        self._columns, self._table, self._what = identity_of(table).columns, table.name, what
        super().__init__(identity_of(table), table.mutations)

    def close(self) -> list[DataFile]:
        """Nothing is older than a delete."""
        return []

    def discard(self) -> None:
        """Nothing was written."""

    def of(self, changes: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """:raises ConfigError: a key comes twice."""
        keys = [pa.concat_arrays([column.of(part) for part in changes]) for column in self._columns]
        again = pc.indices_nonzero(pc.invert(are_last(numbered(keys))))
        if len(again):
            row = again[0].as_py()
            named = ", ".join(f"{c.name} = {key[row]}" for c, key in zip(self._columns, keys, strict=True))
            raise repeated_key(self._table, named, self._what)
        return super().of(changes)


class NotedDeletes(LastChanges):
    """The last changes of each key by their order. The keys that are deleted are written once more, into files of their
    own: a row that another task of the batch has written may be older than the delete, although its task comes later.
    """

    def __init__(self, table: TableSpec, task: int) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        super().__init__(identity_of(table), table.mutations)
        self._writer = KeyWriter(table, identity_of(table), task, Limits())

    def of(self, changes: Sequence[pa.RecordBatch]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """As of ``LastChanges``."""
        for last, replaces in super().of(changes):
            self._writer.write(last.filter(pc.equal(last.column(OPERATION), DELETE)))
            yield last, replaces

    def close(self) -> list[DataFile]:
        """Finish the files."""
        return self._writer.close()

    def discard(self) -> None:
        """Give up."""
        self._writer.discard()


def last_changes(table: TableSpec, task: int, what: str) -> OnlyChanges | NotedDeletes:
    """What is left of the changes of a task. ``what`` names the batch."""
    assert table.mutations is not None  # noqa: S101 - else rows are appended
    return OnlyChanges(table, what) if table.mutations.order_field is None else NotedDeletes(table, task)


def change_writer(last: LastChanges, spec: TaskSpec, table: str) -> ChangeWriter:
    """The writer of a task's changes."""
    return ChangeWriter(spec.tables[table], spec.number, spec.path.limits, last)


class ChangesOfRows:
    """Rows of a task as changes of the table's rows. ``task``: its number in the batch."""

    def __init__(self, table: TableSpec, task: int, deletes: DeleteCondition | None, *, fold: bool) -> None:
        assert table.mutations is not None  # noqa: S101 - else rows are appended
        names = name_mapping(table.properties)
        self._conversion = Conversion(table, Evolution(case_insensitive=fold), names, Limits())
        self._mutations: RowMutations = table.mutations
        self._table, self._task, self._deletes, self._fold = table.name, task, deletes, fold
        self._count = 0
        self.parts = self._conversion.rows.parts

    def convert(self, values: Values) -> list[Converted]:
        """:raises BadRecordError: a row would empty the table."""
        found = self._operations(values)
        offsets = pa.arange(self._count, self._count + len(values))
        converted = self._conversion.convert(
            values, found, Origin(self._task, offsets, pa.nulls(len(offsets), pa.int64()))
        )
        self._count += len(values)
        return converted

    def _operations(self, values: Values) -> pa.Array:
        if self._deletes is not None:
            return self._deletes.of(values)
        found = operations(values, self._mutations, fold=self._fold)
        if pc.any(pc.equal(found, TRUNCATE), min_count=0).as_py():
            raise BadRecordError(
                f"table {self._table}: {self._mutations.cdc_field} names a truncate event, which empties its table:"
                " leave it out of the DataFrame, and empty the table yourself"
            )
        return pc.if_else(pc.fill_null(pc.equal(found, UNCLEAR), True), pa.scalar(INSERT, pa.int8()), found)


def spelt(
    table: str, mutations: RowMutations, deletes: DeleteCondition | None, schema: spark.StructType
) -> tuple[RowMutations, DeleteCondition | None]:
    """What tells of changes, with the names of columns as the DataFrame spells them: Spark ignores case, and a task
    that found no such column would take each delete for a row.

    :raises ConfigError: the DataFrame lacks such a column, or its values say nothing of changes.
    """
    if mutations.cdc_field is not None:
        mutations = replace(mutations, cdc_field=_told(table, "cdc-field", mutations.cdc_field, schema))
    if deletes is not None:
        deletes = replace(deletes, column=_told(table, "apply-as-deletes", deletes.column, schema))
    return mutations, deletes


def marks_of(mutations: RowMutations, deletes: DeleteCondition | None) -> set[str]:
    """The columns that only tell of changes: a table need not have them. A field of a struct is none, as the struct has
    other fields.
    """
    told = (mutations.cdc_field, deletes.column if deletes is not None else None)
    return {path for path in told if path is not None and "." not in path}


def _told(table: str, option: str, path: str, schema: spark.StructType) -> str:
    """The dotted name of a column as the DataFrame spells it."""
    kind: spark.DataType = schema
    names: list[str] = []
    for part in path.split("."):
        inner = kind.names if isinstance(kind, spark.StructType) else []
        same = [part] if part in inner else [name for name in inner if name.lower() == part.lower()]
        if len(same) != 1 or not isinstance(kind, spark.StructType):
            what = f"two columns {' and '.join(same)}" if same else f"no column {path}"
            raise ConfigError(
                f"table {table}: the DataFrame has {what}, which the option {option} names; it has"
                f" {', '.join(schema.names)[:1000]}"
            )
        names += same
        kind = kind[same[0]].dataType
    if not isinstance(kind, _TELLING[option]):
        raise ConfigError(
            f"table {table}: column {path}, which the option {option} names, is {kind.simpleString()}, which says"
            " nothing of changes: cast it to string"
        )
    return ".".join(names)
