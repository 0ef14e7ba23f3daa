"""The task: reads its ranges, routes, converts and writes. The same function runs in Spark and in process."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyiceberg.schema import Schema

from calving.data.converters.interface import BadValueError, TableConverter
from calving.data.converters.registry import converter
from calving.data.fields import merge
from calving.data.reader import Block, RangeReader
from calving.data.routing import Router
from calving.data.spec import Need, Range, RangeResult, TaskResult, TaskSpec
from calving.data.writing import TableWriter
from calving.errors import BadRecordError, DataLossError


def run(spec: TaskSpec) -> TaskResult:
    """Files and one result per range; or only needs, if some record does not fit its table as it is.

    Raises what may pass by another attempt; a record that can never be taken is an ``error`` of the result, so that
    nobody tries again.
    """
    task = _Task(spec)
    collecting = gc.isenabled()
    # A message is an object that the collector tracks: walking over them again and again costs more than reading them.
    gc.disable()
    try:
        return task.run()
    except (BadRecordError, DataLossError) as error:
        task.discard()
        return TaskResult(spec.number, error=str(error), data_loss=isinstance(error, DataLossError))
    except BaseException:
        task.discard()
        raise
    finally:
        if collecting:
            gc.enable()


class _Task:
    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._converter = converter(spec.converter, spec.converter_options)
        self._router = Router(spec.routing)
        self._reader = RangeReader(spec.kafka, spec.limits)
        self._tables: dict[str, tuple[TableWriter, TableConverter]] = {}
        self._needs: dict[tuple[str, str, tuple[str, ...]], Need] = {}
        self._inferred: Counter[str] = Counter()
        self.result = TaskResult(spec.number)

    def run(self) -> TaskResult:
        self.result.ranges = [self._run_range(source) for source in self._spec.ranges]
        if self._needs:
            self.discard()
            return TaskResult(self._spec.number, needs=list(self._needs.values()), stages=self.result.stages)
        with self._stage("write"):
            self.result.files = {table: writer.close() for table, (writer, _) in self._tables.items()}
        for table, (writer, _) in self._tables.items():
            written = sum(file.record_count for file in self.result.files[table])
            if written != writer.rows:
                raise RuntimeError(f"table {table}: {writer.rows} rows were handed over, its files hold {written}")
        return self.result

    def discard(self) -> None:
        for writer, _ in self._tables.values():
            writer.discard()
        self._tables.clear()

    def _run_range(self, source: Range) -> RangeResult:
        read = routed = size = 0
        filtered: Counter[str] = Counter()
        latest: int | None = None
        blocks = self._reader.read(source)
        while True:
            with self._stage("fetch"):
                block = next(blocks, None)
                if block is None:
                    break
                values = block.values
                latest_here = block.latest_ms
            read += len(block)
            if latest_here is not None:
                latest = latest_here if latest is None else max(latest, latest_here)
            found, counts, here = self._run_block(block, values)
            filtered.update(counts)
            routed += found
            size += here
        if read != routed + sum(filtered.values()):
            raise RuntimeError(f"{source}: read {read} records, routed {routed}, filtered {dict(filtered)}")
        return RangeResult(source, read, routed, dict(filtered), size, latest)

    def _run_block(self, block: Block, raw: Sequence[bytes | None]) -> tuple[int, dict[str, int], int]:
        """Records routed, records filtered by cause, bytes read."""
        values: Sequence[bytes] = [v for v in raw if v is not None] if None in raw else raw  # type: ignore[assignment]
        size = sum(map(len, values))
        filtered = {"tombstone": len(raw) - len(values)} if len(values) < len(raw) else {}
        if not values:
            return 0, filtered, size
        with self._stage("decode"), _located(block, raw):
            routes = self._router.route(len(values), lambda path: self._converter.field_texts(values, path))
            if routes.first_unrouted is not None and self._spec.routing.unrouted == "fail":
                raise BadValueError(
                    routes.first_unrouted,
                    f"no route takes its '{self._spec.routing.field}'; correct the routes, or set"
                    " iceberg.tables.on-unrouted = skip",
                )
        filtered.update(routes.filtered)
        routed = routes.routed
        for table, index in routes.tables.items():
            chosen = values if index is None else [values[i] for i in index]
            with _located(block, raw, index):
                written = self._write(table, chosen)
            if not written:
                routed -= len(chosen)
                filtered["missing table"] = filtered.get("missing table", 0) + len(chosen)
        return routed, filtered, size

    def _write(self, table: str, values: Sequence[bytes]) -> bool:
        """Whether the table takes the values; what it needs for that is collected."""
        spec = self._spec
        if table in spec.missing:
            return self._missing(table, values)
        if table not in spec.tables:
            self._need(Need(table, "load"))
            return True
        if table not in self._tables:
            writer = TableWriter(spec.tables[table], spec.number, spec.limits)
            schema = Schema.model_validate_json(spec.tables[table].schema_json)
            self._tables[table] = (writer, self._converter.for_table(table, schema, spec.evolution))
        writer, to_rows = self._tables[table]
        with self._stage("convert"):
            converted = to_rows.convert(values)
        for need in converted.needs:
            self._need(need)
        # With a need the whole task runs again: from here on it only looks for more needs.
        if converted.rows is not None and not self._needs:
            with self._stage("write"):
                writer.write(converted.rows)
                self._relieve()
        return True

    def _missing(self, table: str, values: Sequence[bytes]) -> bool:
        if self._spec.evolution.create:
            room = self._spec.limits.inferred_records - self._inferred[table]
            if room > 0:
                self._inferred[table] += min(room, len(values))
                self._need(Need(table, "create", type=self._converter.infer(values[:room])))
            return True
        if self._spec.routing.missing_table == "skip":
            return False
        raise BadRecordError(
            f"table {table} does not exist: create it, or set iceberg.tables.auto-create-enabled = true,"
            " or iceberg.tables.on-missing-table = skip"
        )

    def _need(self, need: Need) -> None:
        key = (need.table, need.kind, need.path)
        known = self._needs.get(key)
        kind = need.type if known is None else merge(known.type, need.type)
        self._needs[key] = Need(need.table, need.kind, need.path, kind)

    def _relieve(self) -> None:
        writers = [writer for writer, _ in self._tables.values()]
        while sum(w.weight for w in writers) > self._spec.limits.buffered_bytes:
            max(writers, key=lambda w: w.weight).relieve()

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        started = time.thread_time()
        try:
            yield
        finally:
            self.result.stages[name] = self.result.stages.get(name, 0.0) + time.thread_time() - started


@contextmanager
def _located(block: Block, raw: Sequence[bytes | None], index: Sequence[int] | None = None) -> Iterator[None]:
    """Name the record that could not be taken."""
    try:
        yield
    except BadValueError as error:
        present = [i for i, value in enumerate(raw) if value is not None]
        place = present[error.index if index is None else index[error.index]]
        raise BadRecordError(
            f"topic '{block.source.topic}', partition {block.source.partition}, offset {block.offsets[place]}: {error}"
        ) from error


def run_json(text: str) -> str:
    """``run`` for engines that ship text."""
    return run(TaskSpec.from_json(text)).to_json()
