"""The converters of one task: bytes to values, those that are too large told from the others."""

from __future__ import annotations

from calving.converters.interface import Converter, Decoded, stage
from calving.converters.registry import converter
from calving.model.record_path import TopicConverters
from calving.records.payloads import Payloads
from calving.records.projection import Projection
from calving.records.values import RecordError
from calving.tasks.spec import TaskSpec

_KEY = "key of a record"


class Decoders:
    """One converter for each topic and use, which learns from what it has decoded."""

    def __init__(self, spec: TaskSpec) -> None:
        self._spec = spec
        self._converters: dict[tuple[str, str], Converter] = {}

    def projects(self, topic: str, use: str) -> bool:
        """Whether values of this topic come with what a projection wants of them only."""
        return self._converter(topic, use).projects

    def keys(self, topic: str, keys: Payloads) -> Decoded:
        """Keys, whole."""
        return self._converter(topic, _KEY).decode(keys, None)

    def decode(self, topic: str, use: str, values: Payloads, projection: Projection | None) -> Decoded:
        """Values as ``projection`` wants them. ``use`` keeps apart what converters learn for different projections."""
        if not values:
            return Decoded()
        most = self._spec.path.limits.record_bytes
        if values.longest <= most:
            return self._converter(topic, use).decode(values, projection)
        sizes = [len(value) for value in values]
        kept = [i for i, size in enumerate(sizes) if size <= most]
        decoded = self.decode(topic, use, values.take(kept), projection).within(kept)
        reason = "{} bytes are more than iceberg.limits.record-bytes = {}"
        decoded.bad += [
            RecordError(i, stage(is_key=False), "RecordTooLargeError", reason.format(size, most))
            for i, size in enumerate(sizes)
            if size > most
        ]
        return decoded

    def _converter(self, topic: str, use: str) -> Converter:
        found = self._converters.get((topic, use))
        if found is None:
            specs, is_key = self._spec.path.converters, use == _KEY
            both = specs.get(topic) or specs.get("") or TopicConverters()
            spec = both.key if is_key else both.value
            found = converter(spec.name, spec.options, is_key=is_key, limits=self._spec.path.limits)
            self._converters[topic, use] = found
        return found
