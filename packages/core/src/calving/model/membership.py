"""A member's proof that it belongs to the consumer group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """One member's proof that it is in the consumer group, taken from the live consumer just before it is used.

    ``member_id`` is empty for a consumer outside the group. Only a backend looks at ``token``.
    """

    member_id: str
    token: object
