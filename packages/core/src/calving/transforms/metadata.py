"""KafkaMetadataTransform: adds a record's topic, partition and offset to the record."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from calving.errors import ConfigError
from calving.records.values import Records
from calving.transforms.columns import Fields, check_options, flag, struct_of
from calving.transforms.interface import NO_FIELDS, Transform


class KafkaMetadataTransform(Transform):
    """Adds topic, partition, offset, timestamp (milliseconds) and a constant (``external_field`` = key,value).

    If ``nested``, they are one struct named ``field_name``. Otherwise they are fields ``<field_name>_topic`` and so on.
    """

    null_types = NO_FIELDS
    keeps_names = True
    ordered = False
    needs = frozenset({"offset", "timestamp"})
    tombstones = False

    def __init__(self, options: Mapping[str, str]) -> None:
        check_options(options, ("field_name", "nested", "external_field"), "KafkaMetadataTransform")
        self._name = options.get("field_name") or "_kafka_metadata"
        self._nested = flag(options, "nested", "KafkaMetadataTransform")
        external = options.get("external_field")
        self._external = None if external is None else tuple(external.split(","))
        if self._external is not None and len(self._external) != 2:
            raise ConfigError(f"transform KafkaMetadataTransform: external_field is key,value, not '{external}'")

    def apply(self, records: Records) -> Records:
        fields = Fields(records.value)
        count = len(records)
        columns = {
            "topic": records.topic,
            "partition": pa.repeat(pa.scalar(records.partition, pa.int32()), count),
            "offset": records.offset,
            "timestamp": records.timestamp.cast(pa.int64()),
        }
        if self._external is not None:
            columns[self._external[0]] = pa.repeat(self._external[1], count)
        if self._nested:
            fields.add(self._name, struct_of(columns, None, count), records.typed)
        else:
            for name, column in columns.items():
                fields.add(f"{self._name}_{name}", column, records.typed)
        return records.with_value(fields.column())
