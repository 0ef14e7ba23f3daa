"""The commit protocol as machines that take values and return effects. No I/O, no clock, no randomness, no logging.

A driver tells a machine what has happened, and carries out the effects that it returns:

    >>> from uuid import UUID
    >>> from calving.model.events import Envelope, StartCommit
    >>> from calving.model.offsets import TopicPartition
    >>> from calving.protocol.positions import Position
    >>> from calving.protocol.worker import BatchLimits, BatchOutcome, WorkerMachine
    >>> orders = TopicPartition("orders", 0)
    >>> worker = WorkerMachine(BatchLimits(records=100, bytes=1_000_000))
    >>> worker.assigned({orders: Position(stored=40, next=40)})
    >>> print(*worker.tick({orders: 140}))
    RunBatch 1: orders-0 [40, 140)
    >>> worker.finished(1, BatchOutcome({}, {orders: 1_000_000}, 100, 9000))
    >>> worker.heard(Envelope(0, 7, StartCommit(UUID(int=1))))
    >>> print(*worker.tick({orders: 150}))
    RunBatch 2: orders-0 [140, 150)
    >>> worker.finished(2, BatchOutcome({}, {orders: 2_000_000}, 10, 900))
    >>> (publish,) = worker.tick({orders: 150})
    >>> print(publish.publication.advances[orders])
    Advance(start=40, end=150)

The page "The two driver loops" has the loops of worker and coordinator. The same machines run in the simulation.
"""
