"""Text, bytes and single values as they are."""

from __future__ import annotations

import codecs
import struct
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from calving.converters.building import collect
from calving.converters.interface import DEFAULTS, Converter, Decoded, full, stage
from calving.errors import ConfigError
from calving.records.fields import Projection
from calving.records.values import Payloads, Values


class StringConverter(Converter):
    """Text in ``converter.encoding``, UTF-8 by default. A value that is not in this encoding is a bad record.

    Java's converter would put replacement characters in its place.
    """

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        encoding = options.get("converter.encoding", DEFAULTS["converter.encoding"])
        try:
            self._encoding = codecs.lookup(encoding).name
            "".encode(self._encoding)  # some codecs are no text encodings
        except LookupError as error:
            raise ConfigError(
                f"{full('converter.encoding', is_key)} = {encoding}: there is no such encoding: write one such as UTF-8"
            ) from error

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        if self._encoding == "utf-8":
            try:
                return Decoded([Values(Payloads.of(values).column.cast(pa.string()), True)])
            except pa.ArrowInvalid:
                pass
        decoded = Decoded()
        collect(decoded, pa.string(), values, range(len(values)), self._stage, self._text)
        return decoded

    def _text(self, value: bytes) -> str:
        return value.decode(self._encoding)


class BytesConverter(Converter):
    """Bytes, untouched."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        return Decoded([Values(Payloads.of(values).column, True)])


class _SingleConverter(Converter):
    """One big-endian value, as Kafka's serializer of the type writes it. Other lengths are bad records."""

    kind: ClassVar[pa.DataType]
    form: ClassVar[struct.Struct]

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)

    def decode(self, values: Sequence[bytes], projection: Projection | None) -> Decoded:
        decoded = Decoded()
        collect(decoded, self.kind, values, range(len(values)), self._stage, self._load)
        return decoded

    def _load(self, value: bytes) -> object:
        if len(value) != self.form.size:
            raise ValueError(f"{len(value)} bytes, where {self.kind} has {self.form.size}")
        return self.form.unpack(value)[0]


class ShortConverter(_SingleConverter):
    kind, form = pa.int16(), struct.Struct(">h")


class IntegerConverter(_SingleConverter):
    kind, form = pa.int32(), struct.Struct(">i")


class LongConverter(_SingleConverter):
    kind, form = pa.int64(), struct.Struct(">q")


class FloatConverter(_SingleConverter):
    kind, form = pa.float32(), struct.Struct(">f")


class DoubleConverter(_SingleConverter):
    kind, form = pa.float64(), struct.Struct(">d")


class BooleanConverter(_SingleConverter):
    """The byte 0 or 1."""

    kind, form = pa.bool_(), struct.Struct(">B")

    def _load(self, value: bytes) -> object:
        if value not in (b"\x00", b"\x01"):
            raise ValueError("a boolean is one byte, 0 or 1")
        return value == b"\x01"
