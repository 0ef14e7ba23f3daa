"""The Kafka coordination backend of calving: the control log is a topic.

One transaction holds the events, the dead letters and the stored positions of a publication. The broker checks the
membership of its sender, and the session compares the positions before, under the same claim (B2). The transactional
id of the coordinator is one per sink, so a new coordinator fences the former one. A sink chooses it with its name::

    "iceberg.control.backend" = "kafka"
    "iceberg.control.topic" = "control-orders"
"""

__version__ = "0.2.0.dev0"
