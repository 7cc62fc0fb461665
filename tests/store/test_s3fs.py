"""The second client takes a server at its word, and a word that is missing for no answer."""

import asyncio
from typing import Any

import pytest

from gradientmail.errors import StoreUnavailableError
from gradientmail.store.buckets import BucketPrefix
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
