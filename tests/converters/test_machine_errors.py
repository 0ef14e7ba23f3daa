"""Errors of the machine, and of services, while values are read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from calving.converters.building import collect
from calving.converters.interface import Decoded
from calving.converters.schemas import BySchema, SchemaReader
from calving.errors import ConfigError, UnavailableError
from calving.model.dead_letters import Stage
from calving.records.cells import Cells
from calving.records.failures import pass_on

ERRORS = [MemoryError("no room"), ConnectionResetError("reset"), UnavailableError("x")]


def failing(error: Exception) -> Callable[[object], object]:
    def load(_: object) -> object:
        raise error

    return load


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_that_no_value_causes_makes_no_record_bad(error: Exception) -> None:
    with pytest.raises(type(error)):
        collect(Decoded(), pa.int64(), [b"1"], [0], Stage.VALUE_CONVERTER, failing(error))


def test_a_package_that_is_missing_where_tasks_run_is_named() -> None:
    error = ModuleNotFoundError("No module named 'google.protobuf'", name="google.protobuf")
    with pytest.raises(ConfigError, match=r"the tasks lacks the package 'google\.protobuf': install it"):
        collect(Decoded(), pa.int64(), [b"1"], [0], Stage.VALUE_CONVERTER, failing(error))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_schema_is_read_again_after_an_error_that_it_does_not_cause(error: Exception) -> None:
    left = [error]

    def make(_: str) -> SchemaReader:
        if left:
            raise left.pop()
        return reader

    reader = SchemaReader(pa.int64(), int, Cells(1), 1)
    schemas = BySchema(make)
    with pytest.raises(type(error)):
        schemas.of("a")
    assert schemas.of("a") is reader


def test_an_error_of_a_value_is_left_to_its_record() -> None:
    pass_on(ValueError("no number"))
