"""Tests here may be coroutines."""

from tests.operations.conftest import pytest_pyfunc_call

__all__ = ["pytest_pyfunc_call"]
