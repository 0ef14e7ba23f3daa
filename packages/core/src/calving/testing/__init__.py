"""The contracts of parts that other packages can add, as tests for the authors of these parts. They need pytest.

Write a test module with one class for each part, with the fixtures that the contract's docstring names::

    class TestMine(ConverterContract):
        @pytest.fixture
        def spec(self):
            return ConverterSpec("mine:Converter")

        @pytest.fixture
        def values(self):
            return [b"...", b"..."]

``BackendContract`` (rules B1 to B10) needs a harness, which starts, stops and inspects the backend's store.
"""

import pytest

# Else a failed assertion is reported without its values.
pytest.register_assert_rewrite(
    *(f"calving.testing.{name}" for name in ("contract", "converters", "engines", "formats", "transforms"))
)

from calving.model.record_path import ConverterSpec, PredicateSpec, TransformSpec  # noqa: E402
from calving.testing.contract import BackendContract  # noqa: E402
from calving.testing.converters import ConverterContract  # noqa: E402
from calving.testing.engines import EngineContract  # noqa: E402
from calving.testing.formats import FormatContract  # noqa: E402
from calving.testing.harness import Harness, member_claim  # noqa: E402
from calving.testing.transforms import PredicateContract, TransformContract, block, blocks  # noqa: E402

__all__ = [
    "BackendContract",
    "ConverterContract",
    "ConverterSpec",
    "EngineContract",
    "FormatContract",
    "Harness",
    "PredicateContract",
    "PredicateSpec",
    "TransformContract",
    "TransformSpec",
    "block",
    "blocks",
    "member_claim",
]
