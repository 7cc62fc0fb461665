"""The second client takes a server at its word, and a word that is missing for no answer."""

import asyncio
import contextlib
from typing import Any

import pytest

from gradientmail.errors import StoreUnavailableError
from gradientmail.store.buckets import PART_BYTES, PARTS_IN_FLIGHT, BucketPrefix
from gradientmail.store.s3fs import S3fsStore


def test_a_listing_that_is_cut_and_does_not_say_where_is_no_listing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As pys3local 0.2.1 cuts them: taken for whole, commits would be missing from it."""

    async def call(*_: Any, **__: Any) -> dict[str, Any]:
        return {"Contents": [{"Key": "a", "Size": 1, "ETag": "x"}], "IsTruncated": True}

    store = S3fsStore(None, None, BucketPrefix("s3", "bucket", ""))
    monkeypatch.setattr(store, "_call", call)
    with pytest.raises(StoreUnavailableError, match="does not say where"):
        asyncio.run(store.list(""))


class Uploading:
    """A server on which parts stay on their way until ``fails`` is set; then the second fails."""

    def __init__(self) -> None:
        self.fails, self.full = asyncio.Event(), asyncio.Event()
        self.under_way: set[int] = set()
        self.asked: list[str] = []

    async def call(self, _: object, method: str, **arguments: Any) -> dict[str, Any]:
        self.asked.append(method)
        if method != "upload_part":
            return {"UploadId": "u"}
        number = arguments["PartNumber"]
        self.under_way.add(number)
        if len(self.under_way) == PARTS_IN_FLIGHT:
            self.full.set()
        try:
            await (self.fails.wait() if number == 2 else asyncio.Event().wait())
        finally:
            self.under_way.remove(number)
        raise StoreUnavailableError("no")


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_put_that_ends_early_ends_its_parts(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would take the line from the next attempt, and its memory."""

    async def scenario() -> None:
        server = Uploading()
        store = S3fsStore(None, None, BucketPrefix("s3", "bucket", ""))
        monkeypatch.setattr(store, "_call", server.call)
        body = memoryview(bytes(PART_BYTES))
        putting = asyncio.create_task(store.put("large", [body] * (PARTS_IN_FLIGHT + 2)))
        await asyncio.wait_for(server.full.wait(), timeout=10)
        if end == "cancelled":
            putting.cancel()
        else:
            server.fails.set()
        with contextlib.suppress(asyncio.CancelledError, StoreUnavailableError):
            await asyncio.wait_for(putting, timeout=10)
        assert not server.under_way
        assert server.asked == ["create_multipart_upload"] + ["upload_part"] * PARTS_IN_FLIGHT

    asyncio.run(scenario())
