"""Values shared by every part of calving. No I/O, no clock, no randomness.

The most common ones: a partition of a topic, a span of offsets, and a coverage, the spans of each partition:

    >>> from calving.model.offsets import Span, TopicPartition, less, union
    >>> orders = TopicPartition("orders", 0)
    >>> read = union({orders: (Span(0, 10),)}, {orders: (Span(10, 15),)})
    >>> print(*read[orders])
    [0, 15)
    >>> print(*less(read, {orders: (Span(4, 6),)})[orders])
    [0, 4) [6, 15)

All are immutable, compare by value, and print as one line. ``events`` has the five events of the protocol.
"""
