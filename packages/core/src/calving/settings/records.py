"""Keys of the record path: converters by topic, the chain of transforms with their options, routes, and the mutation
settings of tables. A mistake in the routes sends records to no table, or drops a table's keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from calving.errors import ConfigError
from calving.model.record_path import ConverterSpec, PredicateSpec, TopicConverters, TransformSpec
from calving.model.table_names import is_table_name
from calving.model.tables import MAIN, Branches, RowMutations
from calving.settings.keys import MUTATIONS, SinkKeys, TableKeys
from calving.settings.row_mutations import row_mutations
from calving.wording import meant, missing

_READ: Mapping[str, tuple[str, ...]] = {
    "Cast": ("spec",),
    "CopyValue": ("source.field",),
    "ExtractField": ("field",),
    "HeaderFrom": ("fields",),
    "MaskField": ("fields",),
    "ReplaceField": ("exclude", "include", "blacklist", "whitelist", "renames"),
    "TimestampConverter": ("field",),
    "ValueToKey": ("fields",),
}
"""The options that name fields of records, by transform. In lists of pairs the name is before the colon."""
_PATHS = "field.syntax.version"
"""The option of ExtractField that makes its field a path."""


def dotted_names(chain: Sequence[TransformSpec]) -> Iterator[str]:
    """Warnings about names with a dot, which many take for a path. As in Kafka Connect, each is the name of one field
    at the top of a record, and without such a field the transform has no effect. There are none behind a step that may
    make fields of such names.
    """
    for step in chain:
        kind = _short(step.type)
        if kind == "Sql" or ":" in step.type or (kind == "Flatten" and "." in step.options.get("delimiter", ".")):
            return
        if _PATHS in step.options:
            continue
        for option in _READ.get(kind, ()):
            names = [name.split(":")[0].strip() for name in step.options.get(option, "").split(",")]
            yield from (_warning(step.name, kind, option, name) for name in names if "." in name.strip("."))


def _short(kind: str) -> str:
    return kind.rpartition(".")[2].partition("$")[0]


def _warning(step: str, kind: str, option: str, name: str) -> str:
    around, _, inner = name.rpartition(".")
    remedy = f"set transforms.{step}.{_PATHS} = V2" if kind == "ExtractField" else "put the transform Flatten before it"
    return (
        f"transforms.{step}.{option}: '{name}' is the name of one field, with a dot in it; the transform does not reach"
        f" a field '{inner}' of an object '{around}'. If you mean that field, {remedy}"
    )


_TABLE = "iceberg.table."


def check_routes(keys: SinkKeys, tables: Mapping[str, TableKeys], topics: Collection[str]) -> None:
    """``topics``: those with converters of their own.

    :raises ConfigError: keys belong to a table or a topic that the sink does not have, or no record would go to a
        table.
    """
    _check_sections(keys, tables, topics)
    for name, own in tables.items():
        if own.route_regex is not None and keys.route_field is None:
            raise ConfigError(f"{_TABLE}{name}.route-regex has no effect without iceberg.tables.route-field")
    if keys.route_field is not None and not keys.dynamic:
        for name in keys.tables:
            if name not in tables or tables[name].route_regex is None:
                raise ConfigError(
                    f"{_TABLE}{name}.route-regex is missing: with iceberg.tables.route-field = {keys.route_field} a"
                    " table gets the records whose field matches it, and this one none"
                )
    if keys.topic_pattern is not None and keys.topics:
        _check_pattern(keys, keys.topic_pattern)


def _check_sections(keys: SinkKeys, tables: Mapping[str, TableKeys], topics: Collection[str]) -> None:
    known = [*keys.tables, *filter(None, [keys.dead_letter_table])]
    for name in tables:
        if not name:
            key = next(str(TableKeys.model_fields[field].alias) for field in tables[name].model_fields_set)
            raise ConfigError(
                f"unknown key '{_TABLE}{key}': the key of a table has the table's name, as {_TABLE}db.events.{key}"
            )
        if not is_table_name(name):
            raise ConfigError(
                f"{_TABLE}{name}: '{name}' is no table's name with its namespace: write the keys of a table as"
                f" {_TABLE}db.events.partition-by"
            )
        if not keys.routes_freely and name not in known:
            hint = meant(name, known, 0.6) or "; add it there, or remove its keys"
            raise ConfigError(f"{_TABLE}{name}: the table '{name}' is not among iceberg.tables{hint}")
    for topic in topics:
        if keys.topics and topic not in keys.topics:
            hint = meant(topic, keys.topics, 0.6) or "; add it there, or remove its keys"
            raise ConfigError(f"iceberg.topic.{topic}: the topic '{topic}' is not among topics{hint}")


def _check_pattern(keys: SinkKeys, pattern: str) -> None:
    """:raises ConfigError: no topic matches, or the name of a topic's table would be none."""
    from calving.records.regex import Regex, template  # it imports Arrow, which would delay a start

    regex = Regex(keys.topic_regex if keys.topic_regex is not None else "(?s).*")
    parts = template(pattern, regex)
    tables = {topic: regex.written(topic, parts) for topic in keys.topics}
    if not any(tables.values()):
        raise ConfigError(
            f"iceberg.tables.topic-regex: '{keys.topic_regex}' matches none of the topics in full: correct it, or no"
            " record goes to a table"
        )
    for topic, table in tables.items():
        if table is not None and not is_table_name(table.lower()):
            raise ConfigError(
                f"iceberg.tables.topic-pattern: '{pattern}' makes '{table}' of topic '{topic}', which is no table's"
                " name with its namespace: write a namespace before it, such as lake.{topic}"
            )


