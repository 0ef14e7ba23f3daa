"""Registers the backend."""

from calving.backend.hooks import hookimpl
from calving.backend.interface import Backend
from calving_zookeeper.backend import ZooKeeperBackend


@hookimpl
def calving_register_backend() -> type[Backend]:
    return ZooKeeperBackend
