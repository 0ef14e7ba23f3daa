"""The options of the data source: the keys of a sink's table and catalog without their prefix, and its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from calving.errors import ConfigError
from calving.model.tables import MAIN, OrderType, RowMutations, is_table_name
from calving.secrets import know, looks_secret, without_logins
from calving.settings import files
from calving.settings.catalogs import check_address, check_catalog
from calving.settings.keys import Branch, DistinctNames, Location, Names, Text
from calving.settings.validation import validate
from calving.wording import meant_key
from calving_spark.changes import Deletes

_CATALOG = "catalog."
_PREFIXES = (_CATALOG, "write-props.", "auto-create-props.")
_OF_SPARK = {"path": "table", "queryname": None, "checkpointlocation": None, "outputmode": None, "numrows": None}
"""Options that Spark adds, with the key that each stands for; None: for none of this source."""
_OF_PIPELINES = {
    "keys": "id-columns",
    "sequence_by": "order-field",
    "sequence-by": "order-field",
    "apply_as_deletes": "apply-as-deletes",
}
_LONGEST = 200


def _table(value: str) -> str:
    if not is_table_name(value):
        raise ValueError("must be a table's name with its namespace, such as lake.orders")
    return value


def _entry(value: str) -> str:
    if not value.strip() or not value.isprintable() or len(value) > _LONGEST or "@" in value:
        raise ValueError(f"must have 1 to {_LONGEST} characters that are shown, and no @: it becomes a table property")
    return value


def _condition(value: str) -> str:
    Deletes.parse(value)
    return value


EntryName = Annotated[str, AfterValidator(_entry)]


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
    def deletes(self) -> Deletes | None:
        """The rows that delete, if a condition says it."""
        return Deletes.parse(self.apply_as_deletes) if self.apply_as_deletes is not None else None


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
"""The keys that are handed on, and what they are."""


Keys = TypeVar("Keys", bound=SourceKeys)


@dataclass(frozen=True, slots=True)
class SourceOptions(Generic[Keys]):
    """The checked options. ``query_name``: that of the streaming query."""

    keys: Keys
    catalog: Mapping[str, str]
    write_properties: Mapping[str, str]
    create_properties: Mapping[str, str]
    query_name: str | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    """The options as they were given, with the references to secrets, but without what they refer to: these travel."""


class WriteOptions(SourceOptions[WriteKeys]):
    """The options of a write."""

    __slots__ = ()

    @property
    def sink(self) -> str | None:
        """The name of the stream that somebody has chosen."""
        return self.keys.sink or self.query_name


class ReadOptions(SourceOptions[ReadKeys]):
    """The options of a read."""

    __slots__ = ()


def read(given: Mapping[str, str]) -> WriteOptions:
    """The options of a write as Spark hands them over.

    :raises ConfigError: an option is unknown, is wrong, or shows a secret.
    """
    options = WriteOptions(*_parsed(given, WriteKeys))
    _check_changes(options.keys)
    if options.query_name is not None and options.keys.sink is None:
        _check_name(options.query_name)
    return options


def read_of_scan(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read as Spark hands them over.

    :raises ConfigError: an option is unknown, is wrong, or shows a secret.
    """
    options = ReadOptions(*_parsed(given, ReadKeys))
    keys = options.keys
    places = {"snapshot-id": keys.snapshot_id, "as-of-timestamp": keys.as_of_timestamp}
    named = [name for name, value in places.items() if value is not None]
    named += ["branch"] if keys.branch != MAIN else []
    if len(named) > 1:
        raise ConfigError(f"options {' and '.join(named)} name two states of the table: leave one out")
    return options


