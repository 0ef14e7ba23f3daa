"""Digests of the settings that decide what is committed, by which workers notice that theirs differ.

The values are those that the sink uses, so ``${env:...}`` counts by what it stands for. What looks like a secret is
left out, and so is a login in a URL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace

from pydantic import BaseModel

from calving.model.forms import NEWEST
from calving.model.members import MOST_KEYS, Member, digest
from calving.model.record_path import TransformSpec
from calving.model.text import printable
from calving.secrets import public_text
from calving.settings.load import Sink

_LONGEST = 200
"""The longest host, file and key that is sent."""
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
    "iceberg.source.auto-offset-reset",
)
"""Prefixes of the keys that decide which rows are committed, to which tables, and as what."""


def described(sink: Sink, version: str, host: str, file: str) -> Member:
    """This worker with all that it tells of itself if workers disagree."""
    keys = digests(sink)
    settings = digest(sorted(keys.items()), 16)
    whole = Member(version, settings, NEWEST, printable(host, _LONGEST), printable(file, _LONGEST), keys)
    return whole.within(MOST_KEYS)


def digests(sink: Sink) -> dict[str, str]:
    """A digest of each setting with another value than its default, by its key."""
    values = {key: value for key, value in _set(sink.keys) if key.startswith(COMMITTED)}
    for name, table in sink.tables.items():
        own = (pair for pair in _set(table) if not pair[0].startswith("maintenance."))
        values |= {f"iceberg.table.{name}.{key}": value for key, value in own}
    values |= {key: public_text(key, text) for key, text in _handed_on(sink)}
    values |= {f"transforms.{step.name}": _public(step) for step in sink.transforms}
    return {printable(key, _LONGEST): digest([key, value], 8) for key, value in sorted(values.items())}


def _public(step: TransformSpec) -> dict[str, object]:
    """A step of the chain without what looks like a secret."""

    def options(given: Mapping[str, str]) -> dict[str, str]:
        return {key: public_text(key, text) for key, text in given.items()}

    predicate = step.predicate and replace(step.predicate, options=options(step.predicate.options))
    return asdict(replace(step, options=options(step.options), predicate=predicate))


def _set(keys: BaseModel) -> Iterator[tuple[str, object]]:
    """The keys with another value than their default."""
    yield from keys.model_dump(by_alias=True, exclude_defaults=True, mode="json", fallback=repr).items()


def _handed_on(sink: Sink) -> Iterator[tuple[str, str]]:
    """The keys of properties and converters, with their values as the sink hands them on."""
    for prefix, properties in (
        ("iceberg.catalog.", sink.catalog),
        ("iceberg.tables.auto-create-props.", sink.create_properties),
        ("iceberg.tables.write-props.", sink.write_properties),
    ):
        yield from ((prefix + name, text) for name, text in properties.items())
    for topic, both in sink.converters.items():
        prefix = f"iceberg.topic.{topic}." if topic else ""
        for which, spec in (("key.converter", both.key), ("value.converter", both.value)):
            yield prefix + which, spec.name
            yield from ((f"{prefix}{which}.{name}", text) for name, text in spec.options.items())
