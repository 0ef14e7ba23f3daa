"""Stored positions are asked for while the broker dies and comes back."""

from __future__ import annotations

import subprocess
import sys

from calving.services.kafka import KafkaServer
from harness.topic import Topic

ASKING = """
import logging, sys
from calving.errors import UnavailableError
from calving.model.offsets import TopicPartition
from calving_kafka.positions import StoredPositions

logging.getLogger("calving.librdkafka").setLevel(logging.CRITICAL)
positions = StoredPositions({"bootstrap.servers": sys.argv[1]}, "g", stable=False)
print("asking", flush=True)
for line in sys.stdin:
    for _ in range(2000):
        try:
            positions.read([TopicPartition("t", 0)], 1)
        except UnavailableError:
            pass
    print("alive", flush=True)
"""


def test_a_process_that_asks_survives_restarts_of_the_broker(own_broker: KafkaServer) -> None:
    Topic(own_broker.bootstrap_servers, "t")
    command = [sys.executable, "-c", ASKING, own_broker.bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        assert asking.stdout.readline() == "asking\n"
        for _ in range(2):
            asking.stdin.write("\n")
            asking.stdin.flush()
            own_broker.kill()
            own_broker.start()
            assert asking.stdout.readline() == "alive\n"
        asking.stdin.close()
    assert asking.returncode == 0
