"""Arrow arrays under the types of tables."""

from __future__ import annotations

import pyarrow as pa
import pytest

from calving.records.arrays import conform


@pytest.mark.parametrize("kind", [pa.struct([("a", pa.int64())]), pa.map_(pa.string(), pa.int64())])
def test_a_list_does_not_conform_to_another_nested_type(kind: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="not of type"):
        conform(pa.array([[1]]), kind)
