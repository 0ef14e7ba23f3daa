"""Finds out whether a store's error is temporary, or whether an operator has to give a permission.

The libraries of Azure, Google and S3 are known by the names of their classes: nobody has to install them.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

from calving.errors import AccessDeniedError, CredentialsExpiredError, UnavailableError, first_line

# The form of pyarrow's errors for S3's answers. The answer to HEAD has no body, so its error has a status, but no name.
_S3 = re.compile(r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<operation>\w+) operation")
_FILE = re.compile(r"key '(?P<key>[^']*)' in bucket '(?P<bucket>[^']*)'")
_PASSING = re.compile(r"SLOW_?DOWN|SERVICE_UNAVAILABLE|THROTTL|INTERNAL_FAILURE|REQUEST_TIMEOUT|NETWORK_CONNECTION")
_UNKNOWN_KEYS = re.compile(
    r"INVALID_?ACCESS_?KEY_?ID|INVALID_CLIENT_TOKEN_ID|Expired_?Token|InvalidToken", re.IGNORECASE
)
_DENIED = ("ACCESS_DENIED", "SIGNATURE_DOES_NOT_MATCH")
_PERMISSIONS = {
    "HeadObject": "s3:GetObject, and s3:ListBucket for files that are not there yet (or they are no longer valid: S3"
    " does not say which)",
    "GetObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "PutObject": "s3:PutObject",
}
# The forms of pyarrow's errors for Azure and Google.
_AZURE = re.compile(r"Azure Error: \[\w*\] (?P<status>\d{3})\b")
_GOOGLE = re.compile(r"google::cloud::Status\((?P<name>[A-Z_]+):")
_GOOGLES = {"UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 503, "INTERNAL": 500, "RESOURCE_EXHAUSTED": 429}
_GOOGLES |= {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403}
_HDFS_AWAY = re.compile(r"HDFS connection failed|HDFS.*\b255\b")
"""libhdfs has the number 255 for every exception in Java that has no other one, such as a refused connection."""
_NO_ANSWER = {
    "azure.core.exceptions.ServiceRequestError",
    "azure.core.exceptions.ServiceResponseError",
    "aiohttp.client_exceptions.ClientConnectionError",
    "botocore.exceptions.HTTPClientError",
    "google.auth.exceptions.TransportError",
    "requests.exceptions.ConnectionError",
    "requests.exceptions.Timeout",
}
_NEEDS = {
    "Azure": "the role Storage Blob Data Contributor, or a SAS that may read, write, list and delete",
    "Google Cloud Storage": "the role roles/storage.objectUser for the bucket",
}


_NAMED = re.compile(r"'([^']+)'|does not exist: (\S+)")
"""A path in the error of a missing file, as pyarrow and pyiceberg give it."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def name_file(error: OSError, path: str) -> None:
    """Name this path in the error of a full disk, if the error names none. Any other error is left alone.

    :raises OSError: with the path as its ``filename``.
    """
    full = _full(error)
    if full is not None and error.filename is None:
        raise OSError(full, os.strerror(full), path) from error


def _full(error: OSError) -> int | None:
    """The number of a full disk's error. Arrow's writer of ORC has it in the text only."""
    return next((number for number in _FULL if error.errno == number or f"[Errno {number}]" in str(error)), None)


def store_error(error: BaseException) -> UnavailableError | None:
    """The error to raise for an error of a store; None if the error does not tell whether another attempt helps.

    ``AccessDeniedError`` names the file, the permission and the remedy. ``CredentialsExpiredError`` names the file.
    """
    # fsspec's file systems raise errors of their own from those of the stores' libraries.
    translated = (known(each) for known in (_of_s3, _of_another, _of_permissions, _of_space) for each in _causes(error))
    return next(filter(None, translated), None)


def described(error: BaseException) -> str:
    """What an error says: for a file that is not there the file and what to do, else the error's kind and text."""
    lost = next((each for each in _causes(error) if isinstance(each, FileNotFoundError)), None)
    if lost is None:
        return f"{type(error).__name__}: {error}"
    named = _NAMED.search(str(lost))
    place = lost.filename or (named[1] or named[2] if named is not None else None)
    file = "a file of it" if place is None else f"its file {place}"
    return (
        f"{file} does not exist, so somebody has deleted or moved it: bring it back from a backup or the store's"
        " versions, or register the table at an earlier metadata file"
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        yield cause
        seen.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)


