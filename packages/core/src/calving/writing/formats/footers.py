"""Marks nodes of a Parquet footer as variants, which Arrow cannot do, and as geometries, which it does for columns of
an extension type only: the annotation is put into the bytes of the footer's schema, and all else stays as Arrow has
written it.

A footer is a struct ``FileMetaData`` in Thrift's compact protocol: its second field is a list of ``SchemaElement``, the
nodes of the schema, depth first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calving.records.foreign import DEFAULT_CRS, EDGES, GeoType

MAGIC = b"PAR1"
_TAIL = 4 + len(MAGIC)
"""The bytes of the footer's length and of the magic number."""
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_VARINTS = (4, 5, 6)
_SCHEMA = 2
"""The field of ``FileMetaData`` with the schema."""
_FIELD_ID, _LOGICAL_TYPE = 9, 10
"""Fields of ``SchemaElement``."""
VARIANT_NODE = b"\x0c\x20\x13\x01\x00\x00"
"""``LogicalType`` with its field 16, a ``VariantType`` whose field 1, the version of the specification, is 1."""
_GEOMETRY, _GEOGRAPHY = 17, 18
"""Fields of ``LogicalType``."""
_I32 = 5


def geo_node(kind: GeoType) -> bytes:
    """``LogicalType`` with its field 17, a ``GeometryType``, or 18, a ``GeographyType``. Field 1 of both is the
    coordinate reference system, and field 2 of the second the algorithm of the edges; defaults are left out.
    """
    crs, edges = kind.crs.encode(), kind.edges or EDGES[0]
    inside, last = b"", 0
    if kind.crs.upper() != DEFAULT_CRS:
        inside, last = bytes([1 << 4 | _BINARY, *_unsigned(len(crs)), *crs]), 1
    if edges != EDGES[0]:
        inside += bytes([(2 - last) << 4 | _I32, EDGES.index(edges) << 1])
    field = _GEOMETRY if kind.edges is None else _GEOGRAPHY
    return bytes([_STRUCT, field << 1]) + inside + b"\x00\x00"


def _unsigned(number: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    rest = number >> 7
    return bytes([number & 127 | 128]) + _unsigned(rest) if rest else bytes([number])


def with_nodes(end: bytes, types: Mapping[int, bytes]) -> bytes:
    """The end of a file, from any byte before its footer on, with the nodes of these field ids marked as these logical
    types.

    :raises ValueError: it is no such end, or a node is missing or marked already.
    """
    size = int.from_bytes(end[-_TAIL : -len(MAGIC)], "little")
    start = len(end) - _TAIL - size
    if start < 0 or end[-len(MAGIC) :] != MAGIC:
        raise ValueError("the end of the file is no Parquet footer")
    footer = end[start : start + size]
    parts, done, missing = [], 0, {*types}
    for place, last, field_id in _nodes(footer):
        if field_id in missing:
            if last != _FIELD_ID:
                raise ValueError(f"the node of field {field_id} has a logical type already")
            missing.discard(field_id)
            parts += [footer[done:place], bytes([(_LOGICAL_TYPE - last) << 4 | _STRUCT]), types[field_id]]
            done = place
    if missing:
        raise ValueError(f"the footer has no nodes of the fields {sorted(missing)}")
    marked = b"".join((*parts, footer[done:]))
    return b"".join((end[:start], marked, len(marked).to_bytes(4, "little"), MAGIC))


def _nodes(footer: bytes) -> Iterator[tuple[int, int, int | None]]:
    """Each node of the schema: the place of its end, the number of its last field, and its field id."""
    reader = _Compact(footer)
    for number, kind in reader.fields():
        if number == _SCHEMA:
            for _ in range(reader.size()[0]):
                field_id, last = None, 0
                for last, inner in reader.fields():
                    if last == _FIELD_ID:
                        field_id = reader.signed()
                    else:
                        reader.skip(inner)
                yield reader.place - 1, last, field_id
            return
        reader.skip(kind)


class _Compact:
    """Reads Thrift's compact protocol."""

    def __init__(self, data: bytes) -> None:
        self._data, self.place = data, 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """The number and the type of each field of a struct. Read or skip its value before asking for the next."""
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self.signed()
            yield number, header & 15

    def size(self) -> tuple[int, int]:
        """The size of a list, and the type of its elements."""
        header = self._byte()
        return (self._varint() if header >> 4 == 15 else header >> 4), header & 15

    def signed(self) -> int:
        """An integer."""
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def skip(self, kind: int) -> None:
        """Pass over a value of a field."""
        if kind in _VARINTS:
            self._varint()
        elif kind == _BINARY:
            size = self._varint()
            self.place += size
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in (_LIST, _SET):
            count, inner = self.size()
            for _ in range(count):
                self.skip(_BYTE if inner in (_TRUE, _FALSE) else inner)
        elif kind in (_BYTE, _DOUBLE):
            self.place += 1 if kind == _BYTE else 8
        elif kind not in (_TRUE, _FALSE):  # a field's type is its value then
            raise ValueError(f"the footer has a field of the unknown type {kind}")

    def _byte(self) -> int:
        if self.place >= len(self._data):
            raise ValueError("the footer ends within a value")
        self.place += 1
        return self._data[self.place - 1]

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return number
