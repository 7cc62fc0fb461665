"""A small disk can be filled to the last byte, and emptied; what cannot be tried is skipped."""

import errno
from pathlib import Path

import pytest

from gradientmail.chaos import places
from gradientmail.chaos.places import SkippedError, directory_place, small_disk, url_place


def test_a_small_disk_takes_nothing_once_it_is_filled(tmp_path: Path) -> None:
    try:
        with small_disk(tmp_path / "disk") as disk:
            disk.fill()
            with pytest.raises(OSError, match="No space left") as full:
                (disk.root / "more").write_bytes(b"x")
            assert full.value.errno == errno.ENOSPC
            disk.empty()
            (disk.root / "more").write_bytes(b"x")
    except SkippedError as reason:
        pytest.skip(str(reason))
    assert not (tmp_path / "disk" / "more").exists(), "it is unmounted"


def test_who_may_not_mount_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SkippedError, match="takes root"), small_disk(tmp_path / "disk"):
        pass


def test_a_place_without_a_server_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(places, "_search_path", lambda: str(tmp_path))
    with pytest.raises(SkippedError, match="weed"), places.seaweedfs_server(tmp_path):
        pass


def test_a_url_is_taken_as_it_is(tmp_path: Path) -> None:
    with url_place("s3://bucket/runs/", tmp_path) as place:
        assert (place.url, place.proxy, place.disks) == ("s3://bucket/runs", None, ())
    with directory_place(tmp_path) as place:
        assert place.url == str(tmp_path / "store")
