"""Keys of the record path: converters by topic, and the chain of transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calving.errors import ConfigError
from calving.model.record_path import ConverterSpec, PredicateSpec, TopicConverters, TransformSpec
from calving.wording import meant, missing


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
