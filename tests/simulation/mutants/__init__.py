"""Broken variants of the product, by the part that is broken."""

from tests.simulation.mutants import (
    compactions,
    coordinator,
    mutations,
    operators,
    rollbacks,
    stores,
    strangers,
    tables,
    versions,
    worker,
)
from tests.simulation.mutants.registry import MUTANTS, Verdicts, table, verdicts

__all__ = [
    "MUTANTS",
    "Verdicts",
    "compactions",
    "coordinator",
    "mutations",
    "operators",
    "rollbacks",
    "stores",
    "strangers",
    "table",
    "tables",
    "verdicts",
    "versions",
    "worker",
]
