"""The status of a sink: one immutable value. The loops replace it, and the presenters read it.

``values`` has the value, ``board`` the place where the loops put it, and ``health`` the question whether the sink is
well, as pure functions::

    board.worker(worker_status, log_status)       # each loop, after a step that has changed something
    status = board.status                         # page, metrics, webhook and live view read the same value
    for reason in reasons(status, now):           # none, or why the sink is DEGRADED: a cause and a sentence
        ...

Every cause of DEGRADED has one name and one sentence, wherever it is shown.
"""
