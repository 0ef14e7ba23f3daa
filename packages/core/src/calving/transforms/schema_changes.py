"""Schema changes of Debezium on their way through the transforms: as values without rows, whose fields are columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from calving.records.contents import Content
from calving.records.values import Records, objects
from calving.transforms.columns import struct_of
from calving.transforms.table_changes import table_changes


def column_records(
    records: Records, is_read: Callable[[str], bool], named: Callable[[str, str], Mapping[str, pa.Array]], beside: str
) -> Iterator[Records]:
    """The schema changes as records of the topics of their tables, if the sink reads these: for each renamed column one
    of its former and its new name (``renamed column``), and one of all columns (``columns``). All values are null.

    ``named``: what the field ``beside`` says of the rows of a database and a table.
    """
    for row, event in enumerate(objects(records.value)):
        source = event.get("source")
        prefix = source.get("name") if isinstance(source, Mapping) else None
        if not isinstance(prefix, str):
            continue
        record = replace(records.slice(row, row + 1), typed=True)
        for change in table_changes(event):
            topic = next(filter(is_read, change.topics(prefix)), None)
            if topic is None:
                continue
            about = {beside: struct_of(named(*change.names[-2:]), None, 1)}
            shapes: list[tuple[Content, Mapping[str, pa.DataType]]] = [
                *(("renamed column", dict.fromkeys(pair, pa.null())) for pair in change.renamed),
                ("columns", change.columns),
            ]
            for content, kinds in shapes:
                fields = {name: pa.nulls(1, kind) for name, kind in kinds.items() if name != beside}
                value = struct_of({**fields, **about}, None, 1)
                yield replace(record, topic=pa.array([topic]), value=value, content=content)
