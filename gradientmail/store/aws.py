"""Where AWS's own tools find credentials, region and endpoint: so do both S3 clients here.

Environment, shared files and profiles, SSO, container and instance roles: all through botocore.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.session
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError

from gradientmail.clock import Clock
from gradientmail.errors import SettingsError, StoreAccessError

if TYPE_CHECKING:
    from obstore.store import S3Credential

# obstore asks anew when less than 300 s are left: a file's credentials are re-read each minute.
_TRUSTED_S = 360.0

_NO_CREDENTIALS = (
    "no AWS credentials found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
)


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Which S3 the settings point at; no endpoint means AWS itself."""

    endpoint: str | None
    region: str

    @classmethod
    def found(cls) -> "AwsSettings":
        """Read ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``, ``AWS_REGION`` or the profile.

        Raises:
            SettingsError: the endpoint is no URL.
        """
        session = botocore.session.Session()
        profile: dict[str, Any] = session.get_scoped_config()
        names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        told = {name: os.environ.get(name) for name in names}
        told["the profile's endpoint_url"] = profile.get("endpoint_url")
        source = next(filter(told.get, told), "")
        endpoint = told.get(source)
        if endpoint:
            _require_url(source, endpoint)
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region")
        return cls(endpoint, region or "us-east-1")


def _require_url(source: str, endpoint: str) -> None:
    """Refuse what would make the client library panic."""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError(
            f"{source} = {endpoint!r}: write a URL, http://HOST:PORT or https://HOST"
        )


class AwsCredentials:
    """obstore's credential provider: re-reads what rotates.

    Raises:
        StoreAccessError: on construction, when there are none.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found = find_credentials()

    def __call__(self) -> "S3Credential":
        """Return the credentials of now."""
        if not isinstance(self._found, RefreshableCredentials):
            self._found = find_credentials()  # a shared file may have been rewritten
        frozen = self._found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.fromtimestamp(self._clock.wall() + _TRUSTED_S, UTC),
        }


def find_credentials() -> Any:  # noqa: ANN401 - botocore has no types
    """Return botocore's credentials for this process.

    Raises:
        StoreAccessError: there are none.
    """
    try:
        found = botocore.session.Session().get_credentials()
    except BotoCoreError as error:
        raise StoreAccessError(f"{_NO_CREDENTIALS}; {error}") from error
    if found is None:
        raise StoreAccessError(_NO_CREDENTIALS)
    return found
