"""Transforms: Kafka Connect's chain model over columns. There is one module per family; transforms are found by
name.
"""

from calving.records.values import Records
from calving.transforms.interface import Predicate, Transform

__all__ = ["Predicate", "Records", "Transform"]
