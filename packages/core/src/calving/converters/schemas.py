"""Schemas from a registry with Confluent's REST interface, cached for the life of the process."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pyarrow as pa

from calving.addresses import port_and_path
from calving.converters.building import bad, collect
from calving.converters.interface import CLIENT, REGISTRY, Decoded
from calving.converters.native import Decoder
from calving.converters.schema_bounds import SchemaCache, WithSize
from calving.errors import UNTRUSTED, ConfigError, UnavailableError, UnexpectedError
from calving.model.dead_letters import Stage
from calving.records.cells import Cells, Together
from calving.records.failures import pass_on
from calving.secrets import masked, without_logins

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=WithSize)

_MAGIC = 0
_HEADER = struct.Struct(">bI")
_TIMEOUT_S = "30"
_NUMBERS = (
    "timeout",
    "max.retries",
    "retries.wait.ms",
    "retries.max.wait.ms",
    "cache.capacity",
    "cache.latest.ttl.sec",
)
_REST_PATH = re.compile(r"/((subjects|schemas/(ids|types))(/.*)?|(schemas|config|mode)/?)$")
_BASIC, _BEARER = ("USER_INFO", "URL"), ("STATIC_TOKEN", "OAUTHBEARER")
"""Where the client's login comes from."""
_MISSING = re.compile(r"Missing required (?:bearer|OAuth) configuration properties: (?P<names>[\w., ]+)")
_NOT_FOUND = (40401, 40402, 40403)
_REFUSED = (401, 403)
_NO_SUCH_PATH = 404
_BUSY = (408, 429)
_MOST_REFUSED = 1_000
"""How many refused schemas are kept."""

_CLIENTS: dict[str, Any] = {}


class UnknownSchemaError(ValueError):
    """The registry has no schema with this id: the value is bad."""


def schema_id(value: bytes) -> int:
    """The schema id at the start of a value in Confluent's wire format.

    :raises ValueError: the value is not in this format.
    """
    if len(value) < _HEADER.size:
        raise ValueError("not in the schema registry's format: shorter than its header")
    magic, number = _HEADER.unpack_from(value)
    if magic != _MAGIC:
        raise ValueError(f"not in the schema registry's format: it starts with byte {value[0]} instead of 0")
    return int(number)


BODY = _HEADER.size
"""The offset of a value's body, after the magic byte and the schema id."""


def framed(value: bytes) -> tuple[int, int]:
    """The schema id at the start of a value, and the offset of its body.

    :raises ValueError: as ``schema_id``.
    """
    return schema_id(value), BODY


@dataclass(frozen=True, slots=True)
class SchemaReader:
    """How the bodies of one schema become values of a column: one by one, or many at once with a ``decoder``. ``cells``
    counts those of each value while ``load`` makes it. ``size``: about how many bytes of memory the reader takes.
    """

    type: pa.DataType
    load: Callable[[bytes], Any]
    cells: Cells
    size: int
    decoder: Decoder | None = None


class BySchema(Generic[K, V]):
    """What ``make`` has made of each schema. A schema that it refuses is refused again without another try, because a
    try may take long. What was used longest ago is made again if all of it would take too much memory.
    """

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._made: SchemaCache[K, V] = SchemaCache()
        self._refused: dict[K, Exception] = {}

    def of(self, key: K) -> V:
        """:raises Exception: as ``make``."""
        made = self._made.get(key)
        if made is not None:
            return made
        if key in self._refused:
            raise copy(self._refused[key])
        try:
            made = self._make(key)
        except UnknownSchemaError:
            raise
        except Exception as error:  # of any library
            pass_on(error)
            if len(self._refused) >= _MOST_REFUSED:
                self._refused.clear()
            self._refused[key] = bare(error)
            raise
        self._made.put(key, made)
        return made


def bare(error: Exception) -> Exception:
    """The same error without its traceback, whose frames have the parsed schema and the values of a block."""
    try:
        return copy(error)
    except Exception:  # an error may be made of other arguments than those that it keeps
        return ValueError(str(error))


