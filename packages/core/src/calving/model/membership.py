"""The name of calving's members of a consumer group, and a member's proof that it belongs to the group."""

from __future__ import annotations

from dataclasses import dataclass

WORKER = "calving"
"""The beginning of the client id of every worker in a consumer group."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One member's proof that it is in the consumer group, taken from the live consumer just before it is used.

    ``member_id`` is empty for a consumer outside the group. Only a backend looks at ``token``.
    """

    member_id: str
    token: object
