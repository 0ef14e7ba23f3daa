"""Maintenance of tables beside the sinks that write them: no row changes.

Small files of a partition become a large one, which readers open faster::

    compactor = Compactor(catalog, ("db", "orders"), key, engine(), triggers)
    for group in compactor.plan(table, now_ms).groups:   # plan.py: files that are due, and why
        done = compactor.compact(group)                  # rewritten, and committed as one snapshot

``rewrite`` writes the live rows of a group (``rows`` and ``avro`` read them): in their order, or sorted as ``strategy``
says (``external_sort``, ``z_order``), and by their partitions of now. Meanwhile the sink may commit. So ``compaction``
looks at each head on which the commit is attempted: rows that were deleted since are deleted in the new files, too, at
the positions that ``translate`` finds. For rows in another order it asks the ``permutation``.
"""
