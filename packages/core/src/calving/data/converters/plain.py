"""Text and bytes as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from calving.data.converters.interface import Converter, Decoded, Wish, stage
from calving.data.records import Bad, Values
from calving.errors import ConfigError


class StringConverter(Converter):
    """UTF-8 text. Invalid UTF-8 is a bad record (Java's converter would replace it)."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        self._stage = stage(is_key)
        encoding = options.get("converter.encoding", "UTF-8")
        if encoding.upper() not in ("UTF-8", "UTF8"):
            raise ConfigError(f"converter.encoding = {encoding} is not supported: UTF-8 is")

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        raw = pa.array(values, pa.binary())
        try:
            return Decoded([Values(raw.cast(pa.string()), True)])
        except pa.ArrowInvalid:
            pass
        places, texts, bad = [], [], []
        for i, value in enumerate(values):
            try:
                texts.append(value.decode())
                places.append(i)
            except UnicodeDecodeError as error:
                bad.append(Bad(i, self._stage, type(error).__name__, f"not UTF-8: {error}"))
        return Decoded([Values(pa.array(texts, pa.string()), True, places)], bad)


class BytesConverter(Converter):
    """Bytes, untouched."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool) -> None:
        pass

    def decode(self, values: Sequence[bytes], wish: Wish | None) -> Decoded:
        return Decoded([Values(pa.array(values, pa.binary()), True)])
