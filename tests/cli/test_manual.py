"""The examples of the manual, run: records into the topics, rows out of the tables."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

import calving
from calving.iceberg.catalog import find_table, open_catalog, table_id
from calving.source.client import client_config
from harness.topic import Topic
from tests.cli.pages import modules

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if "<!-- rows" in path.read_text())


def blocks(text: str, kind: str) -> dict[str, list[str]]:
    """The blocks behind ``<!-- kind name -->``, by name."""
    found = re.findall(rf"<!-- {kind} (\S+) -->\n```jsonl\n(.*?)```", text, re.DOTALL)
    return {name: content.strip().splitlines() for name, content in found}


def plain(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [json.loads(json.dumps(row, default=str)) for row in rows]


def test_every_page_about_records_has_an_example_that_runs() -> None:
    assert set(PAGES) == {
        "reference/bad-records.md",
        "reference/converters.md",
        "reference/evolution.md",
        "how-to/extend.md",
        "reference/routing.md",
        "reference/transforms.md",
        "reference/types.md",
    }


@pytest.mark.parametrize("page", PAGES)
def test_an_example_gives_what_the_manual_says(
    page: str, servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (DOCS / page).read_text()
    for block in modules(page):
        (tmp_path / str(block.title)).write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    example = next(t for t in re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
    for name, records in blocks(text, "records").items():
        Topic(servers, name).send(*(record.encode() for record in records))
    settings = tomllib.loads(example) | {
        "kafka.bootstrap.servers": servers,
        "iceberg.engine": "local",
        "iceberg.control.topic": f"control-{Path(page).stem}",
        "iceberg.catalog.type": "embedded",
        "iceberg.catalog.warehouse": str(tmp_path),
    }
    sink = calving.build(settings)
    calving.Worker(sink).run(until_caught_up=True)
    catalog = open_catalog("iceberg", sink.catalog)
    for name, rows in blocks(text, "rows").items():
        table = find_table(catalog, table_id(name))
        assert table is not None
        found = sorted(plain(table.scan().to_arrow().to_pylist()), key=lambda row: str(row["id"]))
        assert found == [json.loads(row) for row in rows]
    for name, records in blocks(text, "dead").items():
        assert values(servers, name) == records


def values(servers: str, topic: str) -> list[str]:
    consumer = Consumer(
        client_config({"bootstrap.servers": servers}, group_id="manual", isolation_level="read_committed")
    )
    consumer.assign([KafkaPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(3)) is not None:
        found.append((message.value() or b"").decode())
    consumer.close()
    return found
