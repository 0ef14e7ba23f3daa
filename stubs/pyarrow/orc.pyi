from collections.abc import Sequence
from typing import Literal, Self, TypeAlias

from .lib import RecordBatch, Schema, Table, _Sink, _Source

_Compression: TypeAlias = Literal["uncompressed", "snappy", "zlib", "lz4", "zstd"]

class ORCFile:
    def __init__(self, source: _Source) -> None: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def compression(self) -> str: ...
    @property
    def nrows(self) -> int: ...
    @property
    def nstripes(self) -> int: ...
    def read(self, columns: Sequence[str | int] | None = None) -> Table: ...
    def read_stripe(self, n: int, columns: Sequence[str | int] | None = None) -> RecordBatch: ...

class ORCWriter:
    def __init__(
        self,
        where: _Sink,
        *,
        file_version: str = "0.12",
        batch_size: int = 1024,
        stripe_size: int = 67108864,
        compression: _Compression = "uncompressed",
        compression_block_size: int = 65536,
        compression_strategy: Literal["speed", "compression"] = "speed",
        row_index_stride: int = 10000,
        padding_tolerance: float = 0.0,
        dictionary_key_size_threshold: float = 0.0,
        bloom_filter_columns: Sequence[str | int] | None = None,
        bloom_filter_fpp: float = 0.05,
    ) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...
    def write(self, table: Table | RecordBatch) -> None: ...
    def close(self) -> None: ...

def read_table(source: _Source, columns: Sequence[str] | None = None, filesystem: object = None) -> Table: ...
def write_table(
    table: Table,
    where: _Sink,
    *,
    file_version: str = "0.12",
    batch_size: int = 1024,
    stripe_size: int = 67108864,
    compression: _Compression = "uncompressed",
    compression_block_size: int = 65536,
    compression_strategy: Literal["speed", "compression"] = "speed",
    row_index_stride: int = 10000,
    padding_tolerance: float = 0.0,
    dictionary_key_size_threshold: float = 0.0,
    bloom_filter_columns: Sequence[str | int] | None = None,
    bloom_filter_fpp: float = 0.05,
) -> None: ...
