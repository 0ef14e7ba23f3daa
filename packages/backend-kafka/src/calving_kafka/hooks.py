"""Registers the backend."""

from calving.backend import Backend, hookimpl
from calving_kafka.backend import KafkaBackend


@hookimpl
def calving_register_backend() -> type[Backend]:
    return KafkaBackend
