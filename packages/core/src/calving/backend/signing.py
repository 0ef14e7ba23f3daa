"""Signs the entries of a sink with a secret that its workers share, so that nobody else can write any."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from calving.model.sink import SinkIdentity

_SIGNATURE, _EVENTS = "signature", "events"


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs and checks entries with HMAC-SHA256. A signature holds for the events of one publication with their two
    headers, in one control topic and group.
    """

    secret: bytes = field(repr=False)
    control_topic: str
    group: str

    @staticmethod
    def of(sink: SinkIdentity, secret: SecretStr | None) -> Signer | None:
        """None without a secret: then nothing is signed or checked."""
        return None if secret is None else Signer(secret.get_secret_value().encode(), sink.control_topic, sink.group)

    def signed(self, events: Sequence[bytes], coverage: bytes, beside: bytes) -> bytes:
        """The second header of these events, with their digests and the signature."""
        said = {**json.loads(beside), _EVENTS: [hashlib.sha256(event).hexdigest() for event in events]}
        return json.dumps({**said, _SIGNATURE: self._signature(coverage, said)}, separators=(",", ":")).encode()

    def verifies(self, event: bytes, coverage: bytes | None, beside: bytes | None) -> bool:
        """Whether these bytes, which may be anybody's, are an entry of this sink."""
        try:
            said = json.loads(beside or b"null")
            given, events = said.pop(_SIGNATURE), said[_EVENTS]
            is_right = hmac.compare_digest(self._signature(coverage or b"", said).encode(), given.encode())
            return is_right and hashlib.sha256(event).hexdigest() in events
        except Exception:  # somebody else's bytes
            return False

    def _signature(self, coverage: bytes, said: Mapping[str, Any]) -> str:
        scope = [self.control_topic, self.group, coverage.decode("latin-1"), said]
        text = json.dumps(scope, separators=(",", ":"), sort_keys=True)
        return hmac.new(self.secret, text.encode(), hashlib.sha256).hexdigest()
