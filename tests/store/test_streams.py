import array
from io import SEEK_CUR, SEEK_END, BufferedReader
from pathlib import Path

import pytest
import xxhash

from gradientmail.errors import PayloadError, StoreAccessError
from gradientmail.store.base import Fetched
from gradientmail.store.streams import ViewsReader, byte_views, copy, sink_to


def test_views_are_flat_bytes_of_the_same_memory() -> None:
    numbers = array.array("f", [1.0, 2.0])
    [view] = byte_views([memoryview(numbers), b"", memoryview(b"")])
    assert view.tobytes() == numbers.tobytes()
    numbers[0] = 3.0
    assert view.tobytes() == numbers.tobytes()


def test_views_are_read_like_one_file() -> None:
    reader = ViewsReader([memoryview(b"ab"), memoryview(b"cdefg"), memoryview(b"h")])
    assert reader.seek(0, SEEK_END) == 8
    assert reader.read(5) == b""
    assert reader.seek(1) == reader.tell() == 1
    assert BufferedReader(reader).read() == b"bcdefgh"
    assert reader.seek(-3, SEEK_END) == 5
    assert reader.seek(1, SEEK_CUR) == 6
    assert [reader.read(5) for _ in range(3)] == [b"g", b"h", b""]
    assert ViewsReader([]).read(1) == b""


def test_a_copy_is_hashed_on_the_way(tmp_path: Path) -> None:
    body = bytes(range(256)) * 10_000
    (tmp_path / "source").write_bytes(body)
    with (tmp_path / "source").open("rb") as file, sink_to(tmp_path / "out", len(body)) as sink:
        copy(file, sink)
    digest = f"xxh3_128:{xxhash.xxh3_128_hexdigest(body)}"
    assert sink.fetched() == Fetched(len(body), digest)
    assert (tmp_path / "out").read_bytes() == body


def test_not_one_byte_beyond_the_limit_is_written(tmp_path: Path) -> None:
    limit = pytest.raises(PayloadError, match="at least 6 bytes, where at most 5")
    with limit, sink_to(tmp_path / "out", 5) as sink:
        sink.write(b"1234")
        sink.write(b"56")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(StoreAccessError, match="directory"), sink_to(tmp_path, 5):
        pass
