"""The settings that are known to hold no secret. All others are taken for secrets, so that a key that is missing here
is masked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache


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
        r"type",
        r"uri",
        r"warehouse",
        r"(py-)?catalog-impl",
        r"(py-)?io-impl",
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
        r"iceberg\.(tables|coordinator|connect|source|batch|limits|engine|http|key-cache|otel)(\.[A-Za-z0-9_.-]+)?",
        r"iceberg\.control\.(backend|topic|commit|other-sinks|on-truncation|max-message-bytes|transaction-timeout-ms|redis"
        r"|zookeeper)(\.[a-z.-]+)?",
        r"iceberg\.(catalog|stalled-after-ms|stop-timeout-ms)",
        r"iceberg\.table\..+",
    )
)
_HARMLESS = re.compile(
    _any(
        (
            rf"(iceberg\.)?kafka\.{_KAFKA}",
            rf"consumer\.override\.{_KAFKA}",
            rf"iceberg\.catalog\.{_CATALOG}",
            rf"spark\.{_SPARK}",
            rf"(iceberg\.topic\..+\.)?(key|value)\.converter(\.{_CONVERTER})?",
            rf"(transforms|predicates)\.[^.]+\.{_TRANSFORM}",
            rf"iceberg\.tables\.(auto-create|write)-props\.{_TABLE}",
            rf"(?!iceberg\.(catalog\.|kafka\.|topic\.|tables\.(auto-create|write)-props\.)){_OWN}",
        )
    )
)
_SECRET = re.compile(
    r"passw|secret|\btoken$|user\.info|jaas|credential(?!s?[.-](file|source))|access[.-]?key|account[.-]?key|api[.-]?key"
    r"|authorization|webhook|private|key\.pem|cookie|\bsas\b|connection-?string|encryption\.key|sse\.key|keystore\.key",
    re.IGNORECASE,
)


@lru_cache(maxsize=4096)
def is_harmless(key: str) -> bool:
    """Whether a setting is known to hold no secret, apart from logins in URLs."""
    return _HARMLESS.fullmatch(key) is not None and not looks_secret(key)


@lru_cache(maxsize=4096)
def looks_secret(key: str) -> bool:
    """Whether a setting's name says that it is a secret."""
    return _SECRET.search(key) is not None


def is_harmless_parameter(name: str) -> bool:
    """Whether a parameter of a URL is known to hold no secret."""
    return _PARAMETERS.fullmatch(name) is not None
