"""Masks secrets in errors, logs, dead letters and answers of the status server."""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote


def _any(patterns: Sequence[str]) -> str:
    return "(?:" + "|".join(patterns) + ")"


_KAFKA = _any(
    (
        r"bootstrap\.servers",
        r"client\.(id|rack|dns\.lookup)",
        r"group\.(id|instance\.id|protocol|remote\.assignor)",
        r"security\.protocol",
        r"sasl\.(mechanisms?|username|kerberos\.(principal|service\.name|keytab)|oauthbearer\.(method|client\.id|scope))",
        r"ssl\.(ca|certificate|key|crl|keystore|truststore)\.(location|type)",
        r"ssl\.(endpoint\.identification\.algorithm|cipher\.suites|curves\.list|sigalgs\.list|protocol|enabled\.protocols)",
        r"(enable|check|allow|api|broker|compression|partition|isolation|auto\.offset|acks|retries|debug|log)\b[a-z.]*",
        r"(socket|fetch|queued|topic|session|heartbeat|max|message|metadata|reconnect|retry|receive|send|request"
        r"|connections|linger|queue|batch|transaction|statistics|delivery|coordinator|default)[a-z.]*\.[a-z.]*"
        r"(ms|bytes|kbytes|messages|max|min|fails|count|records|enable|size)",
    )
)
_CATALOG = _any(
    (
        r"type|uri|warehouse|(py-)?(catalog|io)-impl",
        r"prefix|scope|audience|resource|oauth2-server-uri|rest-page-size",
        r"init_?catalog_?tables|pool_pre_ping|echo|lock-check-[a-z-]+|scan-planning-mode|snapshot-loading-mode",
        r"auth\.type|jdbc\.(user|schema-version|init-catalog-tables)",
        r"header\.X-Iceberg-Access-Delegation",
        r"rest\.(sigv4[a-z.-]*|signing-(name|region)|metrics-reporting-enabled)",
        r"ssl\.(cabundle|client\.(cert|key))",
        r"(client|s3|glue|dynamodb)\.(region|endpoint|profile-name|role-arn|role-session-name|id|max-retries|retry-mode"
        r"|skip-archive|table-name|anonymous|connect-timeout|request-timeout|resolve-region|force-virtual-addressing"
        r"|path-style-access|signer|signer\.endpoint|signer\.uri|server-side-encryption|sse-kms-key-id|proxy-uri)",
        r"adls\.(account-name|account-host|anon|client-id|tenant-id|(blob|dfs)-storage-(authority|scheme))",
        r"gcs\.(project-id|access|consistency|cache-timeout|default-bucket-location|requester-pays|service\.host"
        r"|version-aware|oauth2\.token-expires-at)",
        r"gcp\.bigquery\.(credential-file|location|project-id)",
        r"hdfs\.(host|port|user)",
        r"hive\.(hive2-compatible|kerberos-authentication|kerberos-service-name|[a-z.-]*timeout)",
    )
)
_SPARK = _any(
    (
        r"master|remote|app\.name|log\.level|calving\.slots|cores\.max|default\.parallelism|pyspark\.(driver\.)?python",
        r"(driver|executor)\.(host|port|bindAddress|cores|instances|memory|memoryOverhead|memoryOverheadFactor|maxResultSize"
        r"|blockManager\.port|supervise)",
        r"driver\.(log|pod)\.[A-Za-z.]+|blockManager\.port|port\.maxRetries|executorEnv\.PYTHONPATH",
        r"authenticate|authenticate\.enableSaslEncryption|network\.[A-Za-z.]+|rpc\.[A-Za-z.]+|io\.encryption\.enabled",
        r"(dynamicAllocation|excludeOnFailure|scheduler|speculation|task|shuffle|memory|locality|decommission|storage"
        r"|rdd|broadcast|files|stage|cleaner|reducer|resources?)\b[A-Za-z0-9.]*",
        r"ui\.(enabled|port|showConsoleProgress|reverseProxy)|eventLog\.(enabled|dir|compress|rolling\.[A-Za-z.]+)",
        r"local\.dir|jars(\.packages|\.repositories|\.excludes|\.ivy)?|archives|files|submit\.(deployMode|pyFiles)",
        r"kubernetes\.(namespace|context|container\.image(\.pullPolicy)?|(driver|executor)\.(pod\.name|container\.image"
        r"|limit\.cores|request\.cores|podTemplateFile|podNamePrefix|serviceAccountName|volumes\.[A-Za-z.-]+)"
        r"|authenticate\.(driver\.)?serviceAccountName|allocation\.[A-Za-z.]+|memoryOverheadFactor)",
        r"yarn\.(queue|stagingDir|maxAppAttempts|jars|archive|dist\.(archives|files)|am\.(memory|cores|memoryOverhead))",
        r"python\.(daemon\.module|worker\.[A-Za-z.]+|profile|use\.daemon)|sql\.(?!catalog\.)[A-Za-z.]+",
    )
)
_CONVERTER = _any(
    (
        r"schemas\.(enable|cache\.(size|config))|replace\.null\.with\.default|schema(\.content)?|decimal\.format|converter\.type"
        r"|converter\.encoding",
        r"(schema\.registry\.)?(url|proxy|timeout|max\.retries|retries\.(max\.)?wait\.ms|cache\.[a-z.]+"
        r"|ssl\.(ca|certificate|key)\.location|(basic|bearer)\.auth\.credentials\.source"
        r"|bearer\.auth\.(logical\.cluster|identity\.pool\.id|client\.id|scope|issuer\.endpoint\.url))",
        r"(enhanced|generalized|int|auto|connect|context|id|ignore|key|latest|max|normalize|reference|scrub|use|value|allow"
        r"|discard|avro|flatten|generate|optional|skip|wrapper|json|object|preserve)\.[a-z0-9.]+",
    )
)
_TRANSFORM = _any(
    (
        r"type|predicate|negate|name|pattern|regex|replacement|operation|query|condition|delimiter|format|spec",
        r"(fields?|headers?|columns?|include|exclude|renames|whitelist|blacklist|filter)(\.[a-z.]+)?",
        r"(topic|partition|offset|timestamp|static|target|unix|cdc|json|schema|array|key|value|replace)[._]"
        r"(field|format|type|precision|pattern|root|name|version|null\.with\.default|handling[._]mode|topic)[a-z._]*",
    )
)
_TABLE = r"(format-version|(write|read|commit|history|gc|schema|compatibility)\.[a-z0-9._-]+)"
_PARAMETERS = re.compile(
    r"ssl(_?mode)?|use_?ssl|tls|server_?ssl_?cert|databaseName|database|schema|currentSchema|warehouse|region|catalog"
    r"|charset|application_?name|encrypt|trust_?server_?certificate|[a-z_]*time_?out[a-z_]*|[a-z_]*version|user|username",
    re.IGNORECASE,
)
_OWN = _any(
    (
        r"name|topics(\.regex)?|transforms|predicates|(key|value)\.converter|connector\.class|tasks\.max|errors\.[a-z.-]+",
        r"iceberg\.(tables|coordinator|connect|source|batch|limits|engine|http|key-cache|maintenance|otel)(\.[A-Za-z0-9_.-]+)?",
        r"iceberg\.control\.(backend|topic|commit|other-sinks|on-truncation|max-message-bytes|transaction-timeout-ms|redis"
        r"|zookeeper)(\.[a-z.-]+)?",
        r"iceberg\.(catalog|stalled-after-ms|stop-timeout-ms)",
        r"iceberg\.table\..+",
    )
)
_HARMLESS = (
    (("kafka.", "iceberg.kafka.", "consumer.override."), rf"((iceberg\.)?kafka|consumer\.override)\.{_KAFKA}"),
    (("iceberg.catalog.",), rf"iceberg\.catalog\.{_CATALOG}"),
    (("spark.",), rf"spark\.{_SPARK}"),
    (("iceberg.topic.", "key.", "value."), rf"(iceberg\.topic\..+\.)?(key|value)\.converter(\.{_CONVERTER})?"),
    (("transforms.", "predicates."), rf"(transforms|predicates)\.[^.]+\.{_TRANSFORM}"),
    (("iceberg.tables.",), rf"iceberg\.tables\.(auto-create|write)-props\.{_TABLE}"),
    (("",), rf"(?!iceberg\.(catalog\.|kafka\.|topic\.|tables\.(auto-create|write)-props\.)){_OWN}"),
)
"""Patterns of keys, by how the keys begin. Compiled at their first use: a process needs few, and all take 8 ms."""
_SECRET = re.compile(
    r"passw|secret|\btoken$|user\.info|jaas|credential(?!s?[.-](file|source))|access[.-]?key|account[.-]?key|api[.-]?key"
    r"|authorization|webhook|private|key\.pem|cookie|\bsas\b|connection-?string|encryption\.key|sse\.key|keystore\.key",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def is_harmless(key: str) -> bool:
    """Whether a setting is known to hold no secret, apart from logins in URLs."""
    known = (re.fullmatch(pattern, key) for begins, pattern in _HARMLESS if key.startswith(begins))
    return any(known) and not looks_secret(key)


@lru_cache(maxsize=4096)
def looks_secret(key: str) -> bool:
    """Whether a setting's name says that it is a secret."""
    return _SECRET.search(key) is not None


def is_harmless_parameter(name: str) -> bool:
    """Whether a parameter of a URL is known to hold no secret."""
    return _PARAMETERS.fullmatch(name) is not None


_MASK = "***"
# Texts may come from records, so the work on a text must not be more than proportional to its length.
_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,40}://)(?P<login>[^/?#\s]*)@")
_WHOLE_LOGIN = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,40}://)(?P<login>[^/?#\s@]*:.*|[^/?#\s]*)@", re.DOTALL)
"""In a setting the login ends at the last ``@``: a password may hold any character."""
_ORACLE = re.compile(r"(?P<scheme>jdbc:oracle:\w{1,20}:)(?P<login>[^@\s/]{0,1000}/[^\s]{0,1000})@", re.IGNORECASE)
_QUERY = re.compile(r"(?P<mark>[?&;#])(?P<name>[^=&;?#\s]+)=(?P<value>[^&;#\s'\"]*)")
_WHOLE_QUERY = re.compile(r"(?P<mark>[?&;#])(?P<name>[^=&;?#\s]+)=(?P<value>[^&;#]*)")
"""In a URL of a setting the value of a parameter may hold any character but those that end it."""
_ITEMS = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]{0,40}://)")
_QUOTED = re.compile(r"""=\s*(?:"((?:\\.|[^"\\])+)"|'((?:\\.|[^'\\])+)')""")
_NONE: Mapping[str, Collection[str]] = {}
_PLAIN = re.compile(r"(?i:true|false|none|null|yes|no)|\d{1,7}|[\d:]*[.:][\d.:]*|[\d.:]+(ms|[smhdkg]b?)")
"""Values that are too common in texts to be masked there."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that move a terminal's cursor, name its window, begin a line, or turn the order of text."""

