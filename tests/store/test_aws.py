"""Credentials, region and endpoint are found where AWS's own tools find them, and re-read."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gradientmail.errors import SettingsError, StoreAccessError
from gradientmail.store.aws import AwsCredentials, AwsSettings
from gradientmail.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No settings but those a test makes: its own ``credentials`` and ``config`` files."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def write_credentials(files: Path, key: str, profile: str = "default") -> None:
    text = f"[{profile}]\naws_access_key_id = {key}\naws_secret_access_key = secret-{key}\n"
    (files / "credentials").write_text(text)


def test_a_shared_file_is_re_read_when_it_rotates(files: Path) -> None:
    write_credentials(files, "first")
    credentials = AwsCredentials(ManualClock())
    assert credentials()["access_key_id"] == "first"
    write_credentials(files, "second")
    assert credentials()["secret_access_key"] == "secret-second"


def test_the_client_asks_again_within_a_minute(files: Path) -> None:
    """obstore asks anew when less than five minutes are left."""
    write_credentials(files, "first")
    clock = ManualClock()
    left = AwsCredentials(clock)()["expires_at"] - datetime.fromtimestamp(clock.wall(), UTC)
    assert left.total_seconds() == 360


def test_a_profile_and_its_settings_are_used(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_credentials(files, "mine", profile="lab")
    (files / "config").write_text(
        "[profile lab]\nregion = eu-north-1\nendpoint_url = http://lab:9000\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert AwsCredentials(ManualClock())()["access_key_id"] == "mine"
    assert AwsSettings.found() == AwsSettings("http://lab:9000", "eu-north-1")


def test_the_environment_wins_and_the_service_endpoint_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert AwsSettings.found() == AwsSettings(None, "us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://any:1")
    assert AwsSettings.found() == AwsSettings("http://any:1", "eu-west-1")
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://s3:1")
    assert AwsSettings.found() == AwsSettings("http://s3:1", "eu-west-2")


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
@pytest.mark.parametrize("endpoint", ["127.0.0.1:9000", "minio.example", "http://", "ftp://a"])
def test_an_endpoint_that_is_no_url_is_told(
    name: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, endpoint)
    with pytest.raises(SettingsError, match=f"{name} = '{endpoint}': write a URL, http://HOST"):
        AwsSettings.found()


def test_a_session_token_travels_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "c")
    assert AwsCredentials(ManualClock())()["token"] == "c"


def test_a_profile_that_does_not_exist_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreAccessError, match="nobody"):
        AwsCredentials(ManualClock())
