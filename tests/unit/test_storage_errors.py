"""What S3 says decides whether the sink goes on trying, and what its operator is told; texts as pyarrow gives them."""

from __future__ import annotations

import pytest

from calving.errors import AccessDeniedError, CredentialsExpiredError, GaveUpError, JobFailedError, UnavailableError
from calving.runtime.failures import SAME, Failures
from calving.storage_errors import store_error

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


def test_a_denial_that_returns_every_time_stops_the_sink() -> None:
    failures = Failures()
    for _ in range(SAME - 1):
        failures.add(AccessDeniedError("denied"), 0)
    with pytest.raises(GaveUpError, match="denied"):
        failures.add(AccessDeniedError("denied"), 0)


def test_the_same_in_a_spark_job_is_the_same_error() -> None:
    from calving.engine.failures import verdict

    trace = "Traceback (most recent call last):\n  File x\ncalving.errors.{}: S3 says no: really\n"
    same = [AccessDeniedError, CredentialsExpiredError, UnavailableError]
    assert [type(verdict(trace.format(kind.__name__))) for kind in same] == same
    assert type(verdict(trace.format("GaveUpError"))) is JobFailedError
    assert str(verdict(trace.format("AccessDeniedError"))) == "S3 says no: really"
