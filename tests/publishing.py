"""The shortest proof that a backend's store lets a sink in."""

from __future__ import annotations

from calving.backend.interface import Backend
from calving.model.events import Publication
from calving.model.offsets import Advance, TopicPartition
from calving.testing import member_claim

_TP = TopicPartition("t", 0)


def publishes(backend: Backend) -> bool:
    """Whether a publication gets in, and is read back."""
    backend.provision()
    session = backend.open("m")
    session.publish(Publication((), {_TP: Advance(None, 5)}, {}), member_claim("group"))
    found = session.committed([_TP])
    session.close()
    return found == {_TP: 5}
