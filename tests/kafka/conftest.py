from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.topic import Topic
from tests.kafka.sinks import Sink


@pytest.fixture
def sink(servers: str, unique: str, topic: Callable[..., Topic]) -> Iterator[Callable[..., Sink]]:
    made: list[Sink] = []

    def make(protocol: str = "classic", partitions: int = 1, **options: object) -> Sink:
        made.append(Sink(servers, f"{unique}-{len(made)}", topic(partitions), protocol, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
