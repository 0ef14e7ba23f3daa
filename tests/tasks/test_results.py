"""What a task tells the driver."""

from __future__ import annotations

import pytest

from calving.errors import (
    AccountingError,
    BadRecordError,
    ConfigError,
    DataLossError,
    NotInstalledError,
    UnavailableError,
)
from calving.tasks.spec import TaskResult

CLASSES = {
    AccountingError: AccountingError,
    BadRecordError: BadRecordError,
    ConfigError: ConfigError,
    NotInstalledError: ConfigError,
    DataLossError: DataLossError,
}


@pytest.mark.parametrize(("met", "raised"), CLASSES.items(), ids=lambda kind: kind.__name__)
def test_the_driver_raises_the_error_that_a_task_met(met: type[Exception], raised: type[Exception]) -> None:
    result = TaskResult.of_error(3, met("topic t[0]: why"))
    assert result is not None
    with pytest.raises(raised, match=r"topic t\[0\]: why") as caught:
        TaskResult.from_json(result.to_json()).raise_error()
    assert type(caught.value) is raised


def test_an_error_that_another_attempt_may_mend_makes_no_result() -> None:
    assert TaskResult.of_error(3, UnavailableError("the store is away")) is None
