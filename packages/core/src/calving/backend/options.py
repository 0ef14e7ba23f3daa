"""Settings that every backend has."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from calving.backend.headers import Signer
from calving.model.sink import SinkIdentity


class LogOptions(BaseModel):
    """Settings of every backend."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    on_truncation: Literal["fail", "continue"] = Field(
        "fail",
        alias="iceberg.control.on-truncation",
        description="The coordinator's response if the control log no longer has the saved position. `continue`: it"
        " reads the entries that are left.",
    )
    max_message_bytes: int = Field(
        900_000,
        ge=20_000,
        alias="iceberg.control.max-message-bytes",
        description="Size limit of a control event, in bytes; the sink divides longer lists of files. Keep it below"
        " the store's limit: with Kafka, the topic's max.message.bytes.",
    )
    secret: SecretStr | None = Field(
        None,
        min_length=16,
        alias="iceberg.control.secret",
        description="The secret with which all workers of the sink sign their control events: at least 16 characters."
        " With it the sink ignores events of its group that are not signed so, those of the Java sink included.",
    )
    old_secret: SecretStr | None = Field(
        None,
        min_length=16,
        alias="iceberg.control.old-secret",
        description="A second secret whose signatures the sink accepts, to change `iceberg.control.secret` while"
        " workers run.",
    )

    @model_validator(mode="after")
    def _has_a_secret(self) -> LogOptions:
        if self.old_secret is not None and self.secret is None:
            raise ValueError("iceberg.control.old-secret needs iceberg.control.secret")
        return self

    def signer(self, sink: SinkIdentity) -> Signer | None:
        """None without a secret: then nothing is signed or checked."""
        if self.secret is None:
            return None
        old = None if self.old_secret is None else self.old_secret.get_secret_value().encode()
        return Signer(self.secret.get_secret_value().encode(), sink.control_topic, sink.group, old)
