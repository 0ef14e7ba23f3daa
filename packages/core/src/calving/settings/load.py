"""Reads a configuration file into ``Sink``. Its errors name the wrong key."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from calving.backend.interface import Backend, find
from calving.engine.registry import Patience, check_engine
from calving.errors import ConfigError
from calving.maintenance.plan import Triggers
from calving.model.record_path import ConverterSpec, TopicConverters, TransformSpec
from calving.model.sink import DeadLetterTopic, SinkIdentity
from calving.model.tables import Landing, RowMutations
from calving.secrets import know, shown_text
from calving.settings import files
from calving.settings.catalog_names import without_effect
from calving.settings.catalogs import check_case, check_catalog, kind_of
from calving.settings.clients import client_properties, consumer_keys
from calving.settings.connect import connector_group, from_tabular, with_worker
from calving.settings.files import read
from calving.settings.id_columns import id_columns
from calving.settings.keys import PREFIXES, REFUSED, TAKEN_OVER, TRIGGERS, Maintained, SinkKeys, TableKeys
from calving.settings.places import check_places
from calving.settings.records import (
    check_dead_letter_table,
    check_idle_defaults,
    check_routed_tables,
    check_routes,
    converters,
    dotted_names,
    transforms,
    unread_operations,
)
from calving.settings.row_mutations import row_mutations
from calving.settings.schema_changes import check_schema_changes
from calving.settings.spark import check_spark
from calving.settings.type_changes import check_type_changes
from calving.settings.validation import validate
from calving.source.backfill import BackfillScope
from calving.source.start import EARLIEST
from calving.wording import meant_key

if TYPE_CHECKING:
    from calving.model.tables import Unit
    from calving.records.declared import Declaration
    from calving.records.inferred import InferredType

log = logging.getLogger(__name__)

_TABLE = "iceberg.table."
_OF_TABLES = frozenset(str(field.alias) for field in TableKeys.model_fields.values())
_DOTTED = tuple(name for name in sorted(_OF_TABLES) if "." in name)


@dataclass(frozen=True, slots=True)
class Sink:
    """A checked configuration."""

    keys: SinkKeys
    tables: Mapping[str, TableKeys]
    kafka: Mapping[str, str]
    control_kafka: Mapping[str, str]
    catalog: Mapping[str, str]
    create_properties: Mapping[str, str]
    write_properties: Mapping[str, str]
    spark: Mapping[str, str]
    converters: Mapping[str, TopicConverters]
    transforms: tuple[TransformSpec, ...]
    backend: type[Backend]
    backend_settings: BaseModel
    given: Mapping[str, str] = field(default_factory=dict)
    """Every key as given, with secrets masked: safe to show."""
    file: str = ""
    """The configuration file, as it was named; empty if the settings are from no file."""
    connector_group: str | None = None
    """The consumer group of a Tabular connector's tasks, which workers do not join; None for other settings."""
    replayed: bool = False
    """Whether the topics hold dead letters, to be processed as the original records."""
    scope: BackfillScope | None = None
    """What a backfill reads; None for a sink."""
    parent: str = ""
    """The owner of the ledgers of the sink that this one replays or fills; empty for a sink."""

    def replay(self) -> Sink:
        """The sink that replays this sink's dead letters as the original records. It has its own group.

        :raises ConfigError: there is no dead-letter topic, or its records lack headers with their origin; or a mutation
            table has no order-field, so that old rows would replace newer ones.
        """
        keys = self.keys
        if keys.dead_letter_topic is None or not keys.dead_letter_headers:
            raise ConfigError(
                "replay reads errors.deadletterqueue.topic.name, with errors.deadletterqueue.context.headers.enable ="
                " true: set both"
            )
        for table in ("", *self.tables):
            mutations = self.mutations(table)
            if mutations is not None and mutations.order_field is None:  # rule M9
                name = f"table {table}" if table else "iceberg.tables"
                raise ConfigError(
                    f"{name}: replay would put old rows over newer ones; set order-field, which tells them apart"
                )
        change = {
            "name": f"{keys.name}-replay",
            "group": f"{self.group}-replay",
            "topics": (keys.dead_letter_topic,),
            "topics_regex": None,
            "start": EARLIEST,
        }
        return replace(self, keys=keys.model_copy(update=change), replayed=True, parent=self.creator)

    @property
    def changes_rows(self) -> bool:
        """Whether records change rows of one of the sink's tables."""
        return any(self.mutations(name) is not None for name in ("", *self.tables))

    def mutations(self, table: str) -> RowMutations | None:
        """The settings by which records change the rows of a table; None if rows are only appended."""
        if table == self.keys.dead_letter_table:
            return None
        return row_mutations(self.keys, table, self.tables.get(table))

    def id_columns(self, table: str) -> tuple[str, ...]:
        """The columns that identify a table's rows, as the settings name them; none if records' keys name them."""
        return id_columns(self.keys, self.tables.get(table))

    def landing(self, table: str) -> Landing:
        """Whether files of a table are written into its partitions, or landed in none."""
        own = self.tables.get(table)
        return self.keys.landing if own is None or own.landing is None else own.landing

    def declared(self, table: str) -> Mapping[str, InferredType]:
        """The declared types of a table's columns, by column."""
        return {column: declared.type for column, declared in self._declarations(table).items()}

    def units(self, table: str) -> Mapping[str, Unit]:
        """The declared units in which whole numbers count moments, by the dotted name of the column."""
        declarations = self._declarations(table).values()
        return {column: unit for declared in declarations for column, unit in declared.units.items()}

    def _declarations(self, table: str) -> Mapping[str, Declaration]:
        own = self.tables.get(table)
        return {**dict(self.keys.default_columns), **dict(own.columns if own is not None else ())}

    def triggers(self, table: str) -> Triggers:
        """When files of a table are compacted. What the sink has landed is due at once, unless a key says otherwise."""
        triggers = Triggers(**{name: self.maintenance(table, name) for name in TRIGGERS})
        is_due = triggers.landed_files is None and self.landing(table) == "unpartitioned"
        return replace(triggers, landed_files=1) if is_due else triggers

    def maintains(self, table: str) -> Maintained:
        """Whether the leader maintains a table."""
        found: Maintained = self.maintenance(table, "maintenance_enabled")
        return found

    @property
    def maintains_any(self) -> bool:
        """Whether the leader may have tables to maintain."""
        return any(self.maintains(table) != "false" for table in ("", *self.tables))

    def maintenance(self, table: str, name: str) -> Any:
        """The value of a key of maintenance for a table, by the name of its field."""
        own = getattr(self.tables.get(table, TableKeys()), name)
        return getattr(self.keys, name) if own is None else own

    @property
    def creator(self) -> str:
        """What the tables that it creates say: the owner of ledgers whose leader maintains them."""
        return self.parent or f"{self.keys.control_topic}.{self.group}"

    @property
    def group(self) -> str:
        return self.keys.group or f"connect-{self.keys.name}"

    @property
    def patience(self) -> Patience:
        """How long the sink's engine waits for resources, and for a job."""
        return Patience(self.keys.resources_timeout_ms / 1000, self.keys.job_timeout_ms / 1000)

    @property
    def identity(self) -> SinkIdentity:
        return SinkIdentity(
            self.keys.name,
            self.group,
            self.keys.control_topic,
            self.control_kafka,
            self.keys.transactional_prefix,
            self._dead_letters,
        )

    @property
    def _dead_letters(self) -> DeadLetterTopic | None:
        keys = self.keys
        if keys.dead_letter_topic is None:
            return None
        return DeadLetterTopic(keys.dead_letter_topic, keys.dead_letter_headers, keys.dead_letter_replication)


