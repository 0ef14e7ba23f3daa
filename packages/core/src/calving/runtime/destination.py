"""Where an operator wants the positions of a stopped sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calving.errors import ConfigError
from calving.model.offsets import SourceOffsets
from calving.source.start import EARLIEST, Start


@dataclass(frozen=True, slots=True)
class Destination:
    """Where positions are to go. ``said``: the options of the command. ``place``: of partitions that ``start`` does not
    name; None if those stay. ``by``: how far, instead.
    """

    said: str
    start: Start = EARLIEST
    moves_all: bool = False
    by: int | None = None
    again: bool = False

    @staticmethod
    def of(to: Sequence[str], by: int | None, *, again: bool) -> Destination | None:
        """Of the options of the command. None if they name none.

        :raises ConfigError: they cannot be read, or do not go together.
        """
        if not to and by is None:
            if again:
                raise ConfigError("--again: say from where on records are read again, with --to or --by")
            return None
        if to and by is not None:
            raise ConfigError("--to and --by exclude each other")
        options = [*(f"--to {each}" for each in to), *([] if by is None else [f"--by {by}"]), *(["--again"] * again)]
        start, moves_all = _start_of(to)
        return Destination(" ".join(options), start, moves_all=moves_all, by=by, again=again)

    @staticmethod
    def at(offsets: SourceOffsets) -> Destination:
        """Exactly these offsets, whatever the names of the topics look like."""
        named = tuple(sorted(offsets.items()))
        said = " ".join(f"--to {tp.topic}:{tp.partition}={offset}" for tp, offset in named)
        return Destination(said, Start(offsets=named))


def _start_of(to: Sequence[str]) -> tuple[Start, bool]:
    """The place and the offsets that these options name, and whether they name a place.

    :raises ConfigError: they cannot be read, or name a partition twice.
    """
    try:
        starts = [Start.of(each) for each in to]
    except ValueError as error:
        raise ConfigError(f"--to: {error}") from error
    places = [each.place for each in starts if not each.offsets]
    offsets = [each for start in starts for each in start.offsets]
    if len(places) > 1 or len(dict(offsets)) < len(offsets):
        raise ConfigError("--to: name each partition once, and one place for all others")
    return Start(places[0] if places else "earliest", tuple(sorted(offsets))), bool(places)