def converters(key: ConverterSpec, value: ConverterSpec, by_topic: Mapping[str, str]) -> dict[str, TopicConverters]:
    """The default converters under "", and the converters of single topics under their names.

    :raises ConfigError: a key under ``iceberg.topic.`` is not one of a converter.
    """
    topics: dict[str, dict[str, str]] = {}
    for name, text in by_topic.items():
        for part in (".key.converter", ".value.converter"):
            topic, separator, rest = name.partition(part)
            if separator and topic and (not rest or rest.startswith(".")):
                topics.setdefault(topic, {})[part[1:] + rest] = text
                break
        else:
            raise ConfigError(
                f"unknown key 'iceberg.topic.{name}': a topic's keys are iceberg.topic.<topic>.value.converter,"
                " .key.converter, and their options"
            )
    return {"": TopicConverters(key, value)} | {
        topic: TopicConverters(_of_topic("key.converter", key, keys), _of_topic("value.converter", value, keys))
        for topic, keys in topics.items()
    }


def _of_topic(which: str, default: ConverterSpec, keys: Mapping[str, str]) -> ConverterSpec:
    """The converter of a topic. A topic with its own converter inherits no options. Without one, the topic's options
    override the sink's options.
    """
    options = {name.removeprefix(f"{which}."): text for name, text in keys.items() if name.startswith(f"{which}.")}
    if which in keys:
        return ConverterSpec(keys[which], options)
    return ConverterSpec(default.name, {**default.options, **options})


def transforms(
    names: Sequence[str],
    predicate_names: Sequence[str],
    transform_keys: Mapping[str, str],
    predicate_keys: Mapping[str, str],
) -> tuple[TransformSpec, ...]:
    """The chain of transforms.

    :raises ConfigError: a transform or predicate lacks its type, or a key belongs to no transform or predicate.
    """
    predicates = {
        name: PredicateSpec(kind, options)
        for name, (kind, options) in _by_name("predicates", predicate_names, predicate_keys).items()
    }
    chain = []
    for name, (kind, options) in _by_name("transforms", names, transform_keys).items():
        wanted = options.pop("predicate", None)
        negate = options.pop("negate", "false").lower()
        if wanted is not None and wanted not in predicates:
            hint = meant(wanted, predicate_names, 0.6) or "; add it to the key predicates"
            raise ConfigError(f"transforms.{name}.predicate: '{wanted}' is not among predicates{hint}")
        if negate not in ("true", "false"):
            raise ConfigError(f"transforms.{name}.negate: must be true or false (given: '{negate}')")
        if negate == "true" and wanted is None:
            raise ConfigError(f"transforms.{name}.negate = true needs transforms.{name}.predicate")
        chain.append(
            TransformSpec(name, kind, options, None if wanted is None else predicates[wanted], negate == "true")
        )
    _check_order(chain)
    return tuple(chain)


_EVENTS = ("DebeziumTransform", "DmsTransform")
"""Transforms that make rows of a database's events; each reads fields that no row has."""


def _check_order(chain: Sequence[TransformSpec]) -> None:
    """:raises ConfigError: a transform stands where it finds no record that it can read, whatever the topics hold."""
    kinds = {step.type.rpartition(".")[2].partition("$")[0]: step for step in chain if step.predicate is None}
    order = [*kinds]
    events = [kind for kind in order if kind in _EVENTS]
    if len(events) > 1:
        raise ConfigError(
            f"transforms: '{kinds[events[0]].name}' makes rows of events, so '{kinds[events[1]].name}' finds none:"
            " keep one, or give each a predicate"
        )
    for event in events:
        for first, last in (("MongoDebeziumTransform", event), (event, "Flatten")):
            if first in order and last in order and order.index(first) > order.index(last):
                raise ConfigError(
                    f"transforms: '{kinds[first].name}' ({first}) finds no events after '{kinds[last].name}' ({last}):"
                    " change their order"
                )


