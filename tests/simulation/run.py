"""Run seeds of the simulation: ``python -m tests.simulation.run --seed 17`` or ``--seeds 1000 [--mutants]``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections import Counter
from functools import partial

from tests.simulation.checks import Violation
from tests.simulation.odds import THEMES
from tests.simulation.world import World, simulate


def in_theme(theme: str) -> type[World]:
    """A world of this theme, whatever the seed."""
    return type("Themed", (World,), {"theme": theme})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--theme", choices=THEMES, help="instead of one by the seed")
    parser.add_argument("--mutants", nargs="?", const="", help="only count the seeds that catch each (of this name)")
    parser.add_argument("--enough", type=int, help="with --mutants: stop as soon as so many seeds have caught it")
    args = parser.parse_args()
    logging.getLogger("calving").setLevel(logging.CRITICAL)
    if args.mutants is not None:
        from tests.simulation.mutants import MUTANTS, table, verdicts

        chosen = {name: mutant for name, mutant in MUTANTS.items() if args.mutants in name}
        for name, mutant in chosen.items():
            print(table([(name, mutant.theme, verdicts(mutant, args.seeds, args.enough))]), flush=True)
        return 0
    seeds = [args.seed] if args.seed is not None else range(args.seeds)
    run = partial(simulate, world=in_theme(args.theme) if args.theme else World)
    total: Counter[str] = Counter()
    failed = 0
    for seed in seeds:
        try:
            total += run(seed)
        except Violation as violation:
            failed += 1
            print(f"seed {seed} ({args.theme or list(THEMES)[seed % len(THEMES)]}): {violation}")
    print(f"{len(seeds)} seeds, {failed} failed", dict(sorted(total.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
