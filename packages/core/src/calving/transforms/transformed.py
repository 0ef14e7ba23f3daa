"""What becomes of records in a chain of transforms."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from calving.records.values import RecordError, Records


@dataclass(slots=True)
class Transformed:
    """Records by shape, dropped records by the step that dropped them, and records that a step rejected. ``before``:
    the before images of some of the records. ``bad_shapes``: why a schema change of a source does not count.
    """

    records: list[Records] = field(default_factory=list)
    before: list[Records] = field(default_factory=list)
    bad_images: list[RecordError] = field(default_factory=list)
    bad_shapes: list[RecordError] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    bad: list[RecordError] = field(default_factory=list)


def apart(result: Transformed) -> Transformed:
    """The before images apart from the rows. A row whose image is bad is bad."""
    result.before = [part for part in result.records if part.content == "before image"]
    if result.before:
        result.records = [part for part in result.records if part.content != "before image"]
    if result.bad_images:
        bad = {error.index: error for error in reversed(result.bad_images)}
        rows = [(part, pc.is_in(part.index, pa.array(bad, pa.int32()))) for part in result.records]
        result.bad += [bad[place] for part, is_bad in rows for place in part.index.filter(is_bad).to_pylist()]
        kept = (part.take(pc.invert(is_bad)) for part, is_bad in rows)
        result.records = [part for part in kept if len(part)]
    return result
