"""The contract of a coordination backend (rules B1 to B8) as tests, for whoever writes one.

A backend's own test module needs a harness and one class::

    class TestMine(BackendContract):
        @pytest.fixture
        def harness(self, tmp_path):
            return MyHarness(tmp_path)
"""

from calving.testing.contract import BackendContract
from calving.testing.harness import Harness, member_claim

__all__ = ["BackendContract", "Harness", "member_claim"]
