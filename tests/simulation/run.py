"""Run seeds of the simulation: ``python -m tests.simulation.run --seed 17`` or ``--seeds 1000 [--mutants]``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.simulation.world import Violation, simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--mutants", action="store_true", help="also count the seeds in which each mutant is caught")
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else range(args.seeds)
    total: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        try:
            total += simulate(seed)
        except Violation as violation:
            failed += 1
            print(f"seed {seed}: {violation}")
    print(f"{len(seeds)} seeds, {failed} failed", dict(sorted(total.items())))
    if args.mutants:
        from tests.simulation.mutants import MUTANTS, verdicts

        for name, mutant in MUTANTS.items():
            print(f"{name:60s} {verdicts(mutant, seeds)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
