"""The source: membership in the consumer group, the bounds of topics, and how tasks read them.

The driver's consumer only keeps its place in the group. Tasks read ranges of offsets, without a group::

    group.poll(seconds, listener)      # the driver: assigned, revoked and lost partitions
    group.bounds(partitions)           # begins and last stable offsets
    with closing(reader.read(ranges)) as blocks:
        for block in blocks:           # a task: values, keys, offsets, timestamps and headers, as columns
            ...

``interface`` and ``reading`` are what other packages see of it. ``opening`` chooses the implementation: with Rust a
block is Arrow columns from the start, otherwise it has an object for each message.
"""
