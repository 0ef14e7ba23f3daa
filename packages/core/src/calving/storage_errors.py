"""Finds out whether an object store's error is temporary, or whether an operator has to give a permission."""

from __future__ import annotations

import re

from calving.errors import AccessDeniedError, CredentialsExpiredError, UnavailableError, first_line

# The form of pyarrow's errors for S3's answers. The answer to HEAD has no body, so its error has a status, but no name.
_S3 = re.compile(r"AWS Error (?P<code>\w+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<operation>\w+) operation")
_FILE = re.compile(r"key '(?P<key>[^']*)' in bucket '(?P<bucket>[^']*)'")
_PASSING = re.compile(r"SLOW_?DOWN|SERVICE_UNAVAILABLE|THROTTL|INTERNAL_FAILURE|REQUEST_TIMEOUT|NETWORK_CONNECTION")
_UNKNOWN_KEYS = re.compile(r"INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|Expired_?Token|InvalidToken", re.IGNORECASE)
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


def store_error(error: BaseException) -> UnavailableError | None:
    """The error to raise for an error of S3; None if the error does not tell whether another attempt helps.

    ``AccessDeniedError`` names the file, the permission and the remedy. ``CredentialsExpiredError`` names the file.
    """
    found = _S3.search(str(error)) if isinstance(error, OSError) else None
    if found is None:
        return None
    code, status, operation = found["code"], int(found["status"] or 0), found["operation"]
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
