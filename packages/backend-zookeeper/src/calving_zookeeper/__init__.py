"""The ZooKeeper coordination backend of calving: the control log is a list of numbered znodes.

Each publication is one ``multi``: version checks, the stored positions, and the entries, of which large ones are
divided into several znodes that appear together. Ephemeral znodes elect the leader; its epoch is a check in the
``multi``. A sink chooses it with its name and an address::

    "iceberg.control.backend" = "zookeeper"
    "iceberg.control.zookeeper.hosts" = "localhost:2181"
"""

__version__ = "0.2.0.dev0"
