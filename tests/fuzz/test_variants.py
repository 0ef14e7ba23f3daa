"""A short run of the fuzzer of variants."""

from __future__ import annotations

from tests.fuzz.run_variants import fuzz


def test_random_documents_are_read_back_by_other_decoders() -> None:
    wrong, count, _ = fuzz(seed=1, values=20_000)
    assert wrong == []
    assert count >= 20_000
