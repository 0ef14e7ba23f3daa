"""Opens the kind of Spark that the settings name."""

from __future__ import annotations

from collections.abc import Mapping

from calving.engine.interface import Engine
from calving.engine.registry import Patience
from calving.importing import IMPORTING


def open_spark(name: str, properties: Mapping[str, str], patience: Patience) -> Engine:
    """Spark Connect if ``spark.remote`` is among Spark's properties, otherwise classic Spark.

    :raises ConfigError: Spark does not start.
    """
    # Imported here, because only one kind is needed.
    if "spark.remote" in properties:
        with IMPORTING:
            from calving.engine.connect import ConnectEngine
        return ConnectEngine(name, properties, patience)
    with IMPORTING:
        from calving.engine.classic import ClassicEngine
    return ClassicEngine(name, properties, patience)
