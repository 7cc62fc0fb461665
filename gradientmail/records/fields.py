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

Text = Annotated[str, msgspec.Meta(max_length=2000)]
