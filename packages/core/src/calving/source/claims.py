"""Whether a claim names a member of the consumer group."""

from __future__ import annotations

import struct

from calving.model.membership import Claim

_METADATA_MAGIC = b"CGMDv2:"


def has_member(claim: Claim) -> bool:
    """Whether the metadata names a member of a generation; the broker would accept one that does not.

    The form is librdkafka's serialization (``rd_kafka_consumer_group_metadata_write``): magic, generation, group,
    member, each text ended by a NUL.
    """
    token = claim.token
    if not isinstance(token, bytes) or not token.startswith(_METADATA_MAGIC):
        return False
    body = token[len(_METADATA_MAGIC) :]
    (generation,) = struct.unpack("<i", body[:4])
    member = body[4:].split(b"\0")[1]
    return generation >= 0 and bool(member) and bool(claim.member_id)
