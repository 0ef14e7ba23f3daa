"""The input and the result of a task: plain values, sent to executors and back as JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from calving.errors import AccountingError, BadRecordError, ConfigError, DataLossError
from calving.model.dead_letters import DeadLetter, Stage
from calving.model.files import DataFile, FileContent, PartitionField, PartitionTuple
from calving.model.offsets import Range
from calving.model.record_path import RecordPath
from calving.model.tables import MissingTable, SchemaChange, TableSpec


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task. ``missing`` are tables that were looked for and do not exist. ``refused`` are tables that take no
    record of this batch, because they can neither be created nor written, and why. Each record for one of them is bad.

    ``shuffle``: whether rows are sent to other tasks, if the distribution of their table needs it.
    """

    number: int
    ranges: tuple[Range, ...]
    path: RecordPath
    tables: Mapping[str, TableSpec]
    missing: Mapping[str, MissingTable]
    shuffle: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    trial_run: bool = False
    """Whether every row is tried before it is written, because writing has failed and the record is unknown."""

    def to_json(self) -> str:
        return to_json(self).decode()

    @staticmethod
    def from_json(text: str) -> TaskSpec:
        """:raises ValidationError: the text is not that of ``to_json``."""
        return reader().validate_json(text)


@cache
def reader() -> TypeAdapter[TaskSpec]:
    """What reads the texts of tasks. It takes 9 ms to make, and a driver needs none."""
    return TypeAdapter(TaskSpec)


@dataclass(frozen=True, slots=True)
class RangeResult:
    """The outcome of one range. ``filtered`` counts records by cause; ``read = written + bad + sum(filtered)``."""

    range: Range
    read: int
    written: int
    """Records that went to at least one table."""
    bad: int
    filtered: Mapping[str, int]
    bytes: int
    timestamp_ms: int | None
    """The largest one."""
    earliest_ms: int | None = None


LASTING = {c.__name__: c for c in (AccountingError, BadRecordError, ConfigError, DataLossError)}
"""The errors of a task that another attempt cannot fix, by name."""

RECEIVED = -1
"""The number of every task that writes rows which other tasks have sent."""


@dataclass(slots=True)
class TaskResult:
    """The result of a task. If it has ``changes``, nothing else counts. Otherwise it has files, and one result per
    range.
    """

    number: int
    """The task's number, or ``RECEIVED``."""
    files: dict[str, list[DataFile]] = field(default_factory=dict)
    ranges: list[RangeResult] = field(default_factory=list)
    changes: list[SchemaChange] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    """Dead letters for the dead-letter topic. Dead letters for a table are in the files."""
    first_bad: str | None = None
    """The place of the first bad record, and why it is bad."""
    bad_by_stage: dict[str, int] = field(default_factory=dict)
    """The number of bad records, by the stage that found them to be bad."""
    error: str | None = None
    """The text of an error of one of the classes in ``LASTING``."""
    error_class: str = BadRecordError.__name__
    failed_by_unknown_record: str | None = None
    """The error if an unknown record makes writing fail. Every task then has to run again with ``trial_run``."""
    superseded: int = 0
    """Changes of rows that a later change of the same key in the batch replaced."""
    deleted: int = 0
    """Changes that left no row."""
    shuffled: int = 0
    """Rows sent to other tasks; received rows count as negative. The sum over all tasks of a batch is zero."""
    stages: dict[str, float] = field(default_factory=dict)
    """CPU seconds by step."""
    unnamed: dict[str, int] = field(default_factory=dict)
    """Records of mutation tables that name no operation, by what the log says of them. They are inserts (M1)."""
    warnings: list[str] = field(default_factory=list)
    """What else the log has to say."""

    @staticmethod
    def of_error(number: int, error: BaseException) -> TaskResult | None:
        """The result of a task that failed with ``error``; None if the error is not one of ``LASTING``."""
        name = next((name for name, kind in LASTING.items() if isinstance(error, kind)), None)
        return None if name is None else TaskResult(number, error=str(error), error_class=name)

    def raise_error(self) -> None:
        """Raise the task's error, if it has one.

        :raises CalvingError: an error of one of the classes in ``LASTING``.
        """
        if self.error is not None:
            raise LASTING[self.error_class](self.error)

    @property
    def is_held_up(self) -> bool:
        """Whether the task has to run again."""
        return bool(self.changes) or self.failed_by_unknown_record is not None

    def to_json(self) -> str:
        files = {table: [_file_out(f) for f in files_of_table] for table, files_of_table in self.files.items()}
        return json.dumps(
            {
                "number": self.number,
                "files": files,
                "ranges": [_range_out(r) for r in self.ranges],
                "changes": [asdict(n) for n in self.changes],
                "dead_letters": [_letter_out(letter) for letter in self.dead_letters],
                "first_bad": self.first_bad,
                "bad_by_stage": self.bad_by_stage,
                "error": self.error,
                "error_class": self.error_class,
                "failed_by_unknown_record": self.failed_by_unknown_record,
                "superseded": self.superseded,
                "deleted": self.deleted,
                "shuffled": self.shuffled,
                "stages": self.stages,
                "unnamed": self.unnamed,
                "warnings": self.warnings,
            }
        )

    @staticmethod
    def from_json(text: str) -> TaskResult:
        raw = json.loads(text)
        return TaskResult(
            number=raw["number"],
            files={table: [_file_in(f) for f in files_of_table] for table, files_of_table in raw["files"].items()},
            ranges=[RangeResult(Range(*source), *rest) for source, *rest in raw["ranges"]],
            changes=[
                SchemaChange(
                    **each | {"path": tuple(each["path"]), "keys": tuple(tuple(fields) for fields in each["keys"])}
                )
                for each in raw["changes"]
            ],
            dead_letters=[_letter_in(letter) for letter in raw["dead_letters"]],
            first_bad=raw["first_bad"],
            bad_by_stage=raw["bad_by_stage"],
            error=raw["error"],
            error_class=raw["error_class"],
            failed_by_unknown_record=raw["failed_by_unknown_record"],
            superseded=raw["superseded"],
            deleted=raw["deleted"],
            shuffled=raw["shuffled"],
            stages=raw["stages"],
            unnamed=raw["unnamed"],
            warnings=raw["warnings"],
        )


