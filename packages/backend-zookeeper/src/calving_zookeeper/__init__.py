"""The ZooKeeper coordination backend of calving."""

__version__ = "0.2.0.dev0"
