"""The decoders in Rust of the distribution ``calving-native``, if it is installed.

The decoders read a value only if they read it exactly as the exact path does. They refuse all other values, which take
the exact path.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from calving.converters.interface import Decoded
from calving.records.arrays import Indices, compose, conform, without
from calving.records.cells import FullBlockError, Together
from calving.records.presence import FieldPath, Missing, divided
from calving.records.values import Payloads, Values
from calving.version import __version__

SWITCH = "CALVING_NATIVE"
_ROUNDS = 8
"""Values of at most this many schemas in a block are read in Rust. Values of other schemas take the exact path."""

NULL_VALUE, NO_NULL = -2, -1
"""How a null is written: as a value, or never. Any other number is the branch of a union that means null."""


Description = tuple[list[str], str, list[Any], int, int]
"""Names, kind, inner fields, null, and the number of a tracked field (-1: none)."""
Pieces = list[tuple[pa.Array, Indices]]
"""Columns of values, each with the places of its values in the block."""


class NoWayError(Exception):
    """The decoders cannot read these values in one way."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field as the decoders know it: its names, its kind, its inner fields, and how its null is written.

    :raises NoWayError: its name contains a zero character; no column with such a name can be passed from Rust to
        Python.
    """

    names: tuple[str, ...]
    kind: str
    inner: tuple[Field, ...] = ()
    null: int = NULL_VALUE
    tracked: bool = False
    """Whether a decoder of JSON tells which records lack the field. Otherwise this is the same as null."""

    def __post_init__(self) -> None:
        if any("\0" in name for name in self.names):
            raise NoWayError

    def described(self, path: FieldPath, tracked: list[FieldPath]) -> Description:
        """The field in the form that the decoder takes. ``path``: of what is around it. ``tracked`` gets the paths of
        the tracked fields; the places there are their numbers.
        """
        path, number = (*path, self.names[0]), -1
        if self.tracked:
            number = len(tracked)
            tracked.append(path)
        return [*self.names], self.kind, [inner.described(path, tracked) for inner in self.inner], self.null, number


def _described(fields: Sequence[Field], tracked: list[FieldPath] | None = None) -> list[Description]:
    return [field.described((), [] if tracked is None else tracked) for field in fields]


def _installed() -> Any:
    try:
        return importlib.import_module("calving_native")
    except ImportError:
        return None


_NATIVE = _installed()
_INTERFACE = 6
"""The interface of calving-native that calving uses. It changes with every change of a signature."""


def absence() -> str | None:
    """The reason why there are no decoders in Rust; None if there are."""
    if os.environ.get(SWITCH) == "0":
        return f"switched off by {SWITCH} = 0"
    if _NATIVE is None:
        return "calving-native is not installed"
    if _NATIVE.__version__.split(".")[:2] != __version__.split(".")[:2]:
        return f"calving-native {_NATIVE.__version__} is of another version"
    if getattr(_NATIVE, "INTERFACE", 0) != _INTERFACE:
        return "calving-native is another build than calving needs: install the version that belongs to calving"
    return None


class Decoder:
    """Reads values of one form.

    :raises FullBlockError: from its methods, if the values take too many cells together.
    """

    def __init__(self, decoder: Any, tracked: Sequence[FieldPath] = ()) -> None:
        self._decoder, self._tracked = decoder, tracked

    def read(
        self, values: Sequence[bytes], head: bytes = b"", tail: bytes = b""
    ) -> tuple[pa.StructArray, list[int], list[int]]:
        """The rows, the places of refused values, and the places of values that are not between ``head`` and
        ``tail``.
        """
        with _divided():
            rows, refused, others = self._decoder.decode(Payloads.of(values).column, head, tail)
        return cast("pa.StructArray", pa.array(rows)), refused, others

    def pieces(self, values: Payloads) -> tuple[Pieces, Indices]:
        """The decoded values, by the tracked fields that they lack, and the places of refused values."""
        if self._tracked:
            return self._pieces_apart(values)
        with _divided():
            made, refused, _ = self._decoder.decode(values.column, b"", b"")
        rows, count = pa.array(made), len(values.column)
        places = without(count, {*refused}) if refused else range(count)
        return ([(rows, places)] if len(rows) else []), refused

    def _pieces_apart(self, values: Payloads) -> tuple[Pieces, Indices]:
        rows, refused, shapes = self.read_whole(values)
        numbers: dict[Missing, list[pa.Array]] = {}
        for steps, of_shape in shapes:
            numbers.setdefault(Missing(self._tracked[step] for step in steps), []).append(of_shape)
        places = without(len(values), {*refused})
        if numbers.keys() == {Missing()}:
            return [(rows, places)], refused
        missing = {fields: pa.concat_arrays(parts).sort().to_pylist() for fields, parts in numbers.items()}
        return [(part, compose(places, chosen)) for part, chosen in divided(rows, missing)], refused

    def read_whole(self, values: Sequence[bytes]) -> tuple[pa.StructArray, list[int], list[tuple[list[int], pa.Array]]]:
        """The rows, the places of refused values, and the shapes of the rows: the steps of each shape, with its rows. A
        decoder of some fields has steps only for the tracked ones that a row lacks.
        """
        with _divided():
            rows, refused, shapes = self._decoder.decode_whole(Payloads.of(values).column)
        places_of = [(steps, pa.array(places)) for steps, places in shapes]
        return cast("pa.StructArray", pa.array(rows)), refused, places_of


@contextmanager
def _divided() -> Iterator[None]:
    try:
        yield
    except OverflowError as error:
        raise FullBlockError from error


def json_decoder(fields: Sequence[Field], *, closed: bool, fold: bool = False, nesting: int, cells: int) -> Decoder:
    """A decoder of JSON objects. ``closed``: other fields are ignored. ``fold``: names are compared ignoring case."""
    tracked: list[FieldPath] = []
    return Decoder(_NATIVE.Decoder.of_json(_described(fields, tracked), closed, fold, nesting, cells), tracked)


def whole_json_decoder(fields: Sequence[Field], *, nesting: int, cells: int) -> Decoder:
    """A decoder of JSON objects that have no other fields. It also returns their shapes."""
    return Decoder(_NATIVE.Decoder.of_whole_json(_described(fields), nesting, cells))


def avro_decoder(fields: Sequence[Field], cells: int) -> Decoder:
    """A decoder of Avro's records."""
    return Decoder(_NATIVE.Decoder.of_avro(_described(fields), cells))


