"""What the doctor says of kernels: a word, never a complaint."""

from importlib.metadata import PackageNotFoundError

import pytest

from gradientmail.doctor import kernels
from gradientmail.doctor.findings import Verdict
from gradientmail.doctor.kernels import kernels_finding


def test_numba_is_named_with_its_version() -> None:
    finding = kernels_finding()
    assert finding.verdict is Verdict.PASSED
    assert "numba 0." in finding.detail


def test_without_numba_it_says_how_to_be_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(kernels, "version", missing)
    finding = kernels_finding()
    assert finding.verdict is Verdict.PASSED
    assert "gradientmail[fast]" in finding.advice
