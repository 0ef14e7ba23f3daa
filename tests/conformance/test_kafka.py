from __future__ import annotations

from collections.abc import Iterator

import pytest

from calving.services.kafka import KafkaServer
from calving.testing import BackendContract, Harness
from harness.backends import KafkaHarness

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    # On a busy machine a broker of two seconds is fenced now and then. A killed one waits so long before it listens.
    settings = {"log.flush.interval.messages": "1", "broker.session.timeout.ms": "6000"}
    found = KafkaServer(tmp_path_factory.mktemp("kafka") / "data", settings)
    found.start()
    yield found
    found.stop()


class TestKafka(BackendContract):
    @pytest.fixture
    def harness(self, broker: KafkaServer, unique: str) -> Harness:
        return KafkaHarness(broker, unique)
