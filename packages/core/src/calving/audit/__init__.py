"""Judges tables: metadata, manifests, files and ledgers, read from storage as the specification defines them.

Shares no code with what writes, commits, or reads ledgers, so that a fault there is no fault here as well. ``table.py``
is the loop::

    for snapshot in the table, parents first:    # metadata.py judges what needs no other file
        for manifest in its list:                # entries.py reads both, manifests.py judges each manifest once
            for file in the manifest:            # content.py and deletes.py, several files at the same time
                rows, bytes, and columns as the entry says
        its files are those of its parent, with the added and without the deleted ones   # snapshots.py
    for sink in the ledgers of each branch:      # ledgers.py reads them, lines.py judges one line
        no snapshot holds less than the one below, nor has it more rows than it has taken offsets

A set of files is a sum of digests, and a manifest some numbers for each entry, so that memory is bounded.
"""
