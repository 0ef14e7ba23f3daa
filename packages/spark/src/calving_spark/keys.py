"""The keys of reads and writes of the data source, as they are in a file and in the options of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from calving.model.table_names import is_table_name
from calving.model.tables import MAIN, OrderType, RowMutations
from calving.settings.keys import Branch, DistinctNames, Location, Names, Text
from calving_spark.changes import DeleteCondition

_LONGEST = 200


def _table(value: str) -> str:
    if not is_table_name(value):
        raise ValueError("must be a table's name with its namespace, such as lake.orders")
    return value


def check_entry(value: str) -> str:
    """:raises ValueError: the name cannot be that of a ledger's entry."""
    if not value.strip() or not value.isprintable() or len(value) > _LONGEST or "@" in value:
        raise ValueError(f"must have 1 to {_LONGEST} characters that are shown, and no @: it becomes a table property")
    return value


def _condition(value: str) -> str:
    DeleteCondition.parse(value)
    return value


EntryName = Annotated[str, AfterValidator(check_entry)]


class SourceKeys(BaseModel):
    """The keys of reads and writes, as they are in a file and in the options of Spark."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Annotated[str, AfterValidator(_table)] = Field(
        alias="table", description="The table, such as `lake.orders`; also the argument of `start`, `save` and `load`."
    )
    config: Text | None = Field(
        None,
        alias="config",
        description="A TOML or `.properties` file with these keys, read on the driver. Options take precedence. Spark"
        " turns names of options to lower case, so names with capitals can only be in the file.",
    )
    catalog: Text = Field(
        "iceberg",
        alias="catalog",
        description="The catalog's name, as `iceberg.catalog` of a sink: a SQL catalog keeps tables by this name.",
    )
    branch: Branch = Field(
        MAIN,
        alias="branch",
        description="The branch to which rows are added; in reads, the branch or tag.",
    )


class WriteKeys(SourceKeys):
    """The keys of a write."""

    sink: EntryName | None = Field(
        None,
        alias="sink",
        description="The name of the stream in the table's ledger. Default: the query's name, or its id if it has none;"
        " then nobody notices that a checkpoint was deleted.",
    )
    on_new_checkpoint: Literal["refuse", "continue"] = Field(
        "refuse",
        alias="on-new-checkpoint",
        description="What becomes of a batch of another query than the one that the ledger names, or after a rollback"
        " of the table. `refuse`: the query fails. `continue`: the batch is added, and the ledger names the new query.",
    )
    write_id: EntryName | None = Field(
        None,
        alias="write-id",
        description="Batch writes: the name of this write. A second write of this name adds nothing. A table keeps the"
        " last 1,000 names.",
    )
    auto_create: bool = Field(
        False, alias="auto-create-enabled", description="A missing table is created with the DataFrame's columns."
    )
    evolve: bool = Field(
        False,
        alias="evolve-schema-enabled",
        description="Columns that the table lacks are added, and `int` and `float` columns are widened. If false, a"
        " column that the table lacks is refused.",
    )
    case_insensitive: bool = Field(
        False,
        alias="schema-case-insensitive",
        description="A column matches the table's column of its name in upper or lower case.",
    )
    force_optional: bool = Field(
        False, alias="schema-force-optional", description="Every column of a new table may be null."
    )
    timestamp_range: Literal["years-1-9999", "any"] = Field(
        "years-1-9999",
        alias="timestamp-range",
        description="`years-1-9999`: a date or timestamp outside these years fails the write, because most readers in"
        " Python cannot read it. `any`: all moments that the column's type holds.",
    )
    partition_by: Names = Field(
        (),
        alias="default-partition-by",
        description="Partition terms of a table that is created: year, month, day, hour(column), bucket(column, N),"
        " truncate(column, W), or a column.",
    )
    location: Location | None = Field(None, alias="location", description="The location of a table that is created.")
    upsert: bool = Field(
        False, alias="upsert-mode-enabled", description="Each row replaces the table's row of its key, or is added."
    )
    id_columns: DistinctNames = Field(
        (),
        alias="id-columns",
        description="Columns that identify a row; default: the table's identifier fields, which they become in a table"
        " that is created. As `keys`, the word of pipelines, it sets `upsert-mode-enabled`, too.",
    )
    cdc_field: Text | None = Field(
        None,
        alias="cdc-field",
        description="The column that says what a row does, as `iceberg.tables.cdc-field` of a sink: texts that begin"
        " with D delete, others replace. It is written if the table has such a column.",
    )
    apply_as_deletes: Annotated[str, AfterValidator(_condition)] | None = Field(
        None,
        alias="apply-as-deletes",
        description="The rows that delete, as pipelines say it: `op = 'DELETE'`, or `op IN ('d', 'x')`; the other rows"
        " replace. The column is written if the table has it.",
    )
    order_field: Text | None = Field(
        None,
        alias="order-field",
        description="The column that orders the rows of a key; the greatest wins, also over rows of former batches. In"
        " pipelines `sequence_by`. Without it a key may come once in a batch, and later batches win.",
    )
    order_type: OrderType = Field(
        "parsed", alias="order-type", description="How texts of `order-field` compare, as of a sink."
    )

    @property
    def mutations(self) -> RowMutations | None:
        """How rows change the table; None if they are added."""
        if not (self.upsert or self.cdc_field or self.apply_as_deletes):
            return None
        return RowMutations(
            cdc_field=self.cdc_field, upsert=True, order_field=self.order_field, order_type=self.order_type
        )

    @property
    def deletes(self) -> DeleteCondition | None:
        """The rows that delete, if a condition says it."""
        return DeleteCondition.parse(self.apply_as_deletes) if self.apply_as_deletes is not None else None


class ReadKeys(SourceKeys):
    """The keys of a read."""

    snapshot_id: Annotated[int, Field(ge=0)] | None = Field(
        None, alias="snapshot-id", description="Reads: the snapshot whose rows are read, with its columns."
    )
    as_of_timestamp: Annotated[int, Field(ge=0)] | None = Field(
        None,
        alias="as-of-timestamp",
        description="Reads: the rows as they were at this time, in milliseconds since 1970.",
    )
    columns: Names = Field(
        (),
        alias="columns",
        description="Reads: the columns that are read. Default: all. Spark does not tell a source in Python which"
        " columns a query needs, so name them if a table has many.",
    )


GROUPS: Mapping[str, str] = {
    "catalog.*": "The catalog, as `iceberg.catalog.*` of a sink: `catalog.type`, `catalog.uri`, and so on.",
    "write-props.*": "Table properties that this write has instead of the table's own.",
    "auto-create-props.*": "Properties of a table that is created.",
}
"""Groups of keys with a common prefix, and what each group sets."""