def by_schema(
    values: Sequence[bytes],
    stage: Stage,
    head: Callable[[bytes], tuple[K, int]],
    reader: Callable[[K], SchemaReader],
    name: Callable[[K], str],
    together: Together,
    *,
    presence: Container[str] = (),
) -> Decoded:
    """Values in the wire format. Each is read with the schema that it names.

    ``head`` returns the key of a value's schema, and the offset of its body; with a ValueError the value is bad.
    ``reader`` returns the reader of a schema's bodies; if it fails, all values of the schema are bad. ``name`` returns
    the schema's name for error texts. ``together`` counts the columns of all schemas. ``presence``: as of
    ``Projection``, where values may lack fields of their schema.

    :raises UnavailableError, ConfigError: from ``reader``, if the values are not the cause.
    :raises FullBlockError: the values take too much together.
    """
    decoded = Decoded()
    groups: dict[K, tuple[list[int], list[bytes]]] = {}
    for i, value in enumerate(values):
        try:
            key, start = head(value)
        except ValueError as error:
            decoded.bad.append(bad(i, stage, error))
            continue
        places, bodies = groups.setdefault(key, ([], []))
        places.append(i)
        bodies.append(value[start:])
    for key, (places, bodies) in groups.items():
        try:
            schema_reader = reader(key)
        except Exception as error:  # of any library
            pass_on(error)
            decoded.bad += [bad(i, stage, error, f"{name(key)}: ") for i in places]
            continue
        collect(
            decoded=decoded,
            kind=schema_reader.type,
            values=bodies,
            places=places,
            stage=stage,
            load=schema_reader.load,
            cells=schema_reader.cells,
            together=together,
            presence=presence,
        )
    return decoded


class SchemaRegistry:
    """A schema registry. The client caches answers for the life of the process."""

    def __init__(self, options: Mapping[str, str], *, is_key: bool, form: str | None = None) -> None:
        """``form``: that of the schemas; their text by default. :raises ConfigError: an option is wrong, or a needed
        package is not installed.
        """
        prefix = "key.converter." if is_key else "value.converter."
        if f"{REGISTRY}url" not in options:
            raise ConfigError(f"{prefix}{REGISTRY}url is missing: where is the schema registry?")
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise ConfigError(f'{prefix[:-1]}: install "calving[registry]" for schema registries') from error
        conf = {"timeout": _TIMEOUT_S} | {name: options[name] for name in CLIENT if name in options}
        conf |= {name.removeprefix(REGISTRY): text for name, text in options.items() if name.startswith(REGISTRY)}
        self.url = _take_login(conf, prefix)
        _check(conf, prefix)
        conf.pop("basic.auth.credentials.source", None)
        key = json.dumps([form, *sorted(conf.items())])  # a client does not tell forms of a schema apart
        if key not in _CLIENTS:
            numbers = {name: int(conf[name]) for name in _NUMBERS if name in conf}
            try:
                _CLIENTS[key] = SchemaRegistryClient({**conf, **numbers})
            except (ValueError, TypeError, OSError) as error:
                raise ConfigError(_refused(error, conf, f"{prefix}{REGISTRY}")) from error
        self._client, self._form = _CLIENTS[key], form

    def schema(self, number: int) -> Any:
        """A schema by its id.

        :raises UnknownSchemaError: there is no such schema.
        :raises UnavailableError: the registry does not answer; try again. :raises UnexpectedError: its answer is not
            known; try again, but not for ever.
        :raises ConfigError: the registry refuses the request.
        """
        return self._ask(f"schema {number}", lambda: self._client.get_schema(number, fmt=self._form))

    def referenced(self, subject: str, version: int) -> Any:
        """A schema to which another schema refers.

        :raises UnknownSchemaError, UnavailableError, ConfigError: as ``schema``.
        """
        return self._ask(
            f"subject '{subject}', version {version}",
            lambda: self._client.get_version(subject, version, fmt=self._form).schema,
        )

    def serialized(self, text: str) -> bytes:
        """The bytes of a schema that the registry was asked for as ``serialized``.

        :raises ConfigError: it has answered with the text of the schema, as older registries do.
        """
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:
            raise ConfigError(
                f"schema registry {self.url}: it gives the text of a Protobuf schema when it is asked for"
                " format=serialized: use Confluent's Schema Registry 7.8, Redpanda 25.2, or newer ones"
            ) from error

    def _ask(self, what: str, request: Any) -> Any:
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        try:
            return request()
        except SchemaRegistryError as error:
            if error.error_code in _NOT_FOUND:
                raise UnknownSchemaError(f"the schema registry at {self.url} has no {what}") from error
            reason = f"schema registry {self.url}: {what}: {masked(str(error))}"
            if error.http_status_code in _REFUSED:
                raise ConfigError(f"{reason}; set a login that may read it") from error
            if error.http_status_code == _NO_SUCH_PATH:
                reason += "; it does not say that the schema is missing: is the URL right?"
            is_away = error.http_status_code >= 500 or error.http_status_code in _BUSY
            raise (UnavailableError if is_away else UnexpectedError)(reason) from error
        except Exception as error:  # the client does not catch errors of its HTTP library
            reason = f"schema registry {self.url}: {what}: {type(error).__name__}: {masked(str(error))}"
            if UNTRUSTED in reason:
                raise ConfigError(
                    f"{reason}; the converter's option ssl.ca.location must be a file that vouches for the registry"
                ) from error
            raise (UnavailableError if _is_transport(error) else UnexpectedError)(reason) from error


