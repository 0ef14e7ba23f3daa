"""The broker of the demo and the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from calving.host import cache_folder
from calving.services.kafka import KafkaServer, kafka

pytestmark = pytest.mark.services


def test_a_broker_leaves_its_classes_to_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kafka(tmp_path / "first"):  # its jars are there now
        jars = cache_folder() / "jars"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache_folder().mkdir()
    (cache_folder() / "jars").symlink_to(jars)
    for number in range(2):
        broker = KafkaServer(tmp_path / str(number))
        broker.start()
        broker.stop()
    assert broker.archive is not None
    assert broker.archive.options[0].startswith("-XX:SharedArchiveFile=")
