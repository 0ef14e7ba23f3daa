"""The drivers, which carry out the effects of the protocol's machines. ``app`` wires the drivers together.

The life of a worker process::

    preflight: is it safe to start here?            # preflight.py, checks.py
    until stopped:                                  # app.py: errors decide between another attempt and the end
        attempt: session, cursor, machine           # attempt.py: thrown away after any error
        step the worker loop                        # worker.py; batches run on a thread of their own, batch.py
        if this worker leads: coordinator loop      # leading.py, coordinator.py, on another thread
    publish what has finished, and leave the group  # a clean stop

``watch`` ends a process that makes no progress. The page "The two driver loops" has the loops in short.
"""
