"""Converts settings into the arguments of the parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from calving.converters.registry import converter
from calving.iceberg.rules import TableRules, TableSettings
from calving.model.coverage import Coverage, present
from calving.model.offsets import named
from calving.model.record_path import Evolution, Limits, RecordPath, RouteRule, Routing, Tolerance
from calving.runtime.preflight import ledger_key
from calving.settings.load import Sink
from calving.source.interface import Source
from calving.transforms.chain import Chain


def check_record_path(sink: Sink) -> None:
    """Make every converter and transform once, to find wrong options at the start.

    :raises ConfigError: a converter or transform cannot be made.
    """
    Chain(sink.transforms)
    for found in sink.converters.values():
        converter(found.value.name, found.value.options, is_key=False)
        converter(found.key.name, found.key.options, is_key=True)


def record_path(sink: Sink) -> RecordPath:
    """The settings of every task."""
    keys = sink.keys
    return RecordPath(
        sink.kafka,
        Routing(
            tuple(
                RouteRule(name, sink.tables[name].route_regex if name in sink.tables else None) for name in keys.tables
            ),
            field=keys.route_field,
            dynamic=keys.dynamic,
            topic_pattern=keys.topic_pattern,
            topic_regex=keys.topic_regex,
            unrouted=keys.on_unrouted,
            missing_table=keys.on_missing_table,
        ),
        Evolution(create=keys.auto_create, evolve=keys.evolve, case_insensitive=keys.case_insensitive),
        sink.converters,
        sink.transforms,
        _tolerance(sink),
        Limits(
            record_bytes=keys.record_bytes,
            nesting=keys.nesting,
            learned_names=keys.learned_names,
            new_columns=keys.new_columns,
            columns=keys.columns,
        ),
    )


def _tolerance(sink: Sink) -> Tolerance:
    keys = sink.keys
    if keys.errors_tolerance == "none":
        return Tolerance()
    to: Literal["topic", "table"] = "topic" if keys.dead_letter_topic is not None else "table"
    return Tolerance(to, keys.dead_letter_table, keys.errors_per_batch, sink.replayed)


def _left_out(sink: Sink, topics: Source) -> Callable[[str, Mapping[str, str]], Coverage]:
    def look(name: str, properties: Mapping[str, str]) -> Coverage:
        found = ledger_key(sink, "", name).left_out(properties)
        return present(found, topics.identities({named(tp).topic for tp in found})) if found else {}

    return look


def table_rules(sink: Sink, topics: Source) -> TableRules:
    """The rules by which the sink's tables are created and written."""
    keys = sink.keys
    types = dict(keys.default_columns)
    defaults = TableSettings(
        keys.default_partition_by, keys.default_id_columns, mutations=sink.mutations(""), types=types
    )
    tables = {
        name: TableSettings(
            defaults.partition_by if t.partition_by is None else t.partition_by,
            defaults.id_columns if t.id_columns is None else t.id_columns,
            t.location,
            sink.mutations(name),
            dict(t.columns),
            types,
        )
        for name, t in sink.tables.items()
    }
    if keys.dead_letter_table is not None:
        tables[keys.dead_letter_table] = replace(
            tables.get(keys.dead_letter_table, defaults), mutations=None, columns={}, types={}
        )
    return TableRules(
        sink.write_properties,
        sink.create_properties,
        tables,
        defaults,
        keys.force_optional,
        _left_out(sink, topics),
        keys.case_insensitive,
        keys.new_columns,
        keys.columns,
        keys.type_share,
        keys.errors_tolerance == "all",
    )