def _is_transport(error: Exception) -> bool:
    """Whether no answer came. The client's HTTP library has errors of its own."""
    return isinstance(error, OSError) or any(kind.__qualname__ == "TransportError" for kind in type(error).__mro__)


def _check(conf: Mapping[str, str], prefix: str) -> None:
    """:raises ConfigError: an option has a value that the client does not take."""
    for url in conf["url"].split(","):
        try:
            _, path = port_and_path(url)
        except ValueError as error:
            raise ConfigError(f"{prefix}{REGISTRY}url: {error} (given: '{conf['url']}')") from error
        if match := _REST_PATH.search(path):
            raise ConfigError(
                f"{prefix}{REGISTRY}url: leave out {match[0]}: the client itself adds the paths of the registry's REST"
                f" interface (given: '{conf['url']}')"
            )
    if ":" not in conf.get("basic.auth.user.info", ":"):
        raise ConfigError(f"{prefix}{REGISTRY}basic.auth.user.info: must be user:password")
    for name in _NUMBERS:
        if not conf.get(name, "0").isdecimal():
            raise ConfigError(f"{prefix}{name}: must be a whole number of at least 0 (given: '{conf[name]}')")
    for name, values in (("basic.auth", _BASIC), ("bearer.auth", _BEARER)):
        source = conf.get(f"{name}.credentials.source", values[0])
        if source.upper() not in values:
            raise ConfigError(f"{prefix}{name}.credentials.source: must be {' or '.join(values)} (given: '{source}')")


def _refused(error: Exception, conf: Mapping[str, str], prefix: str) -> str:
    """What is wrong with the options that the client refuses."""
    text = masked(str(error))
    if match := _MISSING.search(text):
        source = f"{prefix}bearer.auth.credentials.source = {conf.get('bearer.auth.credentials.source')}"
        return f"{source} needs {', '.join(prefix + name.strip() for name in match['names'].split(','))}"
    if isinstance(error, OSError):
        of_tls = [f"{prefix}{name}" for name in CLIENT if name.startswith("ssl.") and name in conf]
        return f"{', '.join(of_tls)}: not a certificate and its key in PEM: convert or correct them ({text})"
    return f"{prefix}*: {text}"


def _take_login(conf: dict[str, str], prefix: str) -> str:
    """The URL without its login, which moves to an option in ``conf``. The client would log a login in the URL with
    each request.

    :raises ConfigError: there are two logins, or a login that is not encoded.
    """
    conf["url"], login = without_logins(re.sub(r"\s*,\s*", ",", conf["url"].strip()))
    if "@" in conf["url"]:
        raise ConfigError(f"{prefix}{REGISTRY}url: write the login's special characters percent-encoded, as %2F for /")
    if login is not None and conf.setdefault("basic.auth.user.info", login) != login:
        raise ConfigError(f"{prefix}{REGISTRY}url has a login, and so has basic.auth.user.info: leave one out")
    return conf["url"]