_BOUNDS = ("lower_bounds", "upper_bounds")

_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


def _range_out(result: RangeResult) -> list[Any]:
    """The fields of a result, in order."""
    r = result.range
    source = [r.topic, r.partition, r.start, r.end]
    counts = [result.read, result.written, result.bad, dict(result.filtered)]
    return [source, *counts, result.bytes, result.timestamp_ms, result.earliest_ms]


def _file_out(file: DataFile) -> dict[str, Any]:
    raw = asdict(file)
    raw["partition"]["values"] = [_value_out(v) for v in file.partition.values]
    for name in _BOUNDS:
        bounds = getattr(file, name)
        raw[name] = None if bounds is None else {k: base64.b64encode(v).decode() for k, v in bounds.items()}
    raw["key_metadata"] = None
    return raw


def _file_in(raw: dict[str, Any]) -> DataFile:
    partition = raw["partition"]
    raw["partition"] = PartitionTuple(
        tuple(PartitionField(**f) for f in partition["fields"]), tuple(_value_in(v) for v in partition["values"])
    )
    for name in _BOUNDS:
        if raw[name] is not None:
            raw[name] = {int(k): base64.b64decode(v) for k, v in raw[name].items()}
    for name in _COUNTS:
        if raw[name] is not None:
            raw[name] = {int(k): v for k, v in raw[name].items()}
    for name in ("split_offsets", "equality_ids"):
        if raw[name] is not None:
            raw[name] = tuple(raw[name])
    raw["content"] = FileContent(raw["content"])
    return DataFile(**raw)


def _letter_out(letter: DeadLetter) -> dict[str, Any]:
    raw = asdict(letter)
    raw["key"], raw["value"] = _bytes_out(letter.key), _bytes_out(letter.value)
    raw["headers"] = [(name, _bytes_out(value)) for name, value in letter.headers]
    return raw


def _letter_in(raw: dict[str, Any]) -> DeadLetter:
    headers = tuple((name, _bytes_in(value)) for name, value in raw["headers"])
    return DeadLetter(
        **raw
        | {
            "key": _bytes_in(raw["key"]),
            "value": _bytes_in(raw["value"]),
            "headers": headers,
            "stage": Stage(raw["stage"]),
        }
    )


def _bytes_out(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes_in(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


def _value_out(value: object) -> object:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _value_in(value: Any) -> object:
    return base64.b64decode(value["bytes"]) if isinstance(value, dict) else value