def load(path: Path, worker: Path | None = None) -> Sink:
    """The sink that a file describes; ``worker``: the properties file of the connector's Kafka Connect worker.

    :raises ConfigError: a file cannot be read, or a key is wrong.
    """
    raw = read(path)
    return replace(parse(raw if worker is None else with_worker(raw, read(worker))), file=str(path))


def parse(raw: Mapping[str, str], *, resolved: bool = True) -> Sink:
    """The sink of flat keys, all values as text. ``resolved``: whether to look up ``${env:...}`` and ``${file:...}``,
    whose secrets are masked in texts from then on; otherwise they may be any value.

    :raises ConfigError: a key is wrong.
    """
    for key in TAKEN_OVER.keys() & raw.keys():
        log.warning("key %s has no effect here and is ignored: %s", key, TAKEN_OVER[key])
    given = {key: shown_text(key, text) for key, text in raw.items()}
    raw = {key: _trimmed(text) for key, text in raw.items() if key not in TAKEN_OVER}
    if resolved:
        raw, provided = files.resolved(raw)
        know(raw.get("name", ""), raw.items(), provided)
    connector = connector_group(raw)
    raw = consumer_keys(from_tabular(raw))
    own = {field.alias for field in SinkKeys.model_fields.values()}
    handed_on, tables, plain = _sorted(raw, own)
    backend = _backend(plain)  # it brings keys of its own, so it is found before any check
    theirs = {field.alias for field in backend.settings.model_fields.values()}
    _check_names(plain, own | theirs)
    kafka, control_kafka = client_properties(handed_on)
    keys = validate(SinkKeys, {k: v for k, v in plain.items() if k in own}, "", resolved=resolved)
    check_engine(keys.engine)
    check_catalog(handed_on["iceberg.catalog."])
    check_spark(handed_on["spark."])
    sink = Sink(
        keys=keys,
        tables={n: validate(TableKeys, own, f"{_TABLE}{n}.", resolved=resolved) for n, own in tables.items()},
        kafka=kafka,
        control_kafka=control_kafka,
        catalog=handed_on["iceberg.catalog."] or {"type": "embedded"},
        create_properties=handed_on["iceberg.tables.auto-create-props."],
        write_properties=handed_on["iceberg.tables.write-props."],
        spark=handed_on["spark."],
        converters=converters(
            ConverterSpec(keys.key_converter, handed_on["key.converter."]),
            ConverterSpec(keys.value_converter, handed_on["value.converter."]),
            handed_on["iceberg.topic."],
        ),
        transforms=transforms(keys.transforms, keys.predicates, handed_on["transforms."], handed_on["predicates."]),
        backend=backend,
        backend_settings=validate(
            backend.settings, {k: v for k, v in plain.items() if k in theirs}, "", resolved=resolved
        ),
        given=given,
        connector_group=connector,
    )
    _warn(sink)
    _check_tables(sink)
    return sink


