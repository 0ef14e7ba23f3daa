"""Tasks get what reaches the storage, and not the logins of the catalog."""

from __future__ import annotations

from pyiceberg.io import load_file_io

from calving.iceberg.locations import carried

STORAGE = {"s3.access-key-id": "k", "s3.session-token": "t", "client.region": "r", "gcs.token": "g"}
CATALOG = {
    "uri": "postgresql://user:password@host/db",
    "token": "secret",
    "credential": "user:secret",
    "header.X-Key": "secret",
    "oauth2-server-uri": "u",
    "glue.secret-access-key": "secret",
}


def test_the_logins_of_a_catalog_stay_with_the_driver() -> None:
    assert carried(load_file_io({**STORAGE, **CATALOG, "py-io-impl": _IMPL})) == {**STORAGE, "py-io-impl": _IMPL}


def test_a_task_whose_requests_the_catalog_signs_has_its_address_and_login() -> None:
    keys = {"s3.signer": "S3V4RestSigner", "uri": "http://catalog", "token": "secret", "py-io-impl": _IMPL}
    assert carried(load_file_io(keys)) == keys


def test_objects_do_not_travel() -> None:
    assert carried(load_file_io({"py-io-impl": _IMPL, "auth.manager": object(), "s3.connect-timeout": 3})) == {
        "py-io-impl": _IMPL,
        "s3.connect-timeout": "3",
    }


_IMPL = "pyiceberg.io.pyarrow.PyArrowFileIO"
