"""The ZooKeeper coordination backend of calving."""

__version__ = "0.1.0"
