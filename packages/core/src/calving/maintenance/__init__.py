"""Maintenance of tables beside the sinks that write them: no row changes.

Small files of a partition become a large one, which readers open faster::

    compactor = Compactor(catalog, ("db", "orders"), key, engine(), triggers)
    for group in compactor.plan(table, now_ms).groups:   # plan.py: files that are due, and why
        done = compactor.compact(group)                  # rewritten, and committed as one snapshot

``rewrite`` writes the live rows of a group in their order (``rows`` and ``avro`` read them). Meanwhile the sink may
commit. So ``compaction`` looks at each head on which the commit is attempted: rows that were deleted since are deleted
in the new files, too, at the positions that ``translate`` finds.
"""