def _of_another(error: BaseException) -> UnavailableError | None:
    store, status = _status(error)
    text = first_line(error)
    if status >= 500 or status in (408, 429):
        return UnavailableError(f"{store} does not serve the request now: {text}")
    if status == 401 or (status == 403 and "AuthenticationFailed" in str(error)):
        return CredentialsExpiredError(
            f"{store} does not accept the credentials: they are wrong, have expired or were withdrawn: {text}"
        )
    if status == 403:
        return AccessDeniedError(f"{store} denies access: the sink's credentials need {_NEEDS[store]}: {text}")
    return None


def _of_permissions(error: BaseException) -> UnavailableError | None:
    """HDFS and disks know users, and say no more."""
    if not isinstance(error, PermissionError):
        return None
    return AccessDeniedError(f"access is denied: the sink's user needs the right to read and write: {error}")


def _of_space(error: BaseException) -> UnavailableError | None:
    if not isinstance(error, OSError) or _full(error) is None:
        return None
    return UnavailableError(f"no space is left for {error.filename or 'a file'}: make room on its volume")


def _status(error: BaseException) -> tuple[str, int]:
    """The store, and the HTTP status of its answer: 0 if the error is not known, 503 if no answer came."""
    names, text = _names(error), str(error)
    if names & _NO_ANSWER:
        return "the store", 503
    if "azure.core.exceptions.HttpResponseError" in names:
        return "Azure", int(getattr(error, "status_code", None) or 0)
    if "gcsfs.retry.HttpError" in names:
        return "Google Cloud Storage", int(getattr(error, "code", None) or 0)
    if not isinstance(error, OSError):
        return "", 0
    if (azure := _AZURE.search(text)) is not None:
        return "Azure", int(azure["status"])
    if (google := _GOOGLE.search(text)) is not None:
        return "Google Cloud Storage", _GOOGLES.get(google["name"], 0)
    if text.startswith("Forbidden: "):  # of gcsfs, which has no class for it
        return "Google Cloud Storage", 403
    if _HDFS_AWAY.search(text):
        return "HDFS", 503
    return "", 0


def _names(error: BaseException) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}


def _of_s3(error: BaseException) -> UnavailableError | None:
    if (answer := _s3_answer(error)) is None:
        return None
    code, status, operation = answer
    if _PASSING.search(code) or status >= 500 or status == 429:
        return UnavailableError(f"S3 does not serve the request now: {first_line(error)}")
    file = _FILE.search(str(error))
    where = f"s3://{file['bucket']}/{file['key']}" if file is not None else "its bucket"
    if _UNKNOWN_KEYS.search(str(error)) or (status == 400 and operation == "HeadObject"):
        return CredentialsExpiredError(
            f"S3 does not accept the credentials for {where} in {operation}: they have expired or were withdrawn. The"
            " next attempt asks the catalog or the role for new ones; if these expire every time, have them lent for"
            " longer. Replace credentials of iceberg.catalog.s3.* yourself"
        )
    if code in _DENIED or status in (401, 403):
        permission = _PERMISSIONS.get(operation, f"s3:{operation}")
        return AccessDeniedError(
            f"S3 denies access to {where} in {operation} ({code}): the credentials that the sink uses there need the"
            f" permission {permission}; they are those of iceberg.catalog.s3.*, else those that the catalog lends for"
            " the table, else the machine's"
        )
    return None


def _s3_answer(error: BaseException) -> tuple[str, int, str] | None:
    """The code, the HTTP status (0 if it is not known) and the operation, from an error of pyarrow or of botocore."""
    if isinstance(error, OSError) and (match := _S3.search(str(error))) is not None:
        return match["code"], int(match["status"] or 0), match["operation"]
    if "botocore.exceptions.ClientError" not in _names(error):
        return None
    response = getattr(error, "response", {})
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return str(response.get("Error", {}).get("Code", "")), int(status), str(getattr(error, "operation_name", ""))
