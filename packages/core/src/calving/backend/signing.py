"""Signs the entries of a sink with a secret that its workers share, so that nobody else can write any."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SIGNATURE, _EVENTS = "signature", "events"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and checks entries with HMAC-SHA256. A signature holds for the events of one publication with their two
    headers, in one control topic and group. It does not hold for the place in the log and the name of the sender.

    ``old``: a second secret, whose signatures are right, too.
    """

    secret: bytes = field(repr=False)
    control_topic: str
    group: str
    old: bytes | None = field(default=None, repr=False)

    def signed(self, events: Sequence[bytes], coverage: bytes, beside: bytes) -> bytes:
        """The second header of these events, with their digests and the signature."""
        said = {**json.loads(beside), _EVENTS: [hashlib.sha256(event).hexdigest() for event in events]}
        signature = self._signature(self.secret, coverage, said)
        return json.dumps({**said, _SIGNATURE: signature}, separators=(",", ":")).encode()

    def verifies(self, event: bytes, coverage: bytes, beside: Mapping[str, Any]) -> bool:
        """Whether these, which may be anybody's, are an entry of this sink: an event, its first header, and the second
        one as JSON.
        """
        try:
            said = {name: value for name, value in beside.items() if name != _SIGNATURE}
            secrets = [self.secret] if self.old is None else [self.secret, self.old]
            right = [self._signature(secret, coverage, said).encode() for secret in secrets]
            is_right = any(hmac.compare_digest(each, beside[_SIGNATURE].encode()) for each in right)
            return is_right and hashlib.sha256(event).hexdigest() in said[_EVENTS]
        except Exception:  # somebody else's bytes
            return False

    def _signature(self, secret: bytes, coverage: bytes, said: Mapping[str, Any]) -> str:
        scope = [self.control_topic, self.group, coverage.decode("latin-1"), said]
        text = json.dumps(scope, separators=(",", ":"), sort_keys=True)
        return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
