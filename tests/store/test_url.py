"""A URL is all a user types: each kind opens, and each mistake is told."""

import asyncio
import os
from pathlib import Path

import pytest

from gradientmail.clock import SystemClock, system_random
from gradientmail.errors import SettingsError, StoreAccessError
from gradientmail.store.metered import Meter
from gradientmail.store.url import open_client, open_store


def write_one(url: str) -> Meter:
    async def scenario() -> Meter:
        meter = Meter()
        store = open_store(url, clock=SystemClock(), rng=system_random(), meter=meter)
        await store.create("a", b"four")
        assert await store.read("a") == b"four"
        await store.close()
        return meter

    return asyncio.run(scenario())


def test_a_plain_path_and_a_file_url_are_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_one("runs/one")
    write_one(f"file://{tmp_path}/runs/two%20words")
    monkeypatch.setenv("HOME", str(tmp_path))
    write_one("~/runs/three")
    assert sorted(path.name for path in Path("runs").iterdir()) == ["one", "three", "two words"]


def test_memory_of_the_same_name_is_the_same_store() -> None:
    async def scenario() -> None:
        one, same, other = (
            open_client(f"memory://{name}", clock=SystemClock())
            for name in ("test-url", "test-url", "test-url-2")
        )
        await one.create("a", b"x")
        assert await same.read("a") == b"x"
        assert await other.read("a") is None

    asyncio.run(scenario())


def test_what_a_store_is_asked_is_metered(tmp_path: Path) -> None:
    meter = write_one(str(tmp_path))
    assert meter.requests == 2
    assert meter.up_bytes == meter.down_bytes == 4


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("s4://bucket/run", r"did you mean s3://\?"),
        ("gcs://bucket/run", r"did you mean gs://\?"),
        ("http://host/run", "known: file, memory, s3, gs, az"),
        ("s3:bucket/run", "write s3://bucket/run"),
        ("s3:/bucket/run", "write s3://bucket/run"),
        ("s3://", "write s3://bucket/prefix"),
        ("s3:///run", "write s3://bucket/prefix"),
        ("file://runs/one", "three slashes"),
        ("fsspec+nope://x", "Protocol not known"),
        ("", "empty"),
    ],
)
def test_a_url_that_is_wrong_says_what_to_write(url: str, advice: str) -> None:
    with pytest.raises(SettingsError, match=advice):
        open_client(url, clock=SystemClock())


def test_s3fs_is_for_s3_only() -> None:
    with pytest.raises(SettingsError, match="obstore"):
        open_client("gs://bucket/run", clock=SystemClock(), client="s3fs")


@pytest.mark.parametrize("client", ["obstore", "s3fs"])
def test_no_credentials_are_told_before_anything_is_tried(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(StoreAccessError, match=r"AWS_ACCESS_KEY_ID.*AWS_PROFILE"):
        open_client("s3://bucket/run", clock=SystemClock(), client=client)


@pytest.mark.parametrize("url", ["gs://bucket/run", "az://container/run"])
def test_other_clouds_open_without_being_contacted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert open_client(url, clock=SystemClock()) is not None


def test_another_clouds_settings_that_make_no_sense_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreAccessError, match=r"(?i)account"):
        open_client("az://container/run", clock=SystemClock())
