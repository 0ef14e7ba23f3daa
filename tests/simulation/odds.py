"""How likely things are, by the theme of a world."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Odds:
    """How likely things are: faults of processes and calls, each time; everything from ``retention`` on, each step.
    ``backfills``: whether another writer has begun a table. ``interventions`` are recoveries while a commit is on its way; ``slowness``: of a coordinator, for which a partition of
    the control log is late. ``replacements``: of the settings of a member; ``swaps``: of a table, by another engine."""

    crashes: float = 0.02
    faults: float = 0.05
    hangs: float = 0.0
    contention: float = 0.05
    staleness: float = 0.0
    restarts: float = 0.004
    expulsions: float = 0.02
    coups: float = 0.03
    omissions: float = 0.0
    zombies: float = 0.0
    interventions: float = 0.0
    retention: float = 0.0
    losses: float = 0.0
    backups: float = 0.0
    hushes: float = 0.0
    expiry: float = 0.0
    recreations: float = 0.0
    truncations: float = 0.0
    stuck: float = 0.0
    renames: float = 0.0
    drops: float = 0.0
    rollbacks: float = 0.0
    backfills: float = 0.0
    stalls: float = 0.0
    breakage: float = 0.0
    slowness: float = 0.0
    moves: float = 0.0
    replacements: float = 0.0
    swaps: float = 0.0
    compactions: float = 0.0


TURNS = "several settings"
"""The members of a sink that appends turn to settings that change rows, and back."""
CALM = Odds(crashes=0, faults=0, contention=0, restarts=0, expulsions=0, coups=0)
THEMES: dict[str, Odds] = {
    "rough": Odds(),
    "crowd": Odds(crashes=0.005, contention=0.3, expulsions=0.06),
    "long lives": Odds(crashes=0, faults=0.005, restarts=0, expulsions=0.003, coups=0.003),
    "retention": Odds(crashes=0.01, retention=0.05),
    "lost store": Odds(losses=0.004),
    "zombies": Odds(losses=0.006, zombies=0.7, hangs=0.005),
    "recovered too soon": Odds(crashes=0.005, faults=0.02, losses=0.008, zombies=1.0, interventions=0.06),
    "hangs": Odds(crashes=0.005, faults=0.02, hangs=0.004),
    "replica": Odds(faults=0.1, staleness=0.2),
    "expiry": Odds(expiry=0.06),
    "topic recreated": Odds(recreations=0.005),
    "topic without identity": Odds(recreations=0.005),
    "truncated": Odds(crashes=0.01, truncations=0.01),
    "open transactions": Odds(stuck=0.03),
    "catalog restored": Odds(crashes=0.01, contention=0, backups=0.01, hushes=0.03),
    "entries passed over": Odds(crashes=0.01, omissions=0.02),
    "renamed": Odds(renames=0.003),
    "table recreated": Odds(drops=0.006),
    "rolled back": Odds(rollbacks=0.008),
    "rolled back anywhere": Odds(rollbacks=0.012, backfills=0.7, expiry=0.02, contention=0.1),
    "renamed and rolled back": Odds(
        crashes=0.01, renames=0.004, rollbacks=0.012, backfills=0.5, expiry=0.01, contention=0.1
    ),
    "compacted": Odds(
        crashes=0.01, compactions=0.08, rollbacks=0.006, backfills=0.3, expiry=0.01, contention=0.1, coups=0.01
    ),
    "replaced by others": Odds(rollbacks=0.004, swaps=0.02, backfills=0.5, expiry=0.005, contention=0.1),
    "failing table": Odds(
        crashes=0.008, faults=0.04, restarts=0.001, expulsions=0.003, coups=0.005, breakage=0.03, stuck=0.01
    ),
    "truncated while a table fails": Odds(
        crashes=0.005, faults=0.04, expulsions=0.04, coups=0.02, truncations=0.05, breakage=0.05, slowness=0.7
    ),
    "positions moved": Odds(crashes=0.01, moves=0.01),
    "table hangs": Odds(crashes=0.005, stalls=0.02),
    "several versions": Odds(
        crashes=0.006, faults=0.02, expulsions=0.01, coups=0.02, breakage=0.006, slowness=0.3, replacements=0.015
    ),
    TURNS: Odds(crashes=0.002, faults=0.005, expulsions=0.04, coups=0.01, slowness=0.8, replacements=0.02),
}
