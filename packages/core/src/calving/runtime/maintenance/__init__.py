"""The tasks of maintenance for the tables of a sink, in one order for all who drive them (K1).

``calving maintain`` drives them in a process of its own, and the leader of a sink beside its commits (``leader``)::

    maintainer = Maintainer(sink, order, holder, means)   # means: catalog, key cache, turns of commits, and so on
    with maintainer.round(now_ms) as run:
        for step in run("db.orders"):                     # bounds, deletes, compact, manifests, expire, orphans
            print(step.line())

``continuous`` takes the next step of each table when its pause is over (``watch``), while this one has the lease. Each
other module is a task: what it found, and did, as steps for people and programs.
"""