def _parsed(
    given: Mapping[str, str], model: type[Keys]
) -> tuple[Keys, Mapping[str, str], Mapping[str, str], Mapping[str, str], str | None, Mapping[str, str]]:
    """The fields of ``SourceOptions``."""
    options = {key.lower(): text for key, text in given.items()}
    _refuse_secrets(options)
    raw, provided = files.resolved(_gathered(options))
    plain = {key: text for key, text in raw.items() if not key.startswith(_PREFIXES)}
    handed_on = [
        {key.removeprefix(prefix): text for key, text in raw.items() if key.startswith(prefix)} for prefix in _PREFIXES
    ]
    _refuse_unknown(plain, options, model)
    known = _aliases(model)
    keys = validate(model, {key: text for key, text in plain.items() if key in known}, "option ")
    catalog, write_properties, create_properties = handed_on
    know(
        f"spark {keys.table}",
        [(f"iceberg.catalog.{key}", text) for key, text in catalog.items()],
        {key.replace(_CATALOG, "iceberg.catalog.", 1): texts for key, texts in provided.items()},
    )
    if not catalog:
        raise ConfigError("option catalog.type is missing: rest, sql, hive or glue; and catalog.uri, its address")
    check_catalog(catalog)
    check_address(catalog)
    return keys, catalog, write_properties, create_properties, options.get("queryname"), dict(given)


def _gathered(options: Mapping[str, str]) -> dict[str, str]:
    """The keys of the file that the options name, and above them the options without those that Spark adds."""
    raw = files.read(Path(options["config"])) if "config" in options else {}
    for key, text in options.items():
        name = _OF_SPARK.get(key, key)
        if name is not None and not (name != key and name in options):
            raw[name] = text
    return _in_our_words(raw)


def _in_our_words(raw: Mapping[str, str]) -> dict[str, str]:
    """Pipelines' words for changes, as the keys that they are.

    :raises ConfigError: a key is there by two names.
    """
    ours: dict[str, str] = {}
    for word, text in raw.items():
        key = _OF_PIPELINES.get(word, word)
        if key in ours or (key != word and key in raw):
            raise ConfigError(f"option {word} is {key}, which is there, too: leave one out")
        ours[key] = text
    if "keys" in raw:
        ours.setdefault("upsert-mode-enabled", "true")
    return ours


def _check_changes(keys: WriteKeys) -> None:
    """:raises ConfigError: keys of changes contradict each other, or have no effect."""
    if keys.cdc_field and keys.apply_as_deletes:
        raise ConfigError("options cdc-field and apply-as-deletes both say which rows delete: leave one out")
    given = {"id-columns": keys.id_columns, "order-field": keys.order_field}
    idle = next((name for name, value in given.items() if value), None)
    if keys.mutations is None and idle is not None:
        raise ConfigError(
            f"option {idle} has no effect on rows that are added: set upsert-mode-enabled = true, cdc-field or"
            " apply-as-deletes"
        )


def _check_name(query_name: str) -> None:
    try:
        _entry(query_name)
    except ValueError as error:
        raise ConfigError(f"the query's name {query_name!r} {error}: set the option sink") from error


def _refuse_secrets(options: Mapping[str, str]) -> None:
    """Spark shows options in plans and in event logs (S17).

    :raises ConfigError: an option shows a secret.
    """
    for key, text in options.items():
        name = f"iceberg.{key}" if key.startswith(_CATALOG) else key
        shows = looks_secret(name) and not files.has_reference(text)
        login = without_logins(text)[1]
        if shows or (login is not None and ":" in login and not files.has_reference(login)):
            raise ConfigError(
                f"option {key} shows a secret in Spark's plans and event logs: write ${{env:NAME}} or"
                " ${file:PATH:KEY}, or put the key into the file of the option config"
            )


def _refuse_unknown(plain: Mapping[str, str], options: Mapping[str, str], model: type[SourceKeys]) -> None:
    """One file may serve reads and writes; an option that has no effect may not be given."""
    known = _aliases(model)
    of_others = [key for each in (WriteKeys, ReadKeys) for key in _aliases(each) if key not in known]
    for key in plain:
        if key in of_others:
            if key in options:
                raise ConfigError(f"option {key} is for {'reads' if model is WriteKeys else 'writes'}: leave it out")
        elif key not in known:
            hint = meant_key(key, [*known, *_PREFIXES, "catalog.type", "catalog.uri", "catalog.warehouse"])
            raise ConfigError(f"option {key}: unknown{hint or '; there are ' + ', '.join(known)}")


def _aliases(model: type[SourceKeys]) -> list[str]:
    return [str(each.alias) for each in model.model_fields.values()]
