"""What partial rows lack, as texts: the column ``KEPT`` of changes and of key files has them (rule M15)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from calving.writing.key_runs import numbered
from calving.writing.partial_lists import Cut, Element, Step

ROOTLESS = "-"
"""In the text of the columns that a row lacks: the row before it is known to be gone."""
Steps = Mapping[int, Sequence[Step]]
"""The steps that change lists, by the lists' ids."""


def kept_text(ids: Iterable[int], steps: Steps | None = None, *, rootless: bool = False) -> str:
    """The text for what a row lacks: the columns with these ids, and of lists what these steps leave."""
    words = [*([ROOTLESS] if rootless else []), *map(str, sorted(ids))]
    if steps:
        listed = {str(each): [*map(_written, steps[each])] for each in sorted(steps)}
        words.append(json.dumps(listed, separators=(",", ":")))
    return " ".join(words)


def _written(step: Step) -> object:
    if isinstance(step, Cut):
        return {"cut": step.size}
    return step.number if step.kept is None else [step.number, step.kept]


def _read(step: object) -> Step:
    match step:
        case {"cut": int(size)}:
            return Cut(size)
        case [int(number), str(kept)]:
            return Element(number, kept)
        case int(number):
            return Element(number)
    raise ValueError(f"{step} is no step that changes a list")


def kept_ids(text: str) -> frozenset[int]:
    """The ids of the columns in such a text, without lists that have steps."""
    return frozenset(int(word) for word in text.partition("{")[0].split() if word != ROOTLESS)


def kept_steps(text: str) -> dict[int, tuple[Step, ...]]:
    """The steps in such a text."""
    _, brace, listed = text.partition("{")
    found = json.loads(brace + listed) if brace else {}
    return {int(number): tuple(map(_read, steps)) for number, steps in found.items()}


def is_rootless(kept: pa.Array) -> pa.Array:
    """For each row, whether the row before it is known to be gone. Null stays null."""
    rootless: pa.Array = pc.match_substring_regex(kept, f"^{ROOTLESS}")
    return rootless


@dataclass(frozen=True, slots=True)
class Lacking:
    """What rows lack: the number of one of the ``texts`` for each row, null for a whole row."""

    texts: Sequence[str]
    of_rows: pa.Array

    @staticmethod
    def of(kept: pa.Array) -> Lacking:
        encoded = kept.dictionary_encode()
        return Lacking(encoded.dictionary.to_pylist(), encoded.indices)

    def is_so(self, of_texts: Sequence[bool], *, otherwise: bool) -> pa.Array:
        """For each row whether its text is so. ``otherwise``: for whole rows."""
        those: list[int | None] = [number for number, is_so in enumerate(of_texts) if is_so]
        if otherwise:
            those.append(None)
        return pc.is_in(self.of_rows, value_set=pa.array(those, self.of_rows.type))

    def are_rootless(self, *, otherwise: bool) -> pa.Array:
        """For each row whether it lacks columns and the row before it is known to be gone. ``otherwise``: for whole
        rows.
        """
        return self.is_so([text.startswith(ROOTLESS) for text in self.texts], otherwise=otherwise)

    def left(
        self, root: pa.Array, columns: Mapping[int, pa.Array], steps: Mapping[int, Mapping[int, Sequence[Step]]]
    ) -> pa.Array:
        """The texts for keys that still lack columns, and steps of lists. ``root``: of each key the last row that
        replaces what was before it, maybe none. ``columns``: for each column, whether a key lacks it.
        """
        base = self.of_rows.take(root)
        whole = pc.and_(root.is_valid(), base.is_null())
        rootless = Lacking(self.texts, base).are_rootless(otherwise=False)
        groups = numbered([whole, rootless, *columns.values()]).dictionary_encode()
        places = pc.index_in(pa.arange(0, len(groups.dictionary)), value_set=groups.indices.cast(pa.int64()))

        def text(place: int, own: Steps | None = None) -> str | None:
            ids = (each for each, lacking in columns.items() if lacking[place].as_py())
            return None if whole[place].as_py() else kept_text(ids, own, rootless=rootless[place].as_py())

        texts = pa.array([text(place) for place in places.to_pylist()], pa.string()).take(groups.indices)
        if not steps:
            return texts
        listed = texts.to_pylist()
        for place, own in steps.items():
            listed[place] = text(place, own)
        return pa.array(listed, pa.string())
