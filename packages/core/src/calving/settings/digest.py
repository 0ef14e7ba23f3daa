"""Digests of the settings that decide what is committed, by which workers notice that theirs differ.

The values are those that the sink uses: ``${env:...}`` counts by what it stands for, and a default that is written out
counts as if it were not. What looks like a secret is left out, and so is a login in a URL. A value that nobody knows to
be harmless has a digest of 8 bits: it tells next to nothing of a password, and 255 of 256 differences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import cast

from pydantic import BaseModel

from calving.converters.interface import effective
from calving.model.forms import NEWEST
from calving.model.members import MOST_KEYS, Member, digest, told_key
from calving.model.record_path import TransformSpec
from calving.model.tables import MAIN
from calving.model.text import printable
from calving.secrets import is_harmless, public_text
from calving.settings.deciding import DEFAULTS_OF
from calving.settings.keys import SinkKeys, TableKeys
from calving.settings.load import Sink

_LONGEST = 200
"""The longest host and file that is sent."""
_LETTERS, _LETTERS_UNKNOWN = 8, 2
"""The hexadecimal letters of a digest, and of the digest of a value that nobody knows to be harmless."""
COMMITTED = (
    "topics",
    "iceberg.table.",
    "iceberg.tables",
    "iceberg.topic.",
    "iceberg.catalog",
    "iceberg.limits.",
    "key.converter",
    "value.converter",
    "transforms",
    "predicates",
    "errors.tolerance",
    "errors.deadletterqueue.",
    "iceberg.source.on-data-loss",
    "iceberg.source.start",
)
"""Prefixes of the keys that decide which rows are committed, to which tables, and as what."""
_IDLE = {"iceberg.tables.look-ms"}
"""Keys among them that decide nothing of it."""
_SETS = {"topics", "iceberg.tables"}
"""Lists whose order has no effect."""


def described(sink: Sink, version: str, host: str, file: str, member: str = "") -> Member:
    """This worker with all that it tells of itself if workers disagree. ``member``: the process, as the control log
    names it.
    """
    keys = digests(sink)
    settings = digest(sorted(keys.items()), 16)
    whole = Member(version, settings, NEWEST, printable(host, _LONGEST), printable(file, _LONGEST), keys, id=member)
    return whole.within(MOST_KEYS)


def digests(sink: Sink) -> dict[str, str]:
    """A digest of each setting with which the sink does something else than without it, by its key."""
    values = _of_sink(sink.keys)
    for name, table in sink.tables.items():
        values |= {f"iceberg.table.{name}.{key}": setting for key, setting in _of_table(sink.keys, table).items()}
    values |= {key: public_text(key, text) for key, text in _handed_on(sink)}
    steps = {f"transforms.{step.name}": step for step in sink.transforms}
    values |= {key: _public(step) for key, step in steps.items()}
    unknown = {key for key in values if key not in steps and not is_harmless(key)}
    unknown |= {key for key, step in steps.items() if not all(map(is_harmless, _options(step)))}
    letters = {key: _LETTERS_UNKNOWN if key in unknown else _LETTERS for key in values}
    return {told_key(key): digest([key, setting], letters[key]) for key, setting in sorted(values.items())}


def _of_sink(keys: SinkKeys) -> dict[str, object]:
    """The sink's own keys."""
    values = dict(_set(keys))
    default, own = _of_every_table(SinkKeys.model_construct(name="")), _of_every_table(keys)
    for field in default.keys() - _told(default, own):
        values.pop(str(SinkKeys.model_fields[DEFAULTS_OF[field]].alias), None)
    for key in _SETS & values.keys():
        values[key] = sorted(cast("list[str]", values[key]))
    return {key: setting for key, setting in values.items() if key.startswith(COMMITTED) and key not in _IDLE}


def _of_table(keys: SinkKeys, table: TableKeys) -> dict[str, object]:
    """A table's own keys."""
    given = {field: setting for field, setting in _dumped(table).items() if setting is not None}
    told = _told(_of_every_table(keys), given)
    values = {
        field: setting for field, setting in given.items() if (field in told if field in DEFAULTS_OF else setting)
    }
    by_key = {str(TableKeys.model_fields[field].alias): setting for field, setting in values.items()}
    return {key: setting for key, setting in by_key.items() if not key.startswith("maintenance.")}


def _of_every_table(keys: SinkKeys) -> dict[str, object]:
    """What the sink's keys say for tables without keys of their own, by the fields of these."""
    values = _dumped(keys)
    return {field: values[default] for field, default in DEFAULTS_OF.items()}


def _told(default: Mapping[str, object], own: Mapping[str, object]) -> set[str]:
    """The fields that ``own`` gives, and with which a table is another than without them."""
    whole = {**default, **own}
    without = {field: {**whole, field: default[field]} for field in own.keys() & default.keys()}
    return {field for field, values in without.items() if _used(whole)[field] != _used(values)[field]}


def _used(values: Mapping[str, object]) -> dict[str, object]:
    """The values with what the sink does where they say nothing."""
    inserts = "upsert" if values["row_deletes"] == "positions" else "append"
    on_rollback = "stop" if values["upsert"] or values["cdc_field"] else "continue"
    empty = {"commit_branch": MAIN, "cdc_field": None, "order_field": None, "truncate_field": None, "inserts": inserts}
    empty["on_rollback"] = on_rollback
    return {field: setting or empty.get(field, setting) for field, setting in values.items()}


def _public(step: TransformSpec) -> dict[str, object]:
    """A step of the chain without what looks like a secret."""

    def options(given: Mapping[str, str]) -> dict[str, str]:
        return {key: public_text(key, text) for key, text in given.items()}

    predicate = step.predicate and replace(step.predicate, options=options(step.predicate.options))
    return asdict(replace(step, options=options(step.options), predicate=predicate))


def _options(step: TransformSpec) -> Iterator[str]:
    """The keys of a step's options."""
    yield from (f"transforms.{step.name}.{option}" for option in step.options)
    if step.predicate is not None:
        yield from (f"predicates.any.{option}" for option in step.predicate.options)


def _set(keys: BaseModel) -> Iterator[tuple[str, object]]:
    """The keys with another value than their default."""
    yield from keys.model_dump(by_alias=True, exclude_defaults=True, mode="json", fallback=repr).items()


def _dumped(keys: BaseModel) -> dict[str, object]:
    """All values, by field."""
    return keys.model_dump(mode="json", fallback=repr)


def _handed_on(sink: Sink) -> Iterator[tuple[str, str]]:
    """The keys of properties and converters, with their values as the sink hands them on."""
    for prefix, properties in (
        ("iceberg.catalog.", sink.catalog),
        ("iceberg.tables.auto-create-props.", sink.create_properties),
        ("iceberg.tables.write-props.", sink.write_properties),
    ):
        yield from ((prefix + name, text) for name, text in properties.items())
    default = sink.converters[""]
    for topic, both in sink.converters.items():
        prefix = f"iceberg.topic.{topic}." if topic else ""
        pairs = ("key.converter", both.key, default.key), ("value.converter", both.value, default.value)
        for which, spec, usual in ((which, effective(spec), effective(usual)) for which, spec, usual in pairs):
            if not topic or spec != usual:
                yield prefix + which, spec.name
                yield from ((f"{prefix}{which}.{name}", text) for name, text in spec.options.items())
