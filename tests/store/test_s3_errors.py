"""One table for both clients: what stops us, what passes, what is full."""

import pytest

from gradientmail.errors import StoreAccessError, StoreFullError, StoreUnavailableError
from gradientmail.store.s3_errors import store_error


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (None, ""),
        (409, "ConditionalRequestConflict"),
        (412, "PreconditionFailed"),
        (429, "SlowDown"),
        (500, "InternalError"),
        (502, ""),
        (503, "ServiceUnavailable"),
        (400, "RequestTimeout"),
        (400, "ExpiredToken"),
        (400, "BadDigest"),
        (404, "NoSuchUpload"),
    ],
)
def test_what_may_have_happened_is_unknown(status: int | None, code: str) -> None:
    assert isinstance(store_error("put a", status, code, ""), StoreUnavailableError)


@pytest.mark.parametrize(
    ("status", "code", "advice"),
    [
        (403, "AccessDenied", "policy"),
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", "clock is more than 15 minutes off"),
        (403, "", "check the URL"),
        (404, "NoSuchBucket", "create the bucket"),
        (None, "NoSuchBucket", "create the bucket"),
        (301, "PermanentRedirect", "AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "AWS_REGION"),
        (501, "NotImplemented", "check the URL"),
    ],
)
def test_a_refusal_says_what_to_do(status: int | None, code: str, advice: str) -> None:
    error = store_error("put a", status, code, "said the server")
    assert isinstance(error, StoreAccessError)
    assert advice in str(error)
    assert "said the server" in str(error)


@pytest.mark.parametrize(("status", "code"), [(507, ""), (403, "QuotaExceeded")])
def test_a_store_without_room_is_full(status: int, code: str) -> None:
    assert isinstance(store_error("put a", status, code, ""), StoreFullError)
