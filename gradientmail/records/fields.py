"""The field types records share, with their ranges."""

from typing import Annotated

import msgspec

from gradientmail.config import NAME_PATTERN

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
"""A count, index, size or version; exact in every JSON reader."""

Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]

Seconds = Annotated[float, msgspec.Meta(ge=0.0, lt=1e12)]

Magnitude = Annotated[float, msgspec.Meta(ge=0.0, lt=1e38)]
"""A norm or a weight."""

Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME_PATTERN}\Z")]

Nonce = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]

Digest = Annotated[str, msgspec.Meta(pattern=r"^xxh3_128:[0-9a-f]{32}\Z")]

Key = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?=.{1,512}\Z)(?!(.*/)?\.{1,2}(/|\Z))([A-Za-z0-9._-]+/)*(?!\.)[A-Za-z0-9._-]+\Z"
    ),
]
"""What ``store.base.check_key`` lets through: a record names no object that no store can hold."""

Text = Annotated[str, msgspec.Meta(max_length=2000)]
