from typing import TypeAlias

from typing_extensions import Buffer as BytesLike

from .lib import (
    Buffer,
    MemoryPool,
    NativeFile,
    RecordBatchReader,
    Schema,
    _CRecordBatchWriter,
    _KeyValues,
    _Readable,
    _RecordBatchFileReader,
    _Sink,
)

_Stream: TypeAlias = Buffer | BytesLike | NativeFile | _Readable

class IpcReadOptions: ...

class IpcWriteOptions:
    def __init__(
        self,
        metadata_version: object = ...,
        *,
        allow_64bit: bool = False,
        use_legacy_format: bool = False,
        compression: str | None = None,
        use_threads: bool = True,
        emit_dictionary_deltas: bool = False,
        unify_dictionaries: bool = False,
    ) -> None: ...

class RecordBatchStreamReader(RecordBatchReader):
    def __init__(
        self, source: _Stream, *, options: IpcReadOptions | None = None, memory_pool: MemoryPool | None = None
    ) -> None: ...

class RecordBatchStreamWriter(_CRecordBatchWriter):
    def __init__(self, sink: _Sink, schema: Schema, *, options: IpcWriteOptions | None = None) -> None: ...

class RecordBatchFileReader(_RecordBatchFileReader):
    def __init__(
        self,
        source: _Stream,
        footer_offset: int | None = None,
        *,
        options: IpcReadOptions | None = None,
        memory_pool: MemoryPool | None = None,
    ) -> None: ...

class RecordBatchFileWriter(_CRecordBatchWriter):
    def __init__(
        self,
        sink: _Sink,
        schema: Schema,
        *,
        options: IpcWriteOptions | None = None,
        metadata: _KeyValues | None = None,
    ) -> None: ...

def new_stream(sink: _Sink, schema: Schema, *, options: IpcWriteOptions | None = None) -> RecordBatchStreamWriter: ...
def open_stream(
    source: _Stream, *, options: IpcReadOptions | None = None, memory_pool: MemoryPool | None = None
) -> RecordBatchStreamReader: ...
def new_file(
    sink: _Sink,
    schema: Schema,
    *,
    options: IpcWriteOptions | None = None,
    metadata: _KeyValues | None = None,
) -> RecordBatchFileWriter: ...
def open_file(
    source: _Stream,
    footer_offset: int | None = None,
    *,
    options: IpcReadOptions | None = None,
    memory_pool: MemoryPool | None = None,
) -> RecordBatchFileReader: ...
