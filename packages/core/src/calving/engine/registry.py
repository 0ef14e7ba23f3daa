"""Which engine a sink's settings ask for."""

from __future__ import annotations

from collections.abc import Mapping

from calving.engine.interface import Engine
from calving.engine.watch import Patience
from calving.importing import IMPORTING


def open_engine(
    kind: str,
    name: str,
    properties: Mapping[str, str],
    patience: Patience = Patience(),  # noqa: B008
) -> Engine:
    """``kind``: ``local`` or ``spark``; ``properties``: Spark's, where ``spark.remote`` asks for Spark Connect.

    :raises ConfigError: Spark does not start.
    """
    # Imported here, because only one of them is needed, and each brings all that it runs.
    if kind == "local":
        with IMPORTING:
            from calving.engine.local import LocalEngine
        return LocalEngine()
    if "spark.remote" in properties:
        with IMPORTING:
            from calving.engine.connect import ConnectEngine
        return ConnectEngine(name, properties, patience)
    with IMPORTING:
        from calving.engine.classic import ClassicEngine
    return ClassicEngine(name, properties, patience)
