"""How long records wait, from the ends that a worker has seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from calving.model.offsets import Span, TopicPartition
from calving.status.partitions import Arrivals, HeldPartitions, arrived, seen

TP = TopicPartition("t", 0)


def test_the_oldest_record_that_is_not_visible_has_waited_since_it_was_seen() -> None:
    arrivals = seen(seen((), 10, 1.0, 0), 25, 2.0, 0)
    assert [arrived(arrivals, visible) for visible in (0, 9, 10, 24, 25)] == [1.0, 1.0, 2.0, 2.0, None]


def test_what_is_visible_is_no_longer_kept() -> None:
    assert seen(((10, 1.0), (25, 2.0)), 25, 3.0, 10) == ((25, 2.0),)
    assert seen(((10, 1.0),), 10, 3.0, 10) == ()


def test_an_end_that_has_not_grown_is_no_arrival() -> None:
    assert seen(((10, 1.0),), 10, 2.0, 0) == ((10, 1.0),)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=200), st.data())
def test_few_arrivals_are_kept_and_an_age_is_never_too_small(growth: list[int], data: st.DataObject) -> None:
    arrivals: Arrivals = ()
    all_of_them: list[tuple[int, float]] = []
    end = 0
    for now, grown in enumerate(growth):
        end += grown
        arrivals = seen(arrivals, end, float(now), 0)
        all_of_them.append((end, float(now)))
    assert len(arrivals) <= 16
    visible = data.draw(st.integers(0, end - 1))
    exact = next(at for end, at in all_of_them if end > visible)
    answer = arrived(arrivals, visible)
    assert answer is not None and answer <= exact


def test_a_partition_counts_records_that_are_read_and_not_committed() -> None:
    held = HeldPartitions({TP: 100}, {TP: 100}, {TP: (Span(0, 60),)}, {}, {TP: ((50, 1.0), (100, 2.0))}, 1_000.0)
    assert (held[TP].source_lag, held[TP].not_visible, held[TP].waiting_since) == (0, 40, 1_002.0)
