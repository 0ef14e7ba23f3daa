"""What S3 says decides whether the sink goes on trying, and what its operator is told; texts as pyarrow gives them."""

from __future__ import annotations

import pytest

from calving.errors import AccessDeniedError, CredentialsExpiredError, GaveUpError, JobFailedError, UnavailableError
from calving.retries import SAME, Failures, Retries
from calving.storage_errors import described, store_error

HEAD = "When getting information for key 'x/y.parquet' in bucket 'lake': "
CREATE = "When initiating multiple part upload for key 'x/y.parquet' in bucket 'lake': "


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}AWS Error UNKNOWN (HTTP status 503) during HeadObject operation: No response body.",
        f"{CREATE}AWS Error SLOW_DOWN during CreateMultipartUpload operation: Please reduce your request rate.",
        f"{CREATE}AWS Error INTERNAL_FAILURE during CreateMultipartUpload operation: again (Request ID: abc)",
        f"{HEAD}AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Couldn't connect to server",
    ],
)
def test_a_store_that_is_busy_or_away_is_tried_for_ever(text: str) -> None:
    error = store_error(OSError(text))
    assert type(error) is UnavailableError
    assert text in str(error)


def test_a_denied_write_names_file_and_permission() -> None:
    error = store_error(
        OSError(f"{CREATE}AWS Error ACCESS_DENIED during CreateMultipartUpload operation: Access Denied.")
    )
    assert isinstance(error, AccessDeniedError)
    assert "s3://lake/x/y.parquet" in str(error)
    assert "the permission s3:PutObject" in str(error)


def test_a_denied_look_names_the_permission_to_list_too_without_which_a_missing_file_is_denied() -> None:
    error = store_error(OSError(f"{HEAD}AWS Error ACCESS_DENIED during HeadObject operation: No response body."))
    assert "s3:GetObject, and s3:ListBucket" in str(error)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}AWS Error UNKNOWN (HTTP status 400) during HeadObject operation: No response body.",
        f"{CREATE}AWS Error UNKNOWN (HTTP status 400) during CreateMultipartUpload operation: Unable to parse"
        " ExceptionName: ExpiredToken Message: The provided token has expired.",
        f"{CREATE}AWS Error INVALID_ACCESS_KEY_ID during CreateMultipartUpload operation: does not exist",
    ],
)
def test_credentials_that_expired_are_told_from_a_missing_permission(text: str) -> None:
    error = store_error(OSError(text))
    assert isinstance(error, CredentialsExpiredError)
    assert "have expired" in str(error)


@pytest.mark.parametrize("error", [OSError("the disk is full"), ValueError("AWS Error"), KeyError("x")])
def test_other_errors_say_nothing(error: Exception) -> None:
    assert store_error(error) is None


class Answer(Exception):
    """An error of a library that is not installed."""


def of_class(name: str, text: str = "no", **attributes: object) -> Exception:
    """An error of a subclass of the class with this full name."""
    module, _, own = name.rpartition(".")
    kind = type(own, (Answer,), {"__module__": module, "__qualname__": own})
    error: Exception = type("Special", (kind,), {})(text)
    for key, value in attributes.items():
        setattr(error, key, value)
    return error


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


AZURE, GCSFS, BOTO = (
    "azure.core.exceptions.HttpResponseError",
    "gcsfs.retry.HttpError",
    "botocore.exceptions.ClientError",
)


def boto(code: str, status: int) -> Exception:
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return of_class(BOTO, f"An error occurred ({code})", response=response, operation_name="GetObject")


@pytest.mark.parametrize(
    "error",
    [
        # adlfs turns whatever its library raises into errors of values.
        raised_from(RuntimeError("Failed to upload block"), of_class(AZURE, "The server is busy.", status_code=503)),
        raised_from(ValueError("unable to connect"), of_class("azure.core.exceptions.ServiceRequestError")),
        of_class("azure.core.exceptions.ServiceResponseError"),
        of_class(GCSFS, "Service Unavailable, 503", code=503),
        of_class(GCSFS, "Too Many Requests, 429", code="429"),
        of_class("google.auth.exceptions.TransportError"),
        of_class("aiohttp.client_exceptions.ClientConnectionError"),
        raised_from(OSError(16, "Please reduce your request rate."), boto("SlowDown", 503)),
        of_class("botocore.exceptions.HTTPClientError", "Could not connect to the endpoint URL"),
        OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted in WriteObject)"),
        OSError("CreateFile failed. Azure Error: [ServerBusy] 503 The server is busy."),
        OSError("HDFS connection failed"),
        OSError("[Errno 255] Opening HDFS file '/x' failed. Detail: [errno 255] Unknown error 255"),
    ],
)
def test_the_other_stores_are_tried_for_ever_while_they_are_busy_or_away(error: Exception) -> None:
    assert type(store_error(error)) is UnavailableError


