"""The interface of coordination backends: a control log, stored source positions, a saved position, and an election.

The rules B1 to B10 (docs/reference/rules.md) are named at the methods that have to keep them. A backend may raise only
these errors, and each tells the caller's next move: ``FencedError`` (nothing written: join again), ``UnavailableError``
(nothing written: try again), ``OutcomeUnknownError`` (start over from ``committed``), ``ConfigError`` and
``DataLossError`` (an operator has to act).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from calving.model.events import NOTHING_ATTACHED, Attachment, Envelope, Event, Publication, WorkerEnd
from calving.model.offsets import ControlOffsets, SourceOffsets, Topic, TopicPartition
from calving.model.sink import Claim, SinkIdentity
from calving.plugins import Registry

BACKENDS = Registry("backend", extras=("kafka", "redis", "zookeeper"))


@dataclass(frozen=True, slots=True)
class ControlLog:
    """The control log when a cursor was opened. ``identity`` changes when the log is recreated."""

    identity: str
    start: ControlOffsets
    """The first offsets that the cursor reads."""
    end: ControlOffsets
    """The end of the log that readers could see when the cursor was opened. Kafka may acknowledge a transaction before
    readers see its events; such events are beyond this end.
    """


class Cursor(ABC):
    """A reader of the control log. One thread uses it; the session's thread may be another."""

    log: ControlLog

    @property
    def undecodable(self) -> int:
        """Number of entries that were skipped because they cannot be decoded."""
        return 0

    @property
    def unreadable(self) -> Sequence[str]:
        """Sentences on the skipped entries of this sink that a cursor that replays would refuse; each names the
        partition and the offset.
        """
        return ()

    @property
    def unsigned(self) -> str:
        """A sentence on the last entry of this sink that was skipped because it is not signed with the sink's secret;
        empty if there is none.
        """
        return ""

    @property
    @abstractmethod
    def has_ended(self) -> bool:
        """Whether ``read`` has returned all entries that the log held from the cursor's start on when the cursor was
        opened. This must become true within seconds of reading, also if the last offsets hold no entries, or entries of
        other sinks.
        """

    @property
    def is_current(self) -> bool:
        """Whether ``read`` has returned every entry that is older than one which it has returned: of several
        partitions one may lag. False if the store does not tell at once. Only for a cursor that replays.

        A log of one partition is read in its order. So its cursor is current once it has ended.
        """
        return self.has_ended

    @abstractmethod
    def read(self, timeout: float) -> Sequence[Envelope]:
        """Read the next entries; wait up to ``timeout`` seconds for the first. Empty if there are none.

        B3: entries of one publisher come in the order of publication. Offsets in a partition grow, and no two entries
        have the same offset. B5: an entry may come twice. Entries that cannot be decoded are skipped, counted and
        logged, whatever their bytes, headers or fields are. A cursor that does not replay may omit the assignments of
        a DataComplete.

        :raises DataLossError: an entry of this sink that may have files, or source offsets of files, cannot be decoded.
            Only a cursor that replays raises it.
        :raises NewerVersionError: an entry of this sink cannot be decoded, and names a form that this version does not
            know. Every cursor raises it.
        """

    @abstractmethod
    def acknowledge(
        self,
        position: ControlOffsets,
        events: Sequence[Event],
        attached: Attachment = NOTHING_ATTACHED,
        departed: Collection[Topic] = (),
    ) -> None:
        """Append ``events`` and, if it is not empty, save ``position`` for the next replay, atomically.

        Only for a cursor that replays. Entries below the saved position may be trimmed (B8). ``attached`` is stored
        with the events, like a publication's spans. All coordinators write into one partition of the log, so a
        coordinator that reads its own event has read all events of its predecessors. The stored positions of the topics
        ``departed`` (qualified by topic id, see ``within``) are deleted, unless the store deletes them itself.

        :raises FencedError: a newer coordinator exists; nothing was written. Step down.
        :raises UnavailableError: nothing was written; try again.
        :raises OutcomeUnknownError: step down; a new cursor replays the log.
        """

    @abstractmethod
    def rewind(self, positions: SourceOffsets) -> None:
        """Atomically store ``positions``, whether higher or lower than the stored ones, and discard the log's entries,
        so that no coordinator reads these entries again (B9). For operators only, while the group has no members.

        Only for a cursor that replays. The cursor cannot be used afterwards, and the log may get a new identity.

        :raises FencedError: a newer coordinator exists; nothing was written.
        :raises UnavailableError: nothing was written; try again.
        :raises OutcomeUnknownError: repeat the rewind.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the cursor's resources. Safe to call twice."""


