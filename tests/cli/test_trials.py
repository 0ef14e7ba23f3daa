"""The how-to guides on one machine: every command, and what it prints, beside the services of ``make services``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.forms import forms
from harness.services import ADDRESSES, services
from harness.topic import Topic
from tests.cli.pages import DOCS, blocks, follow

pytestmark = pytest.mark.services

TUTORIAL = "tutorial/first-sink.md"
PAGES = ["how-to/many-topics.md", "how-to/dead-letters.md", "how-to/schema-registry.md", "how-to/s3.md"]
PAGES += ["how-to/cluster.md", "how-to/from-the-java-sink.md", "how-to/operate.md", "how-to/recover.md"]
PAGES += ["how-to/maintain.md", "how-to/many-partitions.md", "how-to/positions.md"]
PAGES += ["how-to/audit.md", "how-to/backfill.md"]
SHORT = [f"how-to/{name}.md" for name in ("dead-letters", "schema-registry", "from-the-java-sink", "recover")]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with services(ADDRESSES, tmp_path_factory.mktemp("services"), fixed=False) as running:
        yield running


@pytest.mark.parametrize("page", forms(PAGES, SHORT))
def test_a_guide_runs_as_printed_on_one_machine(
    page: str, addresses: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [block for block in blocks(TUTORIAL) if block.title in ("send.py", "read.py", "sink.toml")]
    for block in reversed(named):  # the first sink.toml, not the changed one
        text = block.text.replace("localhost:9092", addresses["localhost:9092"])
        (tmp_path / str(block.title)).write_text(text)
    if page == "how-to/operate.md":
        first = next(block.text for block in blocks(TUTORIAL) if block.title == "first.jsonl")
        Topic(addresses["localhost:9092"], "clicks", 2).send(*first.encode().splitlines())
    assert follow(page, tmp_path, addresses)


@pytest.mark.parametrize("page", [page for page in PAGES if page != "how-to/operate.md"])
def test_a_guide_names_the_services_that_its_addresses_need(page: str) -> None:
    text = (DOCS / page).read_text()
    (said,) = re.findall(r"`make services NAMES='?([a-z0-9 ]+)'?`", text)
    ran = "".join(block.text for block in blocks(page) if block.runs)
    assert said.split() == [name for name, own in ADDRESSES.items() if any(each in ran for each in own)]
