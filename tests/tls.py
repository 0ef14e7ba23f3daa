"""Certificates of one's own, and a front that speaks TLS for a server that does not."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import socket
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from calving.services.process import LOOPBACK, free_port


@dataclass(frozen=True)
class Pair:
    """PEM files. ``both``: key and certificate in one."""

    certificate: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates for loopback. ``certificate``: what to trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._key, self._name = folder, ec.generate_private_key(ec.SECP256R1()), _name("authority")
        usage = x509.KeyUsage(
            False,
            False,
            False,
            False,
            False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        signed = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None), usage)
        self.certificate = folder / "ca.pem"
        self.certificate.write_bytes(signed)

    def issue(self, name: str) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        place = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")])
        signed = self._sign(_name(name), key, place)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pair = Pair(*(self._folder / f"{name}{end}" for end in (".crt", ".key", ".pem")))
        pair.certificate.write_bytes(signed)
        pair.key.write_bytes(secret)
        pair.both.write_bytes(secret + signed)
        return pair

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: x509.ExtensionType) -> bytes:
        now = dt.datetime.now(dt.UTC)
        made = x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
        made = made.not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        # Python 3.13 verifies strictly: it wants the ids of both keys, and of an authority its usage.
        ids = (
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
        )
        for extension in (*ids, *extensions):
            made = made.add_extension(extension, critical=isinstance(extension, (x509.BasicConstraints, x509.KeyUsage)))
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Front:
    """A port that wants TLS, and a client's certificate, before a server's own port."""

    def __init__(self, target: int, pair: Pair, trusted: Path) -> None:
        self.port, self._target = free_port(), target
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._context.load_verify_locations(trusted)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._server = socket.create_server((LOOPBACK, self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            self._context.wrap_socket(plain, server_side=True) as near,
            socket.create_connection((LOOPBACK, self._target)) as far,
        ):
            back = threading.Thread(target=_carry, args=(far, near), daemon=True)
            back.start()
            _carry(near, far)
            back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
