"""Keys of the record path: converters by topic, and the chain of transforms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calving.errors import ConfigError
from calving.model.record_path import ConverterSpec, PredicateSpec, TopicConverters, TransformSpec


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
            raise ConfigError(f"transforms.{name}.predicate: there is no predicate '{wanted}' among predicates")
        if negate not in ("true", "false") or (negate == "true" and wanted is None):
            raise ConfigError(f"transforms.{name}.negate: true or false, and only with a predicate")
        chain.append(
            TransformSpec(name, kind, options, None if wanted is None else predicates[wanted], negate == "true")
        )
    return tuple(chain)


def _by_name(what: str, names: Sequence[str], keys: Mapping[str, str]) -> dict[str, tuple[str, dict[str, str]]]:
    options_of: dict[str, dict[str, str]] = {name: {} for name in names}
    for key, text in keys.items():
        name = next((n for n in options_of if key.startswith(f"{n}.")), None)
        if name is None:
            raise ConfigError(f"unknown key '{what}.{key}': '{key.split('.')[0]}' is not among {what}")
        options_of[name][key.removeprefix(f"{name}.")] = text
    for name, options in options_of.items():
        if "type" not in options:
            raise ConfigError(f"{what}.{name}.type is missing")
    return {name: (options.pop("type"), options) for name, options in options_of.items()}
