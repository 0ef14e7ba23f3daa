"""Metrics keep their names, and say what a status says."""

from __future__ import annotations

import time
import timeit
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from calving.model.offsets import Span, TopicPartition
from calving.protocol.rollback import RolledBack
from calving.serving.metrics import METRICS, exposition
from calving.status.values import PartitionStatus, Status
from tests.serving.sinks import NOW, status

GOLDEN = Path(__file__).parents[1] / "goldens" / "metrics.txt"


def declared() -> str:
    return "".join(f"{m.name} {m.kind} {','.join(m.series_labels)}\n" for m in METRICS)


def scraped(found: Status) -> list[Sample]:
    text, _ = exposition(lambda: found)("")
    return [s for family in text_string_to_metric_families(text.decode()) for s in family.samples]


def values(found: Status) -> dict[str, dict[tuple[str, ...], float]]:
    """By name and the labels beside the sink's, as a scrape has it."""
    by_name: dict[str, dict[tuple[str, ...], float]] = {}
    for sample in scraped(found):
        labels = tuple(value for name, value in sample.labels.items() if name != "sink")
        by_name.setdefault(sample.name, {})[labels] = sample.value
    return by_name


def test_names_types_and_labels_of_metrics_do_not_change_by_accident() -> None:
    assert declared() == GOLDEN.read_text()


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)
def test_a_metric_has_a_base_unit_and_a_sentence(metric: object) -> None:
    found = next(m for m in METRICS if m is metric)
    assert (found.kind == "counter") == found.name.endswith("_total")
    assert not any(unit in found.name for unit in ("_ms", "_millis", "_minutes", "_kb", "_mb"))
    assert found.text.endswith(".") or ":" in found.text


def test_every_metric_has_a_value_for_a_sink_that_works() -> None:
    found = values(
        replace(status(broken=1), worker=replace(status().worker, lost={"orders": 3}, passed_over={"orders": 3}))
    )
    names = {name.removesuffix("_bucket") for name in found}
    assert [m.name for m in METRICS if m.name not in names] == []


def test_offsets_that_a_rollback_has_removed_are_told_until_somebody_answers() -> None:
    found = status()
    gone = {"db.t001": RolledBack({TopicPartition("orders", 0): (Span(100, 300),)})}
    led = replace(found.coordinator, rolled_back=gone)
    told = [values(each)["calving_table_gone_records"] for each in (replace(found, coordinator=led), found)]
    assert [{name: number for (name,), number in each.items() if number} for each in told] == [{"db.t001": 200}, {}]


def test_every_series_names_its_sink() -> None:
    assert {sample.labels.get("sink") for sample in scraped(status(broken=1))} == {"orders"}


def test_the_record_counters_fulfil_the_books() -> None:
    found = {name: sum(samples.values()) for name, samples in values(status()).items()}
    taken = found["calving_records_read_total"] + found["calving_records_copied_total"]
    rest = ("written", "superseded", "deleted", "dead_lettered", "filtered")
    assert taken == sum(found[f"calving_records_{name}_total"] for name in rest)


def test_a_histogram_counts_upwards() -> None:
    found = values(status())
    assert found["calving_batch_duration_seconds_count"] == {(): 3}
    buckets = found["calving_batch_duration_seconds_bucket"]
    assert (buckets["0.25",], buckets["0.5",], buckets["+Inf",]) == (0, 1, 3)


def test_beyond_a_thousand_partitions_lag_is_told_by_topic() -> None:
    held = {TopicPartition("orders", p): PartitionStatus(1, 3, 0, 5) for p in range(1_001)}
    found = values(replace(status(), worker=replace(status().worker, partitions=held)))
    assert found["calving_source_lag_records"] == {("all", "orders"): 2_002}
    assert found["calving_commit_lag_records"] == {("all", "orders"): 3_003}


def test_beyond_five_hundred_tables_the_rest_is_one_that_is_as_late_as_the_latest_of_them() -> None:
    found = values(status(NOW, tables=510))
    committed = found["calving_table_last_commit_timestamp_seconds"]
    assert len(committed) == 501
    assert committed["other",] == NOW - 3


def test_no_metric_has_more_series_of_tables_than_that_and_none_of_their_sums_changes() -> None:
    full = status(NOW, tables=510)
    bounded, unbounded = values(full), full.worker.batches.records.written
    by_table = [m for m in METRICS if "table" in m.labels and m.name in bounded]
    assert len(by_table) > 9
    for metric in by_table:
        place = sorted(metric.labels).index("table")
        names = {labels[place] for labels in bounded[metric.name]}
        assert len(names) <= 501 and "other" in names, metric.name
    assert sum(bounded["calving_records_written_total"].values()) == sum(unbounded.values())
    assert bounded["calving_table_consecutive_failures"]["other",] == 0


def test_a_scrape_of_a_thousand_partitions_takes_less_than_a_tenth_of_a_second() -> None:
    found = status(partitions=1_000, tables=100)
    expose = exposition(lambda: found)
    # The shortest of many: others use the cores, too.
    assert min(timeit.repeat(lambda: expose(""), timer=time.thread_time, number=1, repeat=20)) < 0.1
