"""What a task of ``calving maintain`` did, as a line of text or of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from calving.errors import CalvingError, CommandFailedError, CommitRefusedError, CommitUncertainError
from calving.storage_errors import described


@dataclass(frozen=True, slots=True)
class MaintenanceStep:
    """What a task did with a table, or would do. ``outcome``: done, planned, nothing (there was nothing to do), left
    alone, dropped (others changed the files), or failed. ``numbers``: entries for programs.
    """

    table: str
    task: str
    outcome: str
    text: str
    numbers: Mapping[str, object] = field(default_factory=dict)

    def line(self) -> str:
        """For a person."""
        return f"table {self.table}: {self.text}"

    def json(self) -> str:
        """For a program."""
        own = {"table": self.table, "task": self.task, "outcome": self.outcome.replace(" ", "-"), "text": self.text}
        return json.dumps({**own, **self.numbers})


def failed(table: str, error: Exception) -> MaintenanceStep:
    """A step that says why nothing more was done with a table."""
    why = str(error) if isinstance(error, CalvingError) else described(error)
    return MaintenanceStep(table, "maintain", "failed", f"maintenance failed: {why}")


@contextmanager
def committing(table: str) -> Iterator[None]:
    """:raises CommandFailedError: a commit within was refused to the end, or got no answer."""
    try:
        yield
    except (CommitRefusedError, CommitUncertainError) as error:
        raise CommandFailedError(
            f"table {table}: others committed faster each time, or the catalog gave no answer ({error}); nothing is"
            " lost, run it again"
        ) from error
