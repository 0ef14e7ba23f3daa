"""Writes a micro-batch from within ``foreachBatch`` (S16): the commit is made in the caller's process."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from calving.errors import ConfigError
from calving_spark import __version__
from calving_spark.commits import commit_stream
from calving_spark.masking import no_secrets_in_errors
from calving_spark.messages import QUERY
from calving_spark.options import read
from calving_spark.planning import WritePlan, plan

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMN = "message"
_WRITTEN: WeakKeyDictionary[SparkSession, dict[tuple[str, str, str], tuple[int, int]]] = WeakKeyDictionary()
"""The last batch by its table, branch and sink, and the hash of its plan. Spark makes a session for each call of a
function of ``foreachBatch``, or for each start of a query; so a batch that Spark repeats has another one.
"""


@no_secrets_in_errors()
def write_batch(
    frame: DataFrame,
    batch_id: int,
    *,
    table: str,
    sink: str,
    options: Mapping[str, str],
    checkpoint: str | None = None,
) -> None:
    """Write the rows of a micro-batch, unless the table holds it. Call it once for a table in each batch: a second call
    with one ``sink`` and another DataFrame is refused, because its rows would be taken for the first ones repeated.

    ``options``: as of ``format("calving")``. ``checkpoint``: the query's ``checkpointLocation``, needed where tasks do
    not know their query: on Spark Connect, and in threads that the function of ``foreachBatch`` has started.

    :raises ConfigError: the options or the table must be changed; or the table was written by another query.
    :raises CalvingError: the batch may have landed, or not; let the query fail, and start it again.
    """
    read_options = read({**options, "table": table, "sink": sink})
    written = _WRITTEN.setdefault(frame.sparkSession, {})
    place, this = (table, read_options.keys.branch, sink), (batch_id, frame.semanticHash())
    before = written.get(place, this)
    if before[0] == batch_id and before != this:
        raise ConfigError(
            f"table {table}: write_batch was called before in batch {batch_id} with the sink {sink} and another"
            " DataFrame, so the rows of this call would be taken for the first ones, and lost: give this call a sink of"
            " its own"
        )
    query = None if _is_known(frame) else _query(frame, checkpoint)
    rows = frame.mapInArrow(_Task(plan(read_options, frame.schema), __version__), f"{_COLUMN} binary")
    messages = [pickle.loads(row[_COLUMN]) for row in rows.collect()]  # noqa: S301 - from this query's own tasks
    commit_stream(read_options, messages, batch_id, query)
    written[place] = this


def _is_known(frame: DataFrame) -> bool:
    """Whether the tasks that this thread starts know their query."""
    return not is_remote() and frame.sparkSession.sparkContext.getLocalProperty(QUERY) is not None


def _query(frame: DataFrame, checkpoint: str | None) -> str:
    """The id of the query, which Spark writes into a checkpoint before the first batch.

    :raises ConfigError: no checkpoint is named.
    """
    if checkpoint is None:
        raise ConfigError(
            "the tasks of this batch would not know their query, as on Spark Connect, and in threads that the function"
            " of foreachBatch has started: call write_batch with checkpoint = the query's checkpointLocation"
        )
    (row,) = frame.sparkSession.read.text(f"{checkpoint.rstrip('/')}/metadata").collect()
    found: str = json.loads(row["value"])["id"]
    return found


class _Task:
    """What each task does. It is sent to the tasks."""

    def __init__(self, of_table: WritePlan, version: str) -> None:
        self._plan, self._version = of_table, version

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        # Imported here, because the driver writes nothing.
        from calving_spark.tasks import write

        message = write(self._plan, self._version, batches)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(message)], pa.binary())], names=[_COLUMN])
