"""The converters by name; Connect class names of a configuration that was taken over map to ours."""

from __future__ import annotations

from collections.abc import Mapping

from calving.data.converters.interface import ValueConverter
from calving.data.converters.json import JsonConverter
from calving.errors import ConfigError

CONVERTERS: dict[str, type[ValueConverter]] = {"json": JsonConverter}
ALIASES = {"org.apache.kafka.connect.json.JsonConverter": "json"}


def converter(name: str, options: Mapping[str, str]) -> ValueConverter:
    """:raises ConfigError: there is no such converter."""
    found = CONVERTERS.get(ALIASES.get(name, name))
    if found is None:
        raise ConfigError(f"value.converter: there is no converter '{name}'; there are: {', '.join(CONVERTERS)}")
    return found(options)
