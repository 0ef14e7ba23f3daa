"""Tasks one after the other, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from calving.engine.interface import Engine, Function
from calving.engine.registry import Patience


class LocalEngine(Engine):
    """Runs functions in this process. Their errors are raised unchanged, because another attempt would fail, too."""

    @property
    def slots(self) -> int:
        return 1

    def map(self, function: Function, payloads: Sequence[str]) -> list[str]:
        return [function(payload) for payload in payloads]

    def close(self) -> None:
        pass


def open_local(name: str, properties: Mapping[str, str], patience: Patience) -> Engine:
    """The local engine. It uses none of the arguments."""
    return LocalEngine()
