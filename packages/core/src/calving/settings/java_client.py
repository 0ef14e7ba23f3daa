"""Translates properties of Java's Kafka clients to librdkafka's. Most have the same name in both."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from calving.errors import ConfigError

log = logging.getLogger(__name__)

_JAAS = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(required|requisite|sufficient|optional)\s*(?P<options>.*?);?\s*", re.DOTALL
)
_OPTION = re.compile(r"""([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s;]+)""")

_RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
}
_JAVA_ONLY = re.compile(
    r"(key|value)\.(de)?serializer|interceptor\.classes|metrics?\..*|metric\.reporters|auto\.include\.jmx\.reporter"
    r"|max\.poll\.records|request\.timeout\.ms|default\.api\.timeout\.ms|exclude\.internal\.topics|buffer\.memory"
    r"|max\.block\.ms|ssl\.protocol|ssl\.enabled\.protocols|ssl\.provider|ssl\.(trust|key)manager\.algorithm"
    r"|ssl\.secure\.random\.implementation|sasl\.login\.(refresh|retry|connect|read)\..*|sasl\.kerberos\.ticket\..*"
    r"|sasl\.client\.callback\.handler\.class"
)
"""Ignored Java properties: librdkafka has no counterpart, or calving sets it."""


def translate(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The properties for librdkafka. ``prefix`` stands before their names in errors.

    :raises ConfigError: a property that matters to the connection has no counterpart.
    """
    left_out = [
        name
        for name, value in properties.items()
        if _JAVA_ONLY.fullmatch(name) or (name == "partition.assignment.strategy" and "org.apache" in value)
    ]
    if left_out:
        log.info("properties of Java's clients under %s* have no effect here: %s", prefix, ", ".join(sorted(left_out)))
    out: dict[str, str] = {}
    for name, value in properties.items():
        if name in left_out or name in _STORES:
            continue
        if name == "sasl.jaas.config":
            out |= _login(value, prefix)
        elif name == "ssl.endpoint.identification.algorithm":
            out[name] = value.lower() or "none"
        elif name == "sasl.login.callback.handler.class":
            raise ConfigError(f"{prefix}{name}: a Java class; give sasl.oauthbearer.* of librdkafka under {prefix}")
        else:
            out[_RENAMED.get(name, name)] = value
    return out | _stores(properties, prefix)


_STORES = tuple(
    f"ssl.{store}.{part}" for store in ("truststore", "keystore") for part in ("location", "password", "type")
)
_TO_PEM = "keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12, and openssl pkcs12"


def _stores(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The properties that make librdkafka read Java's trust store and key store."""
    out: dict[str, str] = {}
    if trusted := given.get("ssl.truststore.location"):
        if _kind(given, "truststore") != "PEM":
            raise ConfigError(
                f"{prefix}ssl.truststore.location = {trusted}: a store that only Java reads; write its certificates as"
                f" PEM ({_TO_PEM} -nokeys), and give {prefix}ssl.ca.location"
            )
        out["ssl.ca.location"] = trusted
    if own := given.get("ssl.keystore.location"):
        match _kind(given, "keystore"):
            case "PEM":
                out |= {"ssl.certificate.location": own, "ssl.key.location": own}
            case "PKCS12":
                out["ssl.keystore.location"] = own
                if "ssl.keystore.password" in given:
                    out["ssl.keystore.password"] = given["ssl.keystore.password"]
            case _:
                raise ConfigError(
                    f"{prefix}ssl.keystore.location = {own}: a store that only Java reads; convert it to PKCS12"
                    f" (keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12) and"
                    f" set {prefix}ssl.keystore.type = PKCS12"
                )
    return out


def _kind(given: Mapping[str, str], store: str) -> str:
    """The store's type: the declared type, or else the type of its file name, or else JKS, the default of Java's
    clients.
    """
    location, kind = given[f"ssl.{store}.location"].lower(), given.get(f"ssl.{store}.type")
    if kind is not None:
        return kind.upper()
    endings = {".pem": "PEM", ".crt": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}
    return next((kind for ending, kind in endings.items() if location.endswith(ending)), "JKS")


def _login(text: str, prefix: str) -> dict[str, str]:
    match = _JAAS.fullmatch(text)
    if match is None:
        raise ConfigError(f"{prefix}sasl.jaas.config is not understood: it is '<login module> required <options>;'")
    options = {name: _unquoted(value) for name, value in _OPTION.findall(match["options"])}
    module = match["module"].rpartition(".")[2]
    if module in ("PlainLoginModule", "ScramLoginModule"):
        login = {f"sasl.{name}": options.get(name) for name in ("username", "password")}
    elif module == "Krb5LoginModule":
        names = {"principal": "sasl.kerberos.principal", "keyTab": "sasl.kerberos.keytab"}
        login = {ours: options.get(theirs) for theirs, ours in names.items()}
    elif module == "OAuthBearerLoginModule" and {"clientId", "clientSecret"} <= options.keys():
        login = {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": options["clientId"],
            "sasl.oauthbearer.client.secret": options["clientSecret"],
            "sasl.oauthbearer.scope": options.get("scope"),
        }
    else:
        raise ConfigError(
            f"{prefix}sasl.jaas.config: {module} has no counterpart here; give librdkafka's sasl.* properties under"
            f" {prefix}"
        )
    return {name: value for name, value in login.items() if value is not None}


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] in "\"'" else value
