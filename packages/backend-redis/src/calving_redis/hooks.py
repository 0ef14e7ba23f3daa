"""Registers the backend."""

from calving.backend import Backend, hookimpl
from calving_redis.backend import RedisBackend


@hookimpl
def calving_register_backend() -> type[Backend]:
    return RedisBackend
