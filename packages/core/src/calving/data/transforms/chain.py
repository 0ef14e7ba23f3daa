"""Runs a chain of transforms, and tells the records that it cannot take from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow.compute as pc

from calving.data.records import Bad, Records
from calving.data.spec import TransformSpec
from calving.data.transforms.interface import Column, Predicate, Transform
from calving.data.transforms.registry import predicate, transform
from calving.errors import CalvingError

STAGE = "TRANSFORMATION"


@dataclass(slots=True)
class Transformed:
    """Records by shape, records dropped by the step that dropped them, and those that a step could not take."""

    records: list[Records] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    bad: list[Bad] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Step:
    name: str
    transform: Transform
    predicate: Predicate | None
    negate: bool


class Chain:
    def __init__(self, specs: Sequence[TransformSpec]) -> None:
        """:raises ConfigError: a type is not known, or an option is wrong."""
        self._steps = [
            _Step(
                spec.name,
                transform(spec.name, spec.type, spec.options),
                None if spec.predicate is None else predicate(spec.name, spec.predicate),
                spec.negate,
            )
            for spec in specs
        ]
        self.needs: frozenset[Column] = frozenset().union(
            *(s.transform.needs | (s.predicate.needs if s.predicate else frozenset()) for s in self._steps)
        )

    def __bool__(self) -> bool:
        return bool(self._steps)

    def apply(self, records: Records) -> Transformed:
        """All steps, in order."""
        result = Transformed([records])
        for step in self._steps:
            parts, result.records = result.records, []
            for part in parts:
                result.records += self._apply(step, part, result)
        return result

    def _apply(self, step: _Step, records: Records, result: Transformed) -> list[Records]:
        if not len(records):
            return []
        chosen = None
        if step.predicate is not None:
            chosen = step.predicate.test(records)
            chosen = pc.invert(chosen) if step.negate else chosen
        if not step.transform.tombstones and records.value.null_count:
            present = records.value.is_valid()
            chosen = present if chosen is None else pc.and_(chosen, present)
        if chosen is None or pc.all(chosen).as_py():
            return self._run(step, records, result)
        if not pc.any(chosen).as_py():
            return [records]
        return [*self._run(step, records.take(chosen), result), records.take(pc.invert(chosen))]

    def _run(self, step: _Step, records: Records, result: Transformed) -> list[Records]:
        try:
            after = step.transform.apply(records)
        except CalvingError:
            raise
        except Exception as error:  # whatever a transform raises, some record is the reason
            if len(records) == 1:
                reason = f"transform '{step.name}': {error or type(error).__name__}"
                result.bad.append(Bad(records.index[0].as_py(), STAGE, type(error).__name__, reason))
                return []
            middle = len(records) // 2
            halves = (records.slice(0, middle), records.slice(middle, len(records)))
            return [part for half in halves for part in self._run(step, half, result)]
        if len(after) < len(records):
            result.dropped[f"transform {step.name}"] += len(records) - len(after)
        return [after] if len(after) else []
