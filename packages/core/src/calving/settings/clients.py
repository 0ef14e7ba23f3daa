"""The properties of Kafka's clients among a sink's keys. Java's properties are translated to librdkafka's; most have
the same name in both.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

from calving.errors import ConfigError
from calving.model.sink import ClientProperties, key_of
from calving.wording import missing

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
        for name, text in properties.items()
        if _JAVA_ONLY.fullmatch(name) or (name == "partition.assignment.strategy" and "org.apache" in text)
    ]
    if left_out:
        log.info("properties of Java's clients under %s* have no effect here: %s", prefix, ", ".join(sorted(left_out)))
    out: dict[str, str] = {}
    for name, text in properties.items():
        if name in left_out or name in _STORES:
            continue
        if name == "sasl.jaas.config":
            out |= _login(text, prefix)
        elif name == "ssl.endpoint.identification.algorithm":
            out[name] = text.lower() or "none"
        elif name == "sasl.login.callback.handler.class":
            raise ConfigError(f"{prefix}{name}: a Java class; give sasl.oauthbearer.* of librdkafka under {prefix}")
        else:
            out[_RENAMED.get(name, name)] = text
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


_CONSUMERS = {"group.id": "iceberg.connect.group-id", "auto.offset.reset": "iceberg.source.start"}
"""Properties of Kafka's consumers that are keys of a sink."""
_FORMER = {"iceberg.source.auto-offset-reset": "iceberg.source.start"}
"""Keys by the names that earlier versions gave them."""
_NESTED = "default.topic.config"
_OF_PROGRAMS = re.compile(r"\w+_cb|\w+\.\w+_cb|logger|opaque|on_commit|on_delivery|default\.topic\.config")
"""Properties that only a program can give to its client."""
_EXACTLY_ONCE = {
    "acks": (r"all|-1", "all"),
    "request.required.acks": (r"all|-1", "all"),
    "enable.idempotence": (r"true", "true"),
    "retries": (r"0*[1-9]\d*", "at least 1"),
    "message.send.max.retries": (r"0*[1-9]\d*", "at least 1"),
    "max.in.flight": (r"0*[1-5]", "from 1 to 5"),
    "max.in.flight.requests.per.connection": (r"0*[1-5]", "from 1 to 5"),
    "queuing.strategy": (r"fifo", "fifo"),
    "isolation.level": (r"read_committed", "read_committed"),
}
"""What transactions need: the values that a property may have, and their name."""
_BROKER = re.compile(
    r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?([\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", re.IGNORECASE
)


def consumer_keys(raw: Mapping[str, str]) -> dict[str, str]:
    """The keys, in which consumer overrides that are keys of a sink in calving, and a former name, are renamed.

    :raises ConfigError: a key stands there by its former name, too.
    """
    for former, name in _FORMER.items():
        if former in raw and name in raw:
            raise ConfigError(f"{former} is another name of {name}: remove one of the two")
    moved = {**_FORMER, **{f"consumer.override.{theirs}": ours for theirs, ours in _CONSUMERS.items()}}
    renamed = {moved[key]: text for key, text in raw.items() if key in moved}
    return {**renamed, **{key: text for key, text in raw.items() if key not in moved}}


def client_properties(handed_on: Mapping[str, Mapping[str, str]]) -> tuple[ClientProperties, ClientProperties]:
    """Properties of the clients that read records, and of the backend's clients, from the keys by their prefix.

    :raises ConfigError: a property has no effect, or has no counterpart, or no broker is named.
    """
    for theirs, ours in _CONSUMERS.items():
        if theirs in handed_on["kafka."]:
            raise ConfigError(f"kafka.{theirs} has no effect: set {ours} in its place")
    kafka = _joined(handed_on, "consumer.override.", "kafka.")
    control = _joined(handed_on, "consumer.override.", "kafka.", "iceberg.kafka.")
    if "bootstrap.servers" not in kafka:
        hint = missing("bootstrap.servers", kafka, "kafka.")
        raise ConfigError(f"kafka.bootstrap.servers is missing: where is Kafka?{hint.replace(';', '')}")
    for properties in (kafka, control):
        for name, text in properties.items():
            _check_property(key_of(properties, name), name, text)
    return kafka, control


def _joined(handed_on: Mapping[str, Mapping[str, str]], *prefixes: str) -> ClientProperties:
    """The properties of all these prefixes, of which a later one counts more."""
    translated = {prefix: translate(handed_on[prefix], prefix) for prefix in prefixes}
    return ClientProperties(
        {name: text for of_prefix in translated.values() for name, text in of_prefix.items()},
        {name: f"{prefix}{name}" for prefix, of_prefix in translated.items() for name in of_prefix},
    )


def _check_property(key: str, name: str, value: str) -> None:
    if name == "bootstrap.servers":
        _check_brokers(key, value)
    if _OF_PROGRAMS.fullmatch(name):
        hint = f": write its properties under {key.removesuffix(name)}" if name == _NESTED else ": remove it"
        raise ConfigError(f"{key}: only a program can give it to its client, and no file{hint}")
    allowed, called = _EXACTLY_ONCE.get(name, (".*", ""))
    if not re.fullmatch(allowed, value.strip(), re.IGNORECASE | re.DOTALL):
        raise ConfigError(f"{key}: must be {called}, which exactly-once needs (given: '{value}')")
    if name.endswith((".ms", ".bytes")) and not re.fullmatch(r"-?\d+", value):
        unit = "milliseconds" if name.endswith(".ms") else "bytes"
        raise ConfigError(f"{key}: must be a whole number of {unit} (given: '{value}')")


def check_login(kafka: Mapping[str, str]) -> None:
    """:raises ConfigError: there is a login that no broker is sent, or no broker would take."""
    protocol = kafka.get("security.protocol", "PLAINTEXT")
    given = next((name for name in ("sasl.mechanism", "sasl.mechanisms", "sasl.username") if name in kafka), None)
    if protocol.upper() in ("SASL_SSL", "SASL_PLAINTEXT"):
        _check_mechanism(kafka, protocol)
    elif given is not None and protocol.upper() in ("PLAINTEXT", "SSL"):
        key = key_of(kafka, given)
        decides = f"{key.removesuffix(given)}security.protocol"
        if "security.protocol" in kafka:
            decides = key_of(kafka, "security.protocol")
        raise ConfigError(
            f"{key} has no effect with {decides} = {protocol}: set it to SASL_SSL, or to SASL_PLAINTEXT without TLS"
        )


def _check_mechanism(kafka: Mapping[str, str], protocol: str) -> None:
    name = next((name for name in ("sasl.mechanism", "sasl.mechanisms") if name in kafka), None)
    if name is None and not any(each.startswith("sasl.kerberos.") for each in kafka):  # Kerberos is the default
        key = key_of(kafka, "security.protocol")
        raise ConfigError(
            f"{key} = {protocol} needs {key.removesuffix('security.protocol')}sasl.mechanism: PLAIN, SCRAM-SHA-256,"
            " SCRAM-SHA-512 or OAUTHBEARER"
        )
    method = kafka.get("sasl.oauthbearer.method", "default").lower()
    unsecured = kafka.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() == "true"
    if name is not None and kafka[name].upper() == "OAUTHBEARER" and method != "oidc" and not unsecured:
        key = key_of(kafka, name)
        raise ConfigError(
            f"{key} = OAUTHBEARER needs {key.removesuffix(name)}sasl.oauthbearer.method = oidc, with its .client.id,"
            " .client.secret and .token.endpoint.url"
        )


def _check_brokers(key: str, servers: str) -> None:
    for broker in map(str.strip, servers.split(",")):
        match = _BROKER.fullmatch(broker)
        if match is None or int((match[4] or ":1")[1:]) > 65535:
            raise ConfigError(f"{key}: '{broker}' is no broker: write host:port, and commas between several")
