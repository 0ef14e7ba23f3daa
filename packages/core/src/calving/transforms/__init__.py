"""Transforms: Kafka Connect's chain model over columns. There is one module per family; transforms are found by
name.

``chain`` applies the transforms of the settings one after the other, each behind its predicate, to a block of records::

    chain = Chain(specs)                  # in the order of the key ``transforms``
    transformed = chain.apply(records)    # columns: value, key, topic, timestamp, headers
    transformed.records                   # one part for each shape of values
    transformed.dropped, transformed.bad  # counts by cause; and bad records, with their reasons

What becomes of a record depends on that record alone, never on its neighbours: ``calving.testing.TransformContract``
checks it, for transforms of other packages, too.
"""

from calving.records.values import Records
from calving.transforms.interface import Predicate, Transform

__all__ = ["Predicate", "Records", "Transform"]