@pytest.mark.parametrize(
    ("error", "permission"),
    [
        (
            raised_from(
                FileNotFoundError("x"), of_class(AZURE, "ErrorCode:AuthorizationPermissionMismatch", status_code=403)
            ),
            "Storage Blob Data Contributor",
        ),
        (OSError("Azure Error: [AuthorizationPermissionMismatch] 403 This request"), "Storage Blob Data Contributor"),
        (OSError("Forbidden: b/x/o\nPermission 'storage.objects.create' denied"), "roles/storage.objectUser"),
        (OSError("google::cloud::Status(PERMISSION_DENIED: Permanent error)"), "roles/storage.objectUser"),
        (raised_from(PermissionError("Access Denied"), boto("AccessDenied", 403)), "the permission s3:GetObject"),
        (boto("AccessDenied", 403), "the permission s3:GetObject"),
        (PermissionError(13, "Opening HDFS file '/x' failed"), "the right to read and write"),
    ],
)
def test_a_denial_by_the_other_stores_names_what_the_sink_needs(error: Exception, permission: str) -> None:
    found = store_error(error)
    assert type(found) is AccessDeniedError
    assert permission in str(found)


@pytest.mark.parametrize(
    "error",
    [
        of_class(AZURE, "ErrorCode:AuthenticationFailed", status_code=403),
        of_class(AZURE, "Unauthorized", status_code=401),
        of_class(GCSFS, "Invalid Credentials, 401", code=401),
        boto("ExpiredToken", 400),
        boto("InvalidAccessKeyId", 403),
    ],
)
def test_credentials_that_the_other_stores_do_not_accept_are_told_from_a_missing_permission(error: Exception) -> None:
    assert isinstance(store_error(error), CredentialsExpiredError)


def test_a_missing_file_or_a_wrong_request_says_nothing() -> None:
    missing = raised_from(FileNotFoundError("x"), of_class(AZURE, "ErrorCode:BlobNotFound", status_code=404))
    assert store_error(missing) is None
    assert store_error(of_class(GCSFS, "Bad Request, 400", code=400)) is None


def test_a_denial_that_returns_every_time_stops_the_sink() -> None:
    failures = Failures(Retries(600.0))
    for _ in range(SAME - 1):
        failures.add(AccessDeniedError("denied"), 0, 0.0)
    with pytest.raises(GaveUpError, match="denied"):
        failures.add(AccessDeniedError("denied"), 0, 0.0)


def test_the_same_in_a_spark_job_is_the_same_error() -> None:
    from calving.engine.spark import verdict

    trace = "Traceback (most recent call last):\n  File x\ncalving.errors.{}: S3 says no: really\n"
    same = [AccessDeniedError, CredentialsExpiredError, UnavailableError]
    assert [type(verdict(trace.format(kind.__name__))) for kind in same] == same
    assert type(verdict(trace.format("GaveUpError"))) is JobFailedError
    assert str(verdict(trace.format("AccessDeniedError"))) == "S3 says no: really"


@pytest.mark.parametrize(
    ("error", "file"),
    [
        (
            FileNotFoundError("[Errno 2] Failed to open local file '/w/db/t/1.json'. Detail: [errno 2]"),
            "/w/db/t/1.json",
        ),
        (FileNotFoundError("Cannot open file, does not exist: s3://lake/t/1.json"), "s3://lake/t/1.json"),
        (FileNotFoundError(2, "No such file or directory", "/w/t/1.json"), "/w/t/1.json"),
    ],
)
def test_a_file_that_is_gone_is_named_with_what_to_do(error: Exception, file: str) -> None:
    text = described(error)
    assert text.startswith(f"its file {file} does not exist") and "bring it back from a backup" in text
    assert "Errno" not in text


def test_any_other_error_keeps_its_kind() -> None:
    assert described(KeyError("metadata")) == "KeyError: 'metadata'"
