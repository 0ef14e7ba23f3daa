"""Key files of mutation tables: they hold exactly the keys, and their counts and bounds are those of the keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.types import TimestampNanoType

from calving.model.files import FileContent
from calving.model.record_path import Limits
from calving.model.tables import RowMutations, TableSpec
from calving.records.fields import arrow_schema
from calving.writing.changes import identity_of
from calving.writing.key_files import KeyWriter
from tests.fuzz import plain, spec
from tests.fuzz.blocks import Case, batch


def faults(case: Case, target: TableSpec) -> Iterator[str]:
    """What is wrong with the key files of all rows that have a key."""
    schema = Schema.model_validate_json(target.schema_json)
    columns = [field for field in schema.fields if field.field_id in case.keys]
    if not columns or any(isinstance(column.field_type, TimestampNanoType) for column in columns):
        return
    names = tuple(column.name for column in columns)
    table = replace(target, id_columns=names, mutations=RowMutations(upsert=True))
    writer = KeyWriter(table, identity_of(table), 0, Limits(), uuid4())
    keyed = [[row for row in block if all(row[name] is not None for name in names)] for block in case.blocks]
    for block in filter(None, keyed):
        writer.write(batch(block, arrow_schema(schema)))
    whole: Counter[str] = Counter()
    for file in writer.close():
        rows = plain.file_rows(file.file_path, file.file_format, Schema(*columns))
        whole.update(map(_text, rows))
        if (file.content, file.equality_ids) != (FileContent.EQUALITY_DELETES, tuple(case.keys)):
            yield f"a key file of {file.content} and {file.equality_ids}"
        if file.record_count != len(rows):
            yield f"record_count {file.record_count} of {len(rows)} keys"
        default = case.properties.get("write.metadata.metrics.default", "truncate(16)")
        for i, leaf in spec.statistics(rows, Schema(*columns)).items():
            name = schema.find_column_name(i)
            mode = case.properties.get(f"write.metadata.metrics.column.{name}", default)
            low, high = (file.lower_bounds or {}).get(i), (file.upper_bounds or {}).get(i)
            for fault in spec.wrong_bounds(leaf, mode, low, high):
                yield f"bounds of {name} ({leaf.kind}, {mode}) in a key file: {fault[:200]}"
    if whole != Counter(_text({name: row[name] for name in names}) for block in keyed for row in block):
        yield "the key files do not have the keys of all rows"


def _text(row: dict[str, Any]) -> str:
    return repr(sorted(row.items()))
