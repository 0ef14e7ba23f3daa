"""Transforms and predicates by name: ours, Kafka Connect's class names, entry points, ``module:function``."""

from __future__ import annotations

from collections.abc import Mapping

from calving.data.spec import PredicateSpec
from calving.data.transforms.interface import Predicate, Transform
from calving.errors import ConfigError


def transform(name: str, kind: str, options: Mapping[str, str]) -> Transform:
    raise ConfigError(f"transforms.{name}.type: there is no transform '{kind}'")


def predicate(name: str, spec: PredicateSpec) -> Predicate:
    raise ConfigError(f"transforms.{name}.predicate: there is no predicate '{spec.type}'")