_SHORTEST, _BOUNDED = 4, 6
"""The shortest secret that is masked in texts, and the shortest one that is masked inside words, too."""
_SHORTEST_UNKNOWN = 8
"""The shortest value of a key that may be a secret, and whose name does not say so, that is masked in texts."""
_SHORTEST_LINE = 16
"""The shortest line of a secret of several that is masked by itself. That of a PEM file has 64 characters."""


class _Known:
    """The settings of this process, by sink, and what finds their secrets: made for the first text that is masked."""

    def __init__(self) -> None:
        self._settings: Mapping[str, tuple[Collection[tuple[str, str]], Mapping[str, Collection[str]]]] = {}
        self._pattern: tuple[object, re.Pattern[str] | None] = (self._settings, None)
        self._lock = threading.Lock()

    def put(self, sink: str, settings: Collection[tuple[str, str]], provided: Mapping[str, Collection[str]]) -> None:
        with self._lock:
            self._settings = {**self._settings, sink: (settings, provided)}

    def masked(self, text: str) -> str:
        settings, (made_of, pattern) = self._settings, self._pattern
        if made_of is not settings:
            pattern = _pattern(frozenset[str]().union(*(_secret_texts(*each) for each in settings.values())))
            self._pattern = (settings, pattern)
        return text if pattern is None else pattern.sub(_MASK, text)


