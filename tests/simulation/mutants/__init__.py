"""Broken variants of the product, by the part that is broken."""

from tests.simulation.mutants import coordinator, mutations, operators, stores, tables, worker
from tests.simulation.mutants.registry import MUTANTS, Verdicts, table, verdicts

__all__ = [
    "MUTANTS",
    "Verdicts",
    "coordinator",
    "mutations",
    "operators",
    "stores",
    "table",
    "tables",
    "verdicts",
    "worker",
]
