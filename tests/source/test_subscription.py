"""The expression that librdkafka gets matches the topics that the sink's own matches."""

from __future__ import annotations

import subprocess

import pytest

from calving.records.regex import Regex
from calving.source.group import subscription

TOPICS = ["a", "b", "ab", "xa", "bx", "shop-1", "shop-12", "shop-d", "a.b", "a-b", "shop-1.x"]


@pytest.mark.parametrize("regex", ["a|b", r"shop-\d+", r"shop-\D", "(?:a|b)x?", r"a\.b", "a.b", "[a\\-]+.b", "shop-.*"])
def test_the_same_topics_match_in_full(regex: str) -> None:
    done = subprocess.run(["grep", "-E", subscription(regex)], input="\n".join(TOPICS), capture_output=True, text=True)
    mine = Regex(regex).matching(TOPICS)
    assert done.stdout.split() == [topic for topic in TOPICS if topic in mine]
