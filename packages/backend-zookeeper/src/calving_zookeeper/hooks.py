"""Registers the backend."""

from calving.backend import Backend, hookimpl
from calving_zookeeper.backend import ZooKeeperBackend


@hookimpl
def calving_register_backend() -> type[Backend]:
    return ZooKeeperBackend
