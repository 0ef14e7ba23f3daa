"""The Redis coordination backend of calving: the control log is a stream.

Each publication is one Lua script, which checks the claim and the stored positions, and then writes everything, or
nothing. Offsets come from the server's clock, so that none is given twice after a failover. A lease elects the leader;
its epoch is checked in the scripts. A sink chooses it with its name and an address::

    "iceberg.control.backend" = "redis"
    "iceberg.control.redis.url" = "redis://localhost:6379"
"""

__version__ = "0.2.0.dev0"
