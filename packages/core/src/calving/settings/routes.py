"""Checks of the routes from topics to tables: a mistake there sends records to no table, or drops a table's keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from calving.errors import ConfigError
from calving.model.tables import is_table_name
from calving.settings.keys import SinkKeys, TableKeys
from calving.wording import meant

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
