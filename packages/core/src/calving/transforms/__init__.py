"""Transforms: the Kafka Connect chain model over columns. One file per family, found by name."""

from calving.records.values import Records
from calving.transforms.interface import Predicate, Transform

__all__ = ["Predicate", "Records", "Transform"]
