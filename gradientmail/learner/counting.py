"""What a program says that a step was trained on, before a contribution weighs by it."""

import operator
from typing import SupportsIndex

from gradientmail.errors import SettingsError


def counted(
    tokens: SupportsIndex, samples: SupportsIndex, *, least_samples: int
) -> tuple[int, int]:
    """Return both as plain numbers.

    Raises:
        SettingsError: one is no whole number or too small; the message says what to pass.
    """
    tokens, samples = _whole("tokens", tokens), _whole("samples", samples)
    if tokens < 1:
        raise SettingsError(f"tokens={tokens}: count what the step was trained on, at least 1")
    if samples < least_samples:
        raise SettingsError(
            f"samples={samples}: count the examples of the step, at least {least_samples}, as in "
            "step(tokens=..., samples=len(batch)); a contribution weighs by them where "
            "weights = 'samples'"
        )
    return tokens, samples


def _whole(name: str, count: SupportsIndex) -> int:
    try:
        return operator.index(count)
    except TypeError:
        raise SettingsError(
            f"{name}={count!r}: pass a whole number, as in batch.numel(), len(batch) or int(...)"
        ) from None