_KNOWN = _Known()


def know(sink: str, settings: Collection[tuple[str, str]], provided: Mapping[str, Collection[str]] = _NONE) -> None:
    """Mask the secrets of a sink's settings, keys with values, in all texts from now on, in place of those of its
    earlier settings. ``provided``: values that came from outside of the configuration, such as ``${env:...}``, by the
    key that they are a part of. They are secrets unless the key is harmless and does not mask them.
    """
    _KNOWN.put(sink, tuple(settings), dict(provided))


def _secret_texts(settings: Collection[tuple[str, str]], provided: Mapping[str, Collection[str]]) -> set[str]:
    """The secrets of settings, in each form in which texts may show them."""
    secrets: set[str] = set()
    for key, text in settings:
        secrets.update(_secrets_of(key, text))
        text_shown = shown_text(key, text)
        secrets.update(value for value in provided.get(key, ()) if value not in text_shown)
    harmless = {
        part
        for key, text in settings
        if is_harmless(key)
        for part in (text, *re.split(r"[,\s]+", text))
        if _MASK not in shown_text(key, text)
    }
    return {form for secret in secrets - harmless for form in _forms(secret)}


def masked(text: str) -> str:
    """The text, with ``***`` in place of the logins and of the parameters' values in URLs, unless these are known to be
    harmless, and of all secrets of the configuration.
    """
    return _KNOWN.masked(_by_form(text))


