"""This package's version, which a manifest records."""

from typing import Final

VERSION: Final = "0.1.0"
