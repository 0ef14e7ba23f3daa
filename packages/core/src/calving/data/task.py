"""The task: reads its ranges, decodes, transforms, routes, converts and writes. The same in Spark and in process."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence

from calving.data.delivery import Delivery
from calving.data.pipeline import Pipeline
from calving.data.reader import Block, RangeReader
from calving.data.records import Bad
from calving.data.spec import Range, RangeResult, TaskResult, TaskSpec
from calving.data.stages import Stages
from calving.errors import BadRecordError, ConfigError, DataLossError
from calving.model.dead_letters import DeadLetter, origin


def run(spec: TaskSpec) -> TaskResult:
    """Files and one result per range; or only needs, if some record does not fit its table as it is.

    Raises what may pass by another attempt; a record that can never be taken, or a table that cannot be written as its
    properties want, is an ``error`` of the result, so that nobody tries again.
    """
    task = _Task(spec)
    collecting = gc.isenabled()
    # A message is an object that the collector tracks: walking over them again and again costs more than reading them.
    gc.disable()
    try:
        return task.run()
    except (BadRecordError, ConfigError, DataLossError) as error:
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
        self._stages = Stages()
        self._reader = RangeReader(spec.kafka, spec.limits)
        self._delivery = Delivery(spec, self._stages)
        self._pipeline = Pipeline(spec, self._delivery, self._stages)
        self._letters: list[DeadLetter] = []
        self._rejected = 0
        self._first_rejected: str | None = None

    def run(self) -> TaskResult:
        spec = self._spec
        ranges = [self._run_range(source) for source in spec.ranges]
        needs = self._delivery.needs
        if needs:
            self.discard()
            return TaskResult(spec.number, needs=needs, stages=self._stages.seconds)
        with self._stages("write"):
            files = self._delivery.close()
        return TaskResult(
            spec.number,
            files,
            ranges,
            rejected=self._letters,
            first_rejected=self._first_rejected,
            stages=self._stages.seconds,
        )

    def discard(self) -> None:
        self._delivery.discard()

    def _run_range(self, source: Range) -> RangeResult:
        read = written = rejected = size = 0
        filtered: Counter[str] = Counter()
        latest: int | None = None
        blocks = self._reader.read(source)
        while True:
            with self._stages("fetch"):
                block = next(blocks, None)
                if block is None:
                    break
                values = block.values
                latest_here = block.latest_ms
            if latest_here is not None:
                latest = latest_here if latest is None else max(latest, latest_here)
            outcome = self._pipeline.run(block, values)
            self._reject(block, outcome.bad)
            read += len(block)
            written += outcome.written
            rejected += len(outcome.bad)
            filtered.update(outcome.filtered)
            size += sum(map(len, filter(None, values)))
        if not self._delivery.needs and read != written + rejected + sum(filtered.values()):
            raise RuntimeError(
                f"{source}: read {read} records, wrote {written}, rejected {rejected}, filtered {dict(filtered)}"
            )
        return RangeResult(source, read, written, rejected, dict(filtered), size, latest)

    def _reject(self, block: Block, bad: Sequence[Bad]) -> None:
        if not bad:
            return
        bad = sorted(bad, key=lambda b: b.index)
        tolerance = self._spec.tolerance
        fatal = next((b for b in bad if b.fatal or tolerance.to == "error"), None)
        if fatal is not None:
            raise BadRecordError(_located(block, fatal))
        if self._first_rejected is None:
            self._first_rejected = _located(block, bad[0])
        self._rejected += len(bad)
        if self._rejected > tolerance.at_most:
            raise BadRecordError(
                f"more than errors.max-per-batch = {tolerance.at_most} bad records; the first: {self._first_rejected}"
            )
        letters = [self._letter(block, b) for b in bad]
        if tolerance.to == "topic":
            self._letters += letters
        else:
            self._delivery.dead_letters(letters)

    def _letter(self, block: Block, bad: Bad) -> DeadLetter:
        i = bad.index
        place = (block.source.topic, block.source.partition, block.offsets[i])
        headers = tuple(block.headers[i])
        if self._spec.tolerance.replayed:
            place = origin(headers) or place
        return DeadLetter(
            *place,
            block.timestamps_ms[i],
            block.keys[i],
            block.values[i],
            headers,
            bad.stage,
            bad.error,
            bad.reason,
        )


def _located(block: Block, bad: Bad) -> str:
    source = block.source
    return f"topic '{source.topic}', partition {source.partition}, offset {block.offsets[bad.index]}: {bad.reason}"


def run_json(text: str) -> str:
    """``run`` for engines that ship text."""
    return run(TaskSpec.from_json(text)).to_json()
