"""The writers that Spark calls: for batches, and for streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from calving.lean import freeze_imports, without_pandas
from calving_spark import __version__
from calving_spark.masking import no_secrets_in_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from calving_spark.options import WriteOptions
    from calving_spark.planning import WritePlan

without_pandas()  # here, because a task imports this module before it has the plan, which imports everything


class _Writer:
    """What both have in common. It travels to the tasks, and for a batch back to its commit."""

    def __init__(self, options: WriteOptions, plan: WritePlan) -> None:
        self._given, self._plan, self._version = dict(options.given), plan, __version__

    def _written(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        # Imported here, because planning and committing write nothing.
        from calving_spark.tasks import write

        freeze_imports("tasks")
        return write(self._plan, self._version, batches)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch: whole, or not at all."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as in Spark
        return self._written(iterator)

    @no_secrets_in_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from calving_spark.commits import commit_batch
        from calving_spark.options import read

        commit_batch(read(self._given), messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete nothing: a commit may have landed before it has raised (S9)."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream, each once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # as in Spark
        return self._written(iterator)

    @no_secrets_in_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - as in Spark
        from calving_spark.commits import commit_stream
        from calving_spark.options import read

        freeze_imports("commits")
        commit_stream(read(self._given), messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - as in Spark
        """Delete nothing: a commit may have landed before it has raised (S9)."""
