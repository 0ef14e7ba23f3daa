from datetime import datetime
from enum import IntEnum
from typing import overload

class FileType(IntEnum):
    NotFound = 0
    Unknown = 1
    File = 2
    Directory = 3

class FileInfo:
    @property
    def path(self) -> str: ...
    @property
    def type(self) -> FileType: ...
    @property
    def size(self) -> int: ...
    @property
    def mtime(self) -> datetime | None: ...

class FileSelector:
    def __init__(self, base_dir: str, allow_not_found: bool = False, recursive: bool = False) -> None: ...

class FileSystem:
    @property
    def type_name(self) -> str: ...
    @overload
    def get_file_info(self, paths_or_selector: FileSelector) -> list[FileInfo]: ...
    @overload
    def get_file_info(self, paths_or_selector: str) -> FileInfo: ...

class LocalFileSystem(FileSystem): ...
