"""What is said of the place of a Java sink before calving starts there."""

from __future__ import annotations

from dataclasses import replace

from calving.model.offsets import TopicPartition
from calving.protocol.takeover import Place, TablePlace, verdict

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
STOPPED = Place(
    name="orders",
    group="connect-orders",
    control_topic="control",
    connector_group=None,
    members={},
    connector_members={},
    stored={P0: 10, P1: 20},
    announced={P0: 10, P1: 20},
    begins={P0: 0, P1: 0},
    ends={P0: 15, P1: 20},
    tables={"db.t": TablePlace(exists=True, control={0: 7}, version="1.12.0")},
    has_log=True,
    undecodable=0,
)
TASKS = {"a": "connector-consumer-orders-0", "b": "connector-consumer-orders-1"}


def refusal(**changed: object) -> str:
    """The only one."""
    (found,) = verdict(replace(STOPPED, **changed)).refusals  # type: ignore[arg-type]
    return found


def said(**changed: object) -> str:
    found = verdict(replace(STOPPED, **changed))  # type: ignore[arg-type]
    assert found.refusals == ()
    return "\n".join(found.happens)


def table(**changed: object) -> dict[str, TablePlace]:
    return {"db.t": replace(STOPPED.tables["db.t"], **changed)}  # type: ignore[arg-type]


def test_a_stopped_sink_that_has_committed_everything_is_taken_over() -> None:
    assert verdict(STOPPED).happens == (
        "no task of the Java sink runs in group connect-orders",
        "records are read from the stored positions on: orders-0 at 10, orders-1 at 20; 5 records wait there",
        "table db.t holds control offsets up to 0: 7; no announced file is missing in it",
    )
    assert verdict(STOPPED).refusals == ()


def test_files_that_were_announced_and_not_committed_come_first() -> None:
    assert "3 announced files are committed first" in said(tables=table(files=3))


def test_running_tasks_of_the_java_sink_share_the_partitions() -> None:
    assert "2 tasks of the Java sink: workers of calving share the partitions" in said(members=TASKS)


def test_any_member_that_is_not_calvings_may_be_a_task_of_the_java_sink() -> None:
    mixed = {"k": "calving", "l": "orders-reader", "m": "calving-orders-reader", **TASKS}
    known = "3 tasks of the Java sink (taken for such by a client id that is not calving's: orders-reader)"
    assert f"{known}: workers of calving share the partitions" in said(members=mixed)
    assert f"{known} run in group connect-orders, and a fleet" in refusal(members=mixed, changes_rows=True)
    assert "by Iceberg 1.9.2" in refusal(members={"b": "orders-reader"}, tables=table(version="1.9.2"))
    assert "2 members, which a worker" in said(members={"a": "calving", "c": "calving-orders-reader"})


def test_running_tasks_before_1_11_are_refused() -> None:
    assert "by Iceberg 1.9.2" in refusal(members=TASKS, tables=table(version="1.9.2"))
    said(tables=table(version="1.9.2"))


def test_running_tasks_are_refused_where_records_change_rows() -> None:
    assert "may have none" in refusal(members=TASKS, changes_rows=True)


def test_a_running_connector_of_tabular_is_refused() -> None:
    assert "PUT /connectors/orders/stop" in refusal(connector_group="connect-x", connector_members={"m": "c"})


def test_the_group_of_a_stopped_tabular_connector_is_named() -> None:
    assert "connect-x has a copy that calving does not move" in said(connector_group="connect-x")


def test_a_position_that_kafka_no_longer_has_is_refused_unless_it_may_be_skipped() -> None:
    assert "orders-1 is stored at 20, but begins at 30" in refusal(begins={P0: 0, P1: 30}, ends={P0: 15, P1: 40})
    said(begins={P0: 0, P1: 30}, ends={P0: 15, P1: 40}, skips=True)


def test_a_position_beyond_the_end_is_refused() -> None:
    assert "orders-1 is stored at 20, but ends at 4" in refusal(ends={P0: 15, P1: 4})


def test_commits_of_another_name_without_a_position_are_refused_with_the_key_to_set() -> None:
    others = frozenset({"control.connect-former"})
    assert "iceberg.control.other-sinks = control.connect-former" in refusal(stored={}, tables=table(others=others))
    said(stored={}, tables=table(others=others), known_sinks=tuple(others))
    said(tables=table(others=others))
    said(stored={}, tables=table(others=frozenset({"control.connect-former.backfill.x"})))


def test_commits_of_tabulars_group_name_the_class_to_set() -> None:
    others = frozenset({"control.cg-control-orders"})
    assert "connector.class = io.tabular" in refusal(stored={}, tables=table(others=others))


def test_entries_that_cannot_be_read_are_refused() -> None:
    assert "1 entry of control topic 'control' cannot be read" in refusal(undecodable=1)


def test_files_for_a_table_that_is_gone_or_another_one_are_refused_with_the_command() -> None:
    assert "calving release FILE --table db.t" in refusal(tables={"db.t": TablePlace(exists=False, files=2)})
    assert "was recreated since" in refusal(tables=table(files=1, recreated=True))


def test_partitions_without_a_position_are_read_from_their_beginning() -> None:
    assert "nothing is stored for orders-1, read from the beginning on" in said(stored={P0: 10}, start="the end")
    assert "read from the end on" in said(stored={}, start="the end")


def test_the_last_positions_on_the_control_topic_are_shown_where_none_is_stored() -> None:
    assert "as the last positions orders-0 at 10, orders-1 at 20" in said(stored={})


def test_ignored_keys_are_named_with_the_reason() -> None:
    assert "key header.converter is ignored: headers stay bytes" in said(
        ignored={"header.converter": "headers stay bytes"}
    )


def test_what_a_start_refuses_is_refused() -> None:
    assert refusal(troubles=("the control topic is compacted",)) == "the control topic is compacted"


def test_without_a_control_topic_it_is_a_first_start() -> None:
    assert "this is a first start" in said(has_log=False, stored={}, announced={})