def _check_tables(sink: Sink) -> None:
    check_routes(sink.keys, sink.tables, sink.converters.keys() - {""})
    check_routed_tables(sink.keys, sink.tables, sink.create_properties)
    check_case(sink.keys.routed_case, sink.catalog)
    check_dead_letter_table(sink.keys, sink.tables)
    mutations = {name: sink.mutations(name) for name in ("", *sink.tables)}
    check_idle_defaults(sink.keys, mutations.values())
    check_type_changes(sink.keys, sink.tables, mutations)
    check_schema_changes(sink.keys, sink.transforms)


_WORD = re.compile(r"\s*((?i:true|false)|[a-z]\w*(\.\w+)+\.[A-Z][\w$]*)\s*")


def _trimmed(value: str) -> str:
    """The value without the blanks around a boolean or a class, which Kafka Connect leaves out, too."""
    return value.strip() if _WORD.fullmatch(value) else value


def _backend(plain: Mapping[str, str]) -> type[Backend]:
    chosen = SinkKeys.model_fields["backend"]
    try:
        return find(plain.get(str(chosen.alias), chosen.default))
    except ConfigError as error:
        raise ConfigError(f"{chosen.alias}: {error}") from error


def _warn(sink: Sink) -> None:
    """Log what may not be meant."""
    mutations = {table: sink.mutations(table) for table in ("", *sink.tables)}
    unread = without_effect(kind_of(sink.catalog), sink.catalog)
    for warning in (unread_operations(mutations, sink.transforms), *dotted_names(sink.transforms), *unread):
        if warning is not None:
            log.warning(warning)


def _sorted(
    raw: Mapping[str, str], own: set[str | None]
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]], dict[str, str]]:
    """Keys for other parts, by prefix; keys of tables, by table; and the sink's own keys."""
    check_places(raw)
    handed_on: dict[str, dict[str, str]] = {prefix: {} for prefix in PREFIXES}
    tables: dict[str, dict[str, str]] = {}
    plain: dict[str, str] = {}
    for key, text in raw.items():
        prefix = max((p for p in PREFIXES if key.startswith(p) and key not in own), key=len, default=None)
        if prefix is not None:
            handed_on[prefix][key if prefix == "spark." else key.removeprefix(prefix)] = text
        elif key.startswith(_TABLE) and ("." in (rest := key.removeprefix(_TABLE)) or rest in _OF_TABLES):
            table, name = _table_and_key(rest)
            tables.setdefault(table, {})[name] = text
        else:
            plain[key] = text
    return handed_on, tables, plain


def _table_and_key(rest: str) -> tuple[str, str]:
    """A table's name, and the name of its key: a name in ``_OF_TABLES`` may have dots, as a table's name has."""
    own = next((name for name in _DOTTED if rest.endswith(f".{name}")), None)
    table, _, name = rest.rpartition(".") if own is None else (rest.removesuffix(f".{own}"), "", own)
    return table, name


def _check_names(plain: Mapping[str, str], known: set[str | None]) -> None:
    names = sorted(name for name in known if name)
    wrong = [key for key in plain if key not in known]
    lines = []
    for key in wrong[:_MOST_SHOWN]:  # a hint takes a millisecond
        advice = next((f": {why}" for prefix, why in REFUSED.items() if key.startswith(prefix)), None)
        if (match := _BACKEND.match(key)) is not None and not any(name.startswith(match[0]) for name in names):
            advice = f": it belongs to another backend: set iceberg.control.backend = {match[1]}"
        hint = advice or meant_key(key, [*names, *_OFTEN, *PREFIXES])
        lines.append(f"unknown key '{key}'{hint or '; the page Configuration of the manual has all keys'}")
    if len(wrong) > _MOST_SHOWN:
        lines.append(f"and {len(wrong) - _MOST_SHOWN} more unknown keys")
    if lines:
        raise ConfigError("\n".join(lines))


_BACKEND = re.compile(r"iceberg\.control\.(redis|zookeeper)\.")
_OFTEN = ("kafka.bootstrap.servers", "iceberg.catalog.type", "iceberg.catalog.uri", "iceberg.catalog.warehouse")
"""Keys of other parts that a user may write without their prefix."""
_MOST_SHOWN = 50
"""The most unknown keys that an error names."""
