"""One case: tables, settings and records, all made from a seed and the case's number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from calving.data.spec import Evolution, RouteRule, Routing
from tests.fuzz import schemas
from tests.fuzz.sink import Run, Target
from tests.fuzz.texts import Writer


@dataclass(frozen=True)
class Case:
    """``places`` are those that the records had when the case was made."""

    seed: int
    number: int
    targets: tuple[Target, ...]
    run: Run
    raws: tuple[bytes | None, ...]
    places: tuple[int, ...]

    def only(self, places: Sequence[int]) -> Case:
        """The case with some of its records."""
        chosen = dict(zip(self.places, self.raws, strict=True))
        return replace(self, raws=tuple(chosen[p] for p in places), places=tuple(places))

    def random(self, use: str) -> Random:
        """Randomness for one use, the same each time."""
        return Random(f"{self.seed}/{self.number}/{use}")

    @property
    def tags(self) -> dict[str, str]:
        """What the case covers, for the report."""
        return {
            "evolution": "on" if self.run.evolution.evolve else "off",
            "tables": str(len(self.targets)),
        }


def make(seed: int, number: int) -> Case:
    """The same case every time."""
    random = Random(f"{seed}/{number}")
    schema = schemas.schema(random)
    writer = Writer(random, random.choice((0, 0.02, 0.1, 0.3)))
    count = random.choice((1, 2, 5, 30, 30, 150, 600))
    raws = tuple(_raw(random, writer, schema.as_struct(), i) for i in range(count))
    run = Run(Routing((RouteRule("t"),)), Evolution(evolve=random.random() < 0.35))
    return Case(seed, number, (Target("t", schema),), run, raws, tuple(range(count)))


def _raw(random: Random, writer: Writer, struct: object, number: int) -> bytes | None:
    return None if random.random() < 0.01 else writer.record(struct, number)  # type: ignore[arg-type]