def protobuf_decoder(fields: Sequence[Field], message: Sequence[object], cells: int) -> Decoder:
    """A decoder of Protobuf's messages; ``message`` describes their bytes."""
    return Decoder(_NATIVE.Decoder.of_protobuf(_described(fields), message, cells))


@dataclass(frozen=True, slots=True)
class Frame:
    """Values of one schema: their decoder, the type of their column, and the bytes before and after each."""

    decoder: Decoder
    type: pa.DataType
    head: bytes
    tail: bytes = b""


def read_framed(
    values: Payloads, frame_of: Callable[[bytes], Frame | None], together: Together
) -> tuple[Pieces, list[int]]:
    """The decoded values, and the places of the values that have to take the exact path.

    ``frame_of`` returns the frame of a value, and of all values with the same bytes around them; None if the value goes
    the exact path.

    :raises FullBlockError: the values take too much together.
    """
    pieces: Pieces = []
    rest: list[int] = []
    pending: Indices = range(len(values))
    for _ in range(_ROUNDS):
        if not pending:
            break
        frame = frame_of(values[pending[0]])
        if frame is None:
            rest.append(pending[0])
            pending = pending[1:]
            continue
        rows, refused, others = frame.decoder.read(values.take(pending), frame.head, frame.tail)
        if len(rows):
            places = without(len(pending), {*refused, *others})
            column = conform(rows, frame.type)
            together.add(column)
            pieces.append((column, compose(pending, places)))
        rest += compose(pending, refused)
        if len(others) == len(pending):
            break
        pending = compose(pending, others)
    return pieces, sorted([*rest, *pending])


def decode_framed(
    values: Sequence[bytes],
    frame_of: Callable[[bytes], Frame | None],
    exactly: Callable[[Sequence[bytes], Together], Decoded],
    cells: int,
) -> Decoded:
    """The decoded values. Values with a frame of ``frame_of`` are decoded in Rust, the others by ``exactly``.
    ``cells``: the most of a record.

    :raises FullBlockError: the values take too much together.
    """
    payloads = Payloads.of(values)
    together = Together(cells, len(payloads))
    pieces, rest = read_framed(payloads, frame_of, together)
    if not pieces:
        return exactly(payloads.items, together)
    others = exactly(payloads.take(rest).items, together).within(rest) if rest else Decoded()
    return Decoded([*(Values(column, True, places) for column, places in pieces), *others.values], others.bad)
