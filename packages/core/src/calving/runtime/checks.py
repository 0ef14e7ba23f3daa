"""Checks of the settings that need no service, and of the tables in the settings, whether each can be created or can be
written as it is: what would otherwise fail late, or only with the first record.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calving.catalogs.foreign import check_takes_rows
from calving.converters.interface import converter
from calving.errors import ConfigError
from calving.iceberg.catalog import find_table, table_id
from calving.iceberg.rules import (
    check_declared,
    check_mutations,
    check_soft_addition,
    check_soft_field,
    check_soft_name,
    check_version,
    in_use,
    new_version,
    spelt_mutations,
)
from calving.iceberg.schemas import as_in, spec_names
from calving.model.tables import RowMutations
from calving.records.declared import declaration
from calving.records.inferred import find, of_type
from calving.serving.tls import tls_context
from calving.settings.catalogs import check_address
from calving.settings.clients import check_login
from calving.settings.keys import whole_location
from calving.settings.load import Sink
from calving.settings.records import branches
from calving.tasks.letters import LETTERS
from calving.transforms.chain import Chain
from calving.wording import meant
from calving.writing.changes import no_id_columns
from calving.writing.formats.interface import FORMATS
from calving.writing.properties import FORMAT, WriteProperties
from calving.writing.terms import check_names, parse_term, takes

log = logging.getLogger(__name__)


def refuse_missing_tables(catalog: Catalog, sink: Sink, unreadable: Collection[str] = ()) -> Iterator[tuple[str, bool]]:
    """Each table in the settings, and whether it exists. The ``unreadable`` ones are left out.

    :raises ConfigError: a table does not exist and will not be created, its partition terms are wrong, or records
        cannot change its rows as the settings say.
    """
    keys = sink.keys
    if keys.dead_letter_table not in unreadable:
        _check_letters(catalog, sink)
    for name in (name for name in keys.tables if name not in unreadable):
        table = find_table(catalog, table_id(name))
        exists = table is not None
        if not exists and not keys.auto_create and keys.on_missing_table == "fail":
            raise ConfigError(
                f"table {name} does not exist: create it, or set iceberg.tables.auto-create-enabled = true"
            )
        if table is not None:
            branch = branches(keys, sink.tables).of(table_id(name))
            check_takes_rows(name, table.metadata, rewrites=sink.mutations(name) is not None, branch=branch)
        check_creation(sink, name)
        if not exists and sink.keys.auto_create:
            own = sink.tables.get(name)
            declared = [] if own is None else [column for column, _ in own.columns]
            check_declared(name, declared, fold=sink.keys.case_insensitive)
        mutations = sink.mutations(name)
        if mutations is not None:
            if table is not None:
                _check_rows(sink, name, table, mutations)
            else:
                _check_new_rows(catalog, sink, name, mutations)
        yield name, exists


def _check_letters(catalog: Catalog, sink: Sink) -> None:
    """:raises ConfigError: the dead-letter table could not be created with its partitions and id columns."""
    name = sink.keys.dead_letter_table
    own = None if name is None else sink.tables.get(name)
    if name is None or own is None or find_table(catalog, table_id(name)) is not None:
        return
    columns = ", ".join(field.name for field in LETTERS)
    for term in own.partition_by or ():
        column, transform, _ = parse_term(term, name)
        place = find(of_type(LETTERS), column)
        if place is None:
            raise ConfigError(
                f"table {name}: partition-by '{term}': the dead-letter table has no column '{column}', only {columns}"
            )
        if not takes(transform, place[1]):
            raise ConfigError(f"table {name}: partition-by '{term}' cannot be applied to {declaration(place[1])}")
    always = [field.name for field in LETTERS if not field.nullable]
    for column in own.id_columns or ():
        if column not in always:
            raise ConfigError(
                f"table {name}: id-columns: every dead letter needs a value in the column '{column}'; those that always"
                f" have one are {', '.join(always)}"
            )


def check_creation(sink: Sink, name: str) -> None:
    """``name``: an empty one stands for all tables that have no settings of their own.

    :raises ConfigError: the table could not be created with these partitions, columns and id columns.
    """
    own = sink.tables.get(name)
    key, terms = "iceberg.tables.default-partition-by", sink.keys.default_partition_by
    if own is not None and own.partition_by is not None:
        key, terms = f"iceberg.table.{name}.partition-by", own.partition_by
    declared = sink.declared(name)
    try:
        parsed = [parse_term(term, name) for term in terms]
        check_names(terms, dict(() if own is None else own.columns), name)
    except ConfigError as error:
        raise ConfigError(
            f"{key}: {str(error).removeprefix(f'table {name}: ').removeprefix('partition-by ')}"
        ) from error
    for term, (column, transform, _) in zip(terms, parsed, strict=True):
        type_ = declared.get(column)
        if type_ is not None and not takes(transform, type_):
            raise ConfigError(f"{key}: '{term}' cannot be applied to {column} {type_}")
    for column in sink.id_columns(name):
        type_ = declared.get(column, "string")
        if not isinstance(type_, str) or type_ in ("float", "double"):
            where = f"table {name}" if name else "iceberg.tables.default-id-columns"
            raise ConfigError(f"{where}: the id-column '{column}' cannot be declared as {type_}")


def _check_rows(sink: Sink, name: str, table: Table, mutations: RowMutations) -> None:
    """:raises ConfigError: records cannot change the rows of this table."""
    id_columns = as_in(table.schema(), sink.id_columns(name), fold=sink.keys.case_insensitive)
    used = in_use(table.schema(), mutations)
    if used is None:
        return
    mutations = spelt_mutations(table.schema(), used, fold=sink.keys.case_insensitive)
    check_mutations(name, table.metadata.format_version, table.schema(), id_columns, mutations)
    check_soft_addition(name, mutations, table.schema(), spec_names(table.metadata))


def _check_new_rows(catalog: Catalog, sink: Sink, name: str, mutations: RowMutations) -> None:
    """:raises ConfigError: the settings show that records could not change the rows of the table that will be
    created.
    """
    if not sink.id_columns(name) and not mutations.by_key:
        raise no_id_columns(name, mutations)
    if sink.keys.auto_create:
        check_version(name, new_version(catalog, sink.create_properties), mutations, new=True)
        declared, soft = sink.declared(name), mutations.soft_delete_field
        if sink.keys.case_insensitive:
            declared, soft = {column.lower(): kind for column, kind in declared.items()}, soft.lower()
        check_soft_field(name, mutations, declaration(declared.get(soft, "boolean")))
        check_soft_name(name, mutations)


_FILES = re.compile(
    r"((iceberg\.)?kafka|consumer\.override)\.(ssl\.(ca|certificate|key|crl|keystore|truststore)\.location"
    r"|sasl\.kerberos\.keytab)"
    r"|iceberg\.http\.tls-(certificate|key)-file|iceberg\.control\.zookeeper\.tls-(ca|certificate|key)"
    r"|(key|value)\.converter\.(schema\.registry\.)?ssl\.(ca|certificate|key)\.location"
    r"|iceberg\.catalog\.(ssl\.cabundle|ssl\.client\.(cert|key)|gcp\.bigquery\.credential-file)"
)
_PLACES = {"write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path"}
_CLASSES = {"py-io-impl", "py-catalog-impl"}
_FOLDERS = re.compile(r".*(ssl\.ca\.location|cabundle)")
_PROPERTIES = [str(field.alias) for field in WriteProperties.model_fields.values()]


class _Form(NamedTuple):
    names: re.Pattern[str]
    values: re.Pattern[str]
    what: str


_FORMS = (
    _Form(re.compile(r"-ms$"), re.compile(r"-?[0-9]+"), "a whole number of milliseconds"),
    _Form(re.compile(r"-bytes$|\.target-size$"), re.compile(r"-?[0-9]+"), "a whole number of bytes"),
    _Form(re.compile(r"[.-]enabled$"), re.compile("true|false", re.IGNORECASE), "true or false"),
)
"""Properties of Iceberg's tables, by the ends of their names. Other programs read some of them, and fail late."""
_VERSIONS = ("1", "2", "3")