def shown(key: str, value: object) -> str:
    """A setting's value as an error may show it."""
    return _by_form(_whole(repr(value))) if is_harmless(key) else _MASK


def shown_text(key: str, text: str) -> str:
    """Like ``shown``, for text without quotes."""
    return _by_form(_whole(text)) if is_harmless(key) else _MASK


def public_text(key: str, text: str) -> str:
    """A setting's text without what looks like a secret, to compare it. It may have secrets that nothing tells to be
    some, so it is not to be shown.
    """
    return _MASK if looks_secret(key) else _by_form(_whole(text))


def without_secrets(text: str, settings: Mapping[str, str]) -> str:
    """A text from another service, with ``***`` in place of the secrets in these settings, whose keys have no prefix:
    the service may repeat the secrets that it was sent.
    """
    secrets = {
        form
        for key, value in settings.items()
        if isinstance(value, str)  # pyiceberg has some of a catalog's twice, also as objects
        for secret in _secrets_of(f"iceberg.catalog.{key}", value)
        for form in _forms(secret)
    }
    pattern = _pattern(secrets)
    return masked(text if pattern is None else pattern.sub(_MASK, text))


def without_logins(urls: str) -> tuple[str, str | None]:
    """Comma-separated URLs without their logins, and the first ``user:password`` among them."""
    logins = [match["login"] for match in _LOGIN.finditer(urls)]
    return _LOGIN.sub(r"\g<scheme>", urls), unquote(logins[0]) if logins else None


class MaskingFormatter(logging.Formatter):
    """Formats log records, tracebacks included, without the secrets of the configuration, as ``safe_lines``."""

    def format(self, record: logging.LogRecord) -> str:
        return safe_lines(masked(super().format(record)))


