"""What a broker cannot read any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.errors import UnexpectedError
from calving.model.offsets import Range
from calving.model.record_path import Limits
from calving.services.kafka import KafkaServer
from calving.source.opening import open_reader
from harness.topic import Topic

SIZE_AT = 8
"""Where the first batch of a segment has its size."""


def test_a_range_of_a_corrupt_segment_fails_with_the_brokers_error(
    own_broker: KafkaServer, tmp_path: Path, unique: str
) -> None:
    topic = Topic(own_broker.bootstrap_servers, unique)
    topic.send(b"a", b"b")
    (segment,) = (tmp_path / "kafka" / "data" / f"{unique}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(SIZE_AT)
        file.write(bytes(4))
    reader = open_reader({"bootstrap.servers": topic.servers}, Limits(stalled_seconds=3.0))
    with pytest.raises(UnexpectedError, match=r"no progress at offset 0 of 2 for 3 s: .*(corrupt|CRC|Broker: )"):
        list(reader.read([Range(unique, 0, 0, 2)]))