def check_settings(sink: Sink, *, files: bool = True) -> None:
    """As ``check_record_path``; and look at addresses, files, partition terms and properties of tables. ``files``: with
    False, the sink's files may be on another machine. Warn if rows land and nothing of the sink moves them.

    :raises ConfigError: one of them is wrong.
    """
    for client in (sink.kafka, sink.control_kafka):
        check_login(client)
    check_address(sink.catalog)
    if files:
        for key, path in _files(sink):
            _check_file(key, path)
        tls_context(sink.keys)
        _check_classes(sink.catalog)
    check_record_path(sink)
    for name in sink.keys.tables or ("", *(name for name in sink.tables if name != sink.keys.dead_letter_table)):
        check_creation(sink, name)
    _check_properties(sink)
    if (warning := unmoved_rows(sink)) is not None:
        log.warning("%s", warning)


def is_unmoved(sink: Sink, table: str) -> bool:
    """Whether rows of a table land in no partition, and the settings say that this sink does not move them into the
    partitions.
    """
    return sink.landing(table) == "unpartitioned" and sink.maintains(table) == "false"


def unmoved_rows(sink: Sink) -> str | None:
    """The warning about tables whose rows land in no partition and are not moved by this sink; None if there are none.
    Nothing tells whether `calving maintain` moves them.
    """
    name = next((name for name in ("", *sink.tables) if is_unmoved(sink, name)), None)
    if name is None:
        return None
    landing, enabled = (
        (f"iceberg.table.{name}.landing", f"iceberg.table.{name}.maintenance.enabled")
        if name
        else ("iceberg.tables.landing", "iceberg.maintenance.enabled")
    )
    return (
        f"{landing} = unpartitioned: rows land in no partition, and this sink does not move them into the partitions:"
        f" set {enabled} = true, or let `calving maintain FILE --watch` run beside it"
    )


