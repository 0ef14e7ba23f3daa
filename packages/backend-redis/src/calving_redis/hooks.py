"""Registers the backend."""

from calving.backend.hooks import hookimpl
from calving.backend.interface import Backend
from calving_redis.backend import RedisBackend


@hookimpl
def calving_register_backend() -> type[Backend]:
    return RedisBackend
