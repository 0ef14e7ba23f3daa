"""Iceberg through pyiceberg 0.12: catalogs, tables, and calving's commits.

One commit of one table, with the loop of ``protocol.commit`` around it::

    target = IcebergTarget(catalog, ("db", "orders"), "main", key, summary)
    settled = CommitLoop(target, key, max_tries=20).settle(entries, read, progress)

1. ``load``: the table, and its ledger, which says which entries it holds.
2. ``attempt``: manifests and a snapshot with the files of the other entries, committed once, with the requirements
   that the branch and the table are still those.
3. If the outcome is not success, ``load`` again, and look whether one of the attempts has landed. If not, start over.

``tables`` loads tables and changes their schemas for batches, ``resolution`` finds the rows that changes delete,
``parking`` keeps commits of failing tables, and ``maintenance`` serves ``calving maintain``.
"""
