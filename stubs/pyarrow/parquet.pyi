from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, Self, TypeAlias, type_check_only

from .lib import DataType, RecordBatch, Schema, Table, _Sink, _Source

_Version: TypeAlias = Literal["1.0", "2.4", "2.6"]
_Columns: TypeAlias = bool | Sequence[str]

class Statistics:
    @property
    def has_min_max(self) -> bool: ...
    @property
    def min(self) -> Any: ...
    @property
    def max(self) -> Any: ...
    @property
    def null_count(self) -> int | None: ...
    @property
    def num_values(self) -> int: ...

class ColumnChunkMetaData:
    @property
    def path_in_schema(self) -> str: ...
    @property
    def physical_type(self) -> str: ...
    @property
    def compression(self) -> str: ...
    @property
    def encodings(self) -> tuple[str, ...]: ...
    @property
    def statistics(self) -> Statistics | None: ...
    @property
    def data_page_offset(self) -> int: ...
    @property
    def dictionary_page_offset(self) -> int | None: ...
    @property
    def has_dictionary_page(self) -> bool: ...
    @property
    def total_compressed_size(self) -> int: ...

class RowGroupMetaData:
    @property
    def num_columns(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def total_byte_size(self) -> int: ...
    def column(self, i: int) -> ColumnChunkMetaData: ...

class ParquetLogicalType:
    @property
    def type(self) -> str: ...
    def to_json(self) -> str: ...

class ColumnSchema:
    @property
    def name(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def length(self) -> int | None: ...
    @property
    def logical_type(self) -> ParquetLogicalType: ...
    @property
    def physical_type(self) -> str: ...

class ParquetSchema:
    @property
    def names(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def column(self, i: int) -> ColumnSchema: ...

class FileMetaData:
    @property
    def created_by(self) -> str: ...
    @property
    def metadata(self) -> dict[bytes, bytes] | None: ...
    @property
    def num_columns(self) -> int: ...
    @property
    def num_row_groups(self) -> int: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def schema(self) -> ParquetSchema: ...
    def row_group(self, i: int) -> RowGroupMetaData: ...

class ParquetFile:
    def __init__(
        self,
        source: _Source,
        *,
        metadata: FileMetaData | None = None,
        common_metadata: FileMetaData | None = None,
        read_dictionary: Sequence[str] | None = None,
        binary_type: DataType | None = None,
        list_type: type[DataType] | None = None,
        memory_map: bool = False,
        buffer_size: int = 0,
        pre_buffer: bool = True,
        coerce_int96_timestamp_unit: str | None = None,
        decryption_properties: object = None,
        thrift_string_size_limit: int | None = None,
        thrift_container_size_limit: int | None = None,
        schema_depth_limit: int | None = None,
        filesystem: object = None,
        page_checksum_verification: bool = False,
        arrow_extensions_enabled: bool = True,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object, **kwargs: object) -> None: ...
    @property
    def metadata(self) -> FileMetaData: ...
    @property
    def schema(self) -> ParquetSchema: ...
    @property
    def schema_arrow(self) -> Schema: ...
    @property
    def num_row_groups(self) -> int: ...
    def close(self, force: bool = False) -> None: ...
    def iter_batches(
        self,
        batch_size: int = 65536,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        use_threads: bool = True,
        use_pandas_metadata: bool = False,
    ) -> Iterator[RecordBatch]: ...
    def read(
        self, columns: Sequence[str] | None = None, use_threads: bool = True, use_pandas_metadata: bool = False
    ) -> Table: ...

@type_check_only
class _FileWriter(Protocol):
    @property
    def metadata(self) -> FileMetaData: ...

class ParquetWriter:
    writer: _FileWriter
    def __init__(
        self,
        where: _Sink,
        schema: Schema,
        filesystem: object = None,
        flavor: Literal["spark"] | None = None,
        version: _Version = "2.6",
        use_dictionary: _Columns = True,
        compression: str | Mapping[str, str] = "snappy",
        write_statistics: _Columns = True,
        use_deprecated_int96_timestamps: bool | None = None,
        compression_level: int | Mapping[str, int] | None = None,
        use_byte_stream_split: _Columns = False,
        column_encoding: str | Mapping[str, str] | None = None,
        writer_engine_version: str | None = None,
        data_page_version: Literal["1.0", "2.0"] = "1.0",
        use_compliant_nested_type: bool = True,
        encryption_properties: object = None,
        write_batch_size: int | None = None,
        dictionary_pagesize_limit: int | None = None,
        store_schema: bool = True,
        write_page_index: bool = False,
        write_page_checksum: bool = False,
        sorting_columns: Sequence[object] | None = None,
        store_decimal_as_integer: bool = False,
        write_time_adjusted_to_utc: bool = False,
        max_rows_per_page: int | None = None,
        bloom_filter_options: Mapping[str, Any] | None = None,
        use_content_defined_chunking: bool | Mapping[str, int] = False,
        # data_page_size, for one; calving collects them from a table's properties.
        **options: Any,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object, **kwargs: object) -> None: ...
    def write(self, table_or_batch: Table | RecordBatch, row_group_size: int | None = None) -> None: ...
    def write_batch(self, batch: RecordBatch, row_group_size: int | None = None) -> None: ...
    def write_table(self, table: Table, row_group_size: int | None = None) -> None: ...
    def close(self) -> None: ...

def read_metadata(
    where: _Source,
    memory_map: bool = False,
    decryption_properties: object = None,
    filesystem: object = None,
    arrow_extensions_enabled: bool = True,
) -> FileMetaData: ...
def read_schema(
    where: _Source,
    memory_map: bool = False,
    decryption_properties: object = None,
    filesystem: object = None,
    arrow_extensions_enabled: bool = True,
) -> Schema: ...
def read_table(
    source: _Source,
    *,
    columns: Sequence[str] | None = None,
    use_threads: bool = True,
    schema: Schema | None = None,
    use_pandas_metadata: bool = False,
    read_dictionary: Sequence[str] | None = None,
    binary_type: DataType | None = None,
    list_type: type[DataType] | None = None,
    memory_map: bool = False,
    buffer_size: int = 0,
    partitioning: str | None = "hive",
    filesystem: object = None,
    filters: object = None,
    ignore_prefixes: Sequence[str] | None = None,
    pre_buffer: bool = True,
    coerce_int96_timestamp_unit: str | None = None,
    decryption_properties: object = None,
    thrift_string_size_limit: int | None = None,
    thrift_container_size_limit: int | None = None,
    schema_depth_limit: int | None = None,
    page_checksum_verification: bool = False,
    arrow_extensions_enabled: bool = True,
) -> Table: ...
def write_table(
    table: Table,
    where: _Sink,
    row_group_size: int | None = None,
    version: _Version = "2.6",
    use_dictionary: _Columns = True,
    compression: str | Mapping[str, str] = "snappy",
    write_statistics: _Columns = True,
    use_deprecated_int96_timestamps: bool | None = None,
    coerce_timestamps: Literal["ms", "us"] | None = None,
    allow_truncated_timestamps: bool = False,
    data_page_size: int | None = None,
    flavor: Literal["spark"] | None = None,
    filesystem: object = None,
    compression_level: int | Mapping[str, int] | None = None,
    use_byte_stream_split: _Columns = False,
    column_encoding: str | Mapping[str, str] | None = None,
    data_page_version: Literal["1.0", "2.0"] = "1.0",
    use_compliant_nested_type: bool = True,
    encryption_properties: object = None,
    write_batch_size: int | None = None,
    dictionary_pagesize_limit: int | None = None,
    store_schema: bool = True,
    write_page_index: bool = False,
    write_page_checksum: bool = False,
    sorting_columns: Sequence[object] | None = None,
    store_decimal_as_integer: bool = False,
    write_time_adjusted_to_utc: bool = False,
    max_rows_per_page: int | None = None,
    bloom_filter_options: Mapping[str, Any] | None = None,
    use_content_defined_chunking: bool | Mapping[str, int] = False,
    **kwargs: Any,
) -> None: ...
