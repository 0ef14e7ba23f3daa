"""The certificate with which the status server serves HTTPS."""

from __future__ import annotations

import ssl

from calving.errors import ConfigError
from calving.settings.keys import SinkKeys


def tls_context(keys: SinkKeys) -> ssl.SSLContext | None:
    """The server's certificate; None without HTTPS.

    :raises ConfigError: it cannot be read.
    """
    if keys.http_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(keys.http_certificate, keys.http_key)
    except ssl.SSLError as error:
        raise ConfigError(
            "iceberg.http.tls-certificate-file and iceberg.http.tls-key-file: not a certificate and its own key in PEM:"
            f" convert or correct them ({error})"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"iceberg.http.tls-certificate-file: {keys.http_certificate}: {error.strerror or error}"
        ) from error
    return context