class Session(ABC):
    """One member's connection. One thread uses it. After an error close it and open a new one."""

    @abstractmethod
    def lead(self, held: Collection[TopicPartition], every: Collection[TopicPartition]) -> bool:
        """Keep this member alive, and return whether it leads now.

        B7: in the steady state there is one leader, and a dead leader is replaced within a bounded time. The election
        is for liveness only: two leaders are harmless. ``held`` are this member's source partitions, ``every`` those of
        all topics.
        """

    @abstractmethod
    def committed(self, partitions: Collection[TopicPartition]) -> SourceOffsets:
        """The stored source positions. A partition that was never stored is absent.

        :raises UnavailableError: try again.
        """

    @abstractmethod
    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """The topic id stored with each position: the topic id in its publication, or "" if the publication named none
        (B10). A position that was stored in another way, for example by a rewind, is absent.

        :raises UnavailableError: try again.
        """

    def log_ids(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, str]:
        """The identity of the control log to which each stored position belongs; "" if no identity was stored (B10).
        The mapping is empty for a backend that stores positions and log together, so that one cannot be lost without
        the other.

        :raises UnavailableError: try again.
        """
        return {}

    def moved_by_others(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        """Those of these partitions whose position was stored by somebody else: neither by a publication nor by a
        rewind. Always empty for a backend whose store only sinks write.

        :raises UnavailableError: try again.
        """
        return ()

    def take_over(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are now assigned to this member. If a dead owner may have left an undecided write, the
        backend decides it here, before ``committed`` is called for them.

        :raises UnavailableError: try again.
        """
        return

    @abstractmethod
    def publish(self, publication: Publication, claim: Claim) -> None:
        """Atomically append the events, advance the source positions and store their topic ids (B1, B10). The
        publication is durable when the call returns (B4).

        Dead letters are in the sink's dead-letter topic before the positions advance; a backend whose log is not in
        Kafka may write some of them twice.

        B2: refused if ``claim`` is stale or names no member, or if a stored position differs from the advance's
        ``start``.

        :raises FencedError: refused; nothing was written. If a stored position differs, the error is the subclass
            ``StaleError``.
        :raises UnavailableError: nothing was written; try again.
        :raises OutcomeUnknownError: start over from ``committed``.
        """

    @abstractmethod
    def report_end(self, end: WorkerEnd) -> None:
        """Append an entry that tells the end of a worker: a DataComplete about no partition, with ``Envelope.end``. It
        moves no position and fences nobody, so it needs no claim.

        :raises CalvingError: perhaps nothing was written; do not try again.
        """

    @abstractmethod
    def follow(self, *, replay: bool) -> Cursor:
        """Read the control log. With ``replay``, start at the saved position; if none is saved, at the earliest entry,
        never at the latest (C1). Without ``replay``, start at the end of the log, so that every StartCommit published
        from now on is read (B6).

        :raises DataLossError: the saved position has been truncated away, and the settings do not say to go on.
        """

    @abstractmethod
    def watch(self) -> Cursor:
        """Read the control log as a newly elected coordinator would, but without fencing anyone. The cursor cannot
        write. ``log.start`` is the saved position, or the earliest entry if none is saved. Some hundred entries before
        ``log.start`` come first, if they are still in the log.

        :raises DataLossError: the saved position has been truncated away, and the settings do not say to go on.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the leadership, and release the session's resources. Safe to call twice."""


class Backend(ABC):
    """The store as a whole."""

    name: ClassVar[str]
    settings: ClassVar[type[BaseModel]]
    """The class of the backend's own settings. The loader checks them and passes an instance to the constructor."""
    mirrors: ClassVar[bool] = False
    """True if source positions are not stored in the consumer group. The group then gets a copy of them for lag
    tools.
    """

    @abstractmethod
    def __init__(self, sink: SinkIdentity, settings: BaseModel) -> None:
        """Must not contact the store."""

    @abstractmethod
    def provision(self) -> None:
        """Create the missing parts of the store (topic, keys, nodes) and check the existing ones. Safe to call again.

        :raises ConfigError: the store cannot serve exactly-once as it is configured; the text names the setting.
        """

    @abstractmethod
    def open(self, member_id: str) -> Session:
        """Connect as ``member_id``, which no other process uses. After an error the process may open a new session with
        the same id. The new session decides any undecided write of the earlier session, and the earlier session can no
        longer write.
        """


def find(name: str) -> type[Backend]:
    """The backend with the entry point ``name``; no other backend is imported.

    :raises ConfigError: the backend is not installed (the text names the extra to install), or two packages claim the
        name.
    """
    backend: type[Backend] = BACKENDS.find(name, Backend)
    return backend