def check_record_path(sink: Sink) -> None:
    """Make every converter and transform once, to find wrong options at the start.

    :raises ConfigError: a converter or transform cannot be made.
    """
    Chain(sink.transforms)
    for topic in sink.converters:
        _check_converters(sink, topic)


def _check_converters(sink: Sink, topic: str) -> None:
    of_topic = sink.converters[topic]
    try:
        converter(of_topic.value.name, of_topic.value.options, is_key=False)
        converter(of_topic.key.name, of_topic.key.options, is_key=True)
    except ConfigError as error:
        if not topic:
            raise
        raise ConfigError(f"iceberg.topic.{topic}: {error}") from error


def _files(sink: Sink) -> Iterator[tuple[str, str]]:
    """The keys that name files, with their files."""
    for key, path in sink.given.items():
        if _FILES.fullmatch(key) and "${" not in path and path not in ("probe", "***"):
            yield key, path


def _check_classes(catalog: Mapping[str, str]) -> None:
    for key in _CLASSES & catalog.keys():
        module, _, name = catalog[key].rpartition(".")
        try:
            getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"iceberg.catalog.{key}: the class '{catalog[key]}' cannot be loaded: is it installed here, and spelt"
                f" right? ({error})"
            ) from error


def _check_file(key: str, path: str) -> None:
    if not Path(path).exists():
        raise ConfigError(f"{key}: there is no file {path}: create it, or correct the path")
    if Path(path).is_dir() and not _FOLDERS.fullmatch(key):
        raise ConfigError(f"{key}: {path} is a folder: name the file")


def _check_properties(sink: Sink) -> None:
    """:raises ConfigError: a property for new tables, or for writing, has a value that no table takes."""
    for key, properties in (
        ("iceberg.tables.auto-create-props", sink.create_properties),
        ("iceberg.tables.write-props", sink.write_properties),
    ):
        for name in properties.keys() - {*_PROPERTIES}:
            if hint := meant(name, _PROPERTIES, 0.92, f"{key}."):
                raise ConfigError(f"unknown key '{key}.{name}'{hint}")
        for name, value in properties.items():
            form = next((form for form in _FORMS if form.names.search(name)), None)
            if form is not None and not form.values.fullmatch(value):
                raise ConfigError(f"{key}.{name}: must be {form.what} (given: '{value}')")
        for name in _PLACES & properties.keys():
            try:
                whole_location(properties[name])
            except ValueError as error:
                raise ConfigError(f"{key}.{name}: {error} (given: '{properties[name]}')") from error
        try:
            of_files = WriteProperties.of(properties, "")
            FORMATS.find(of_files.file_format)
        except ConfigError as error:
            text = str(error).removeprefix("table : property ")
            known = text != str(error)
            raise ConfigError(f"{key}.{text}" if known else f"{key}.{FORMAT}: {text}") from error
    version = sink.create_properties.get("format-version", "2")
    if version not in _VERSIONS:
        raise ConfigError(f"iceberg.tables.auto-create-props.format-version: must be 1, 2 or 3 (given: '{version}')")
