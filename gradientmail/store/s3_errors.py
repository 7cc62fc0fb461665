"""What an object store's refusal means for us: stop, free space, or UNKNOWN.

The one table that both S3 clients share. Codes are those of the S3 API's error responses
(https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
"""

from gradientmail.errors import (
    StoreAccessError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
)

_WRONG_KEYS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_WRONG_REGION = "set AWS_REGION to the bucket's region"

_ADVICE = {
    "NoSuchBucket": "create the bucket, or correct its name or the endpoint",
    "InvalidBucketName": "correct the bucket's name in the URL",
    "AccessDenied": "these credentials may not do this here; see the bucket's policy",
    "InvalidAccessKeyId": _WRONG_KEYS,
    "SignatureDoesNotMatch": _WRONG_KEYS,
    "InvalidToken": "check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is more than 15 minutes off; set it",
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "PermanentRedirect": _WRONG_REGION,
    "IllegalLocationConstraintException": _WRONG_REGION,
}

# Refusals that pass: a connection that died, credentials that are about to rotate.
_PASSING = {
    "RequestTimeout",
    "IncompleteBody",
    "BadDigest",
    "XAmzContentSHA256Mismatch",
    "ExpiredToken",
    "TokenRefreshRequired",
}

_FULL = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"}

INSUFFICIENT_STORAGE = 507
_REFUSED = {301, 307, 400, 401, 403, 405, 501}


def store_error(what: str, status: int | None, code: str, detail: str) -> StoreError:
    """Return the error for an answer of HTTP ``status`` (None: no answer) and S3 ``code``."""
    answer = f"{status or 'no answer'} {code}".strip()
    message = f"{what}: {answer}: {detail}" if detail else f"{what}: {answer}"
    if status == INSUFFICIENT_STORAGE or code in _FULL:
        return StoreFullError(f"{message}; free some space or raise the quota")
    refused = status in _REFUSED or code in _ADVICE
    if refused and code not in _PASSING:
        return StoreAccessError(f"{message}; {_ADVICE.get(code, 'check the URL and settings')}")
    return StoreUnavailableError(message)