def safe_lines(text: str) -> str:
    """Text for a log or a terminal, in which texts of others may be: with ``?`` for control characters, and all lines
    but the first one indented, so that none of them looks like a line of its own.
    """
    return _CONTROL.sub("?", text).replace("\n", "\n  ")


def _by_form(text: str) -> str:
    return _QUERY.sub(_parameter, _ORACLE.sub(_login, _LOGIN.sub(_login, text)))


def _login(match: re.Match[str]) -> str:
    return f"{match['scheme']}{_MASK}@"


def _parameter(match: re.Match[str]) -> str:
    if is_harmless_parameter(match["name"]) or not match["value"]:
        return match[0]
    return f"{match['mark']}{match['name']}={_MASK}"


def _whole(text: str) -> str:
    """A setting's text, without the logins in its URLs."""
    return ",".join(_parameters(_ORACLE.sub(_login, _without_login(part))) for part in _ITEMS.split(text))


def _without_login(item: str) -> str:
    end = _end_of_logins(item)
    return _WHOLE_LOGIN.sub(_login, item[:end]) + item[end:]


def _end_of_logins(item: str) -> int:
    """Where no login can begin any more: each search beyond it would go on to the end of the text."""
    return item.rfind("@") + 1


def _parameters(item: str) -> str:
    return _WHOLE_QUERY.sub(_parameter, item) if _is_url(item) else item


def _is_url(item: str) -> bool:
    return "://" in item or "jdbc:" in item


def _secrets_of(key: str, text: str) -> Iterator[str]:
    """What may be a secret in a setting."""
    if looks_secret(key):
        yield text
        yield from text.split(":") if "://" not in text else ()
        yield from (a or b for a, b in _QUOTED.findall(text))
    elif not is_harmless(key) and len(text) >= _SHORTEST_UNKNOWN and not text.isdecimal():
        yield text
    for part in _ITEMS.split(text):
        for match in (*_WHOLE_LOGIN.finditer(part, 0, _end_of_logins(part)), *_ORACLE.finditer(part)):
            password = re.split("[:/]", match["login"], maxsplit=1)[-1]
            # A library that ends the login earlier names only a part of it.
            parts = re.split(r"[/#?@\s]", password)
            yield from (match["login"], password, *parts, re.split(r"[/#?]", match["login"])[0])
        for query in (_QUERY, _WHOLE_QUERY) if _is_url(part) else (_QUERY,):
            yield from (m["value"] for m in query.finditer(part) if not is_harmless_parameter(m["name"]))


def _forms(secret: str) -> Iterator[str]:
    """A secret as texts may show it: as it is, a line of it, and as part of a URL, of JSON, and of an HTTP header."""
    if len(secret) < _SHORTEST or _PLAIN.fullmatch(secret):
        return
    if len(lines := secret.splitlines()) > 1:  # a private key, of which an error may name the line that is wrong
        yield from (
            line for line in map(str.strip, lines) if len(line) >= _SHORTEST_LINE and not line.startswith("-----")
        )
    plain = unquote(secret)
    encoded = (quote(plain), quote(plain, safe=""), quote_plus(plain))
    yield from (secret, plain, *encoded, *(re.sub("%..", lambda m: m[0].lower(), text) for text in encoded))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], repr(secret)[1:-1])
    yield from (encode(plain.encode()).decode() for encode in (base64.b64encode, base64.urlsafe_b64encode))


def _pattern(secrets: Collection[str]) -> re.Pattern[str] | None:
    """What finds secrets in texts, the longest first; None if there are none."""
    if not secrets:
        return None
    longest = sorted(secrets, key=lambda s: (-len(s), s))
    words = (re.escape(s) if len(s) >= _BOUNDED else rf"(?<!\w){re.escape(s)}(?!\w)" for s in longest)
    return re.compile("|".join(words))
