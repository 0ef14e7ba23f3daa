"""Variants that a decoder has encoded: columns of an Arrow type of their own, which no column of records has."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

_NAME = "calving.variant"
_PARTS = pa.struct([pa.field(part, pa.binary(), nullable=False) for part in ("metadata", "value")])


class Variant(NamedTuple):
    """A value in the binary encoding of variants."""

    metadata: bytes
    value: bytes


class _VariantScalar(pa.ExtensionScalar):
    def as_py(self, **options: object) -> Variant | None:
        parts = self.value
        return None if parts is None else Variant(**parts.as_py())


class VariantType(pa.ExtensionType):
    """The type of columns of encoded variants."""

    def __init__(self) -> None:
        super().__init__(_PARTS, _NAME)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> VariantType:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type[_VariantScalar]:
        return _VariantScalar


VARIANTS = VariantType()
pa.register_extension_type(VARIANTS)