def _by_name(what: str, names: Sequence[str], keys: Mapping[str, str]) -> dict[str, tuple[str, dict[str, str]]]:
    options_of: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, text in keys.items():
        name = next((n for n in options_of if key.startswith(f"{n}.")), None)
        if name is None:
            other = key.split(".")[0]
            hint = meant(other, names, 0.6) or f"; add it to the key {what}, or remove the key"
            raise ConfigError(f"unknown key '{what}.{key}': '{other}' is not among {what}{hint}")
        options_of[name][key.removeprefix(f"{name}.")] = text
    for name, options in options_of.items():
        if "type" not in options:
            hint = missing("type", options, f"{what}.{name}.")
            raise ConfigError(f"{what}.{name}.type is missing{hint or f': name the class of {name}'}")
    return {name: (options.pop("type"), options) for name, options in options_of.items()}


def branches(keys: SinkKeys, tables: Mapping[str, TableKeys]) -> Branches:
    """The branches to which the sink commits."""
    own = {tuple(name.split(".")): table.commit_branch for name, table in tables.items()}
    return Branches(keys.default_branch or MAIN, {table: branch for table, branch in own.items() if branch})


def check_idle_defaults(keys: SinkKeys, mutations: Collection[RowMutations | None]) -> None:
    """:raises ConfigError: a key says how rows change, and no table has rows that change so. ``mutations``: of all
    tables.
    """
    given = [name for name in MUTATIONS if name in keys.model_fields_set and getattr(keys, name)]
    if given and not any(mutations):
        alias = SinkKeys.model_fields[given[0]].alias
        raise ConfigError(
            f"{alias} has no effect without iceberg.tables.cdc-field or iceberg.tables.upsert-mode-enabled = true"
        )
    if keys.truncate_field and not any(each is not None and each.truncate_field for each in mutations):
        raise ConfigError("iceberg.tables.truncate-field has no effect without on-truncate = delete")


def check_routed_tables(keys: SinkKeys, tables: Mapping[str, TableKeys], create_properties: Mapping[str, str]) -> None:
    """Check the defaults with dynamic routing: the sink creates tables that are not in the settings.

    :raises ConfigError: records could not change the rows of such tables.
    """
    mutations = row_mutations(keys)
    if mutations is None or not keys.auto_create or not keys.routes_freely:
        return
    if not keys.default_id_columns and not any(own.id_columns for own in tables.values()):
        key = "cdc-field" if mutations.cdc_field is not None else "upsert-mode-enabled"
        raise ConfigError(
            f"iceberg.tables.{key}: the tables that records are routed to would be created without id columns, and no"
            " row could be changed: set iceberg.tables.default-id-columns, or iceberg.tables.auto-create-enabled ="
            " false"
        )
    version = create_properties.get("format-version", "")
    why = mutations.refusal(int(version)) if version.isdecimal() else None
    if why is not None:
        raise ConfigError(
            f"iceberg.tables.auto-create-props.format-version = {version}: the tables that records are routed to would"
            f" be created with it; {why}: set it to 2, or set iceberg.tables.auto-create-enabled = false"
        )


def unread_operations(mutations: Mapping[str, RowMutations | None], chain: Sequence[TransformSpec]) -> str | None:
    """The warning about tables in which deletes of a source are updates, because no cdc-field says where the transforms
    put the operation; None if there are no such tables. ``mutations``: by table, with an empty name for the defaults.
    """
    made = next((step for step in chain if step.type.rpartition(".")[2] in _MAKES_CDC), None)
    wrong = next((name for name, m in mutations.items() if m and m.cdc_field is None and m.tombstones == "skip"), None)
    if made is None or wrong is None:
        return None
    where = f"iceberg.table.{wrong}." if wrong else "iceberg.tables."
    return (
        f"{where}upsert-mode-enabled = true without a cdc-field: every event is an update, also a delete, whose row"
        f" stays; transform '{made.name}' puts the operation into _cdc.op: set {where}cdc-field = _cdc.op"
    )


_MAKES_CDC = ("DebeziumTransform", "DmsTransform")


def check_dead_letter_table(keys: SinkKeys, tables: Mapping[str, TableKeys]) -> None:
    """:raises ConfigError: the dead-letter table has keys that only tables of records have."""
    own = tables.get(keys.dead_letter_table or "")
    for name in () if own is None else ("columns", "on_type_change", *MUTATIONS):
        if getattr(own, name):
            alias = TableKeys.model_fields[name].alias
            raise ConfigError(
                f"iceberg.table.{keys.dead_letter_table}.{alias} has no effect: its columns are fixed,"
                " and the sink only adds rows to the dead-letter table"
            )
