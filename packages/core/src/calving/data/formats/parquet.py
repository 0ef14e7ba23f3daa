"""Parquet data files: field ids, column statistics, row groups bounded by the table's properties."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema

from calving.data.conversion.fields import arrow_schema
from calving.data.formats.interface import FileFormat, FileWriter
from calving.model.files import DataFile, FileContent, PartitionTuple

_CODECS = {"uncompressed": "none"}
_ROW_GROUP_BYTES = 32 * 1024 * 1024
"""A row group is held in memory until it is full; more than this many bytes of it do not make files better to read."""


class ParquetWriter(FileWriter):
    def __init__(self, out: OutputStream, schema: Schema, properties: Mapping[str, str]) -> None:
        self._out, self._schema, self._properties = out, schema, properties
        codec = properties.get("write.parquet.compression-codec", "zstd").lower()
        level = properties.get("write.parquet.compression-level")
        wanted = int(properties.get("write.parquet.row-group-size-bytes", 128 * 1024 * 1024))
        self._row_group_bytes = min(wanted, _ROW_GROUP_BYTES)
        self._row_group_rows = int(properties.get("write.parquet.row-group-limit", 1024 * 1024))
        self._writer = pq.ParquetWriter(
            out,
            arrow_schema(schema),
            compression=_CODECS.get(codec, codec),
            compression_level=int(level) if level else None,
            data_page_size=int(properties.get("write.parquet.page-size-bytes", 1024 * 1024)),
            write_batch_size=int(properties.get("write.parquet.page-row-limit", 20_000)),
            dictionary_pagesize_limit=int(properties.get("write.parquet.dict-size-bytes", 2 * 1024 * 1024)),
            store_decimal_as_integer=True,
        )
        self._buffered = 0

    def write(self, rows: pa.RecordBatch) -> None:
        # A buffered row group grows over many batches; `write_table` would make one of each.
        per_row = max(1, rows.nbytes // max(1, rows.num_rows))
        self._writer.write_batch(rows, min(self._row_group_rows, max(1000, self._row_group_bytes // per_row)))
        self._buffered += rows.nbytes

    def size(self) -> int:
        return max(self._out.tell(), self._buffered // 4)

    def close(self, location: str, spec_id: int, partition: PartitionTuple) -> DataFile:
        self._writer.close()
        size = self._out.tell()
        statistics = data_file_statistics_from_parquet_metadata(
            self._writer.writer.metadata,
            compute_statistics_plan(self._schema, dict(self._properties)),
            parquet_path_to_id_mapping(self._schema),
        ).to_serialized_dict()
        splits = statistics["split_offsets"]
        return DataFile(
            file_path=location,
            file_format="PARQUET",
            record_count=statistics["record_count"],
            file_size_in_bytes=size,
            content=FileContent.DATA,
            spec_id=spec_id,
            partition=partition,
            column_sizes=statistics["column_sizes"],
            value_counts=statistics["value_counts"],
            null_value_counts=statistics["null_value_counts"],
            nan_value_counts=statistics["nan_value_counts"],
            lower_bounds=statistics["lower_bounds"],
            upper_bounds=statistics["upper_bounds"],
            split_offsets=tuple(splits) if splits else None,
            sort_order_id=0,
        )


class Parquet(FileFormat):
    name = "parquet"

    def open(self, out: OutputStream, schema: Schema, properties: Mapping[str, str]) -> FileWriter:
        return ParquetWriter(out, schema, properties)
