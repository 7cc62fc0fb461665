"""The field types records share, with their ranges."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
"""A count, index, size or version; exact in every JSON reader."""

Positive = Annotated[int, msgspec.Meta(ge=1, lt=2**53)]

Seconds = Annotated[float, msgspec.Meta(ge=0.0, lt=1e12)]

Magnitude = Annotated[float, msgspec.Meta(ge=0.0, lt=1e38)]
"""A norm or a weight."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
"""A learner, closer or run name, safe in a key and in a file name."""

Nonce = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]

Digest = Annotated[str, msgspec.Meta(pattern=r"^xxh3_128:[0-9a-f]{32}$")]

Text = Annotated[str, msgspec.Meta(max_length=2000)]
