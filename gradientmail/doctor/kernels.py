"""Whether this machine codes by compiled kernels."""

from importlib.metadata import PackageNotFoundError, version

from gradientmail.doctor.findings import Finding, Verdict

NAME = "kernels"


def kernels_finding() -> Finding:
    """Say whether numba is here; nothing fails without it."""
    try:
        found = version("numba")
    except PackageNotFoundError:
        detail = "numba is not installed: torch codes, two to ten times slower"
        return Finding(NAME, Verdict.PASSED, detail, "pip install 'gradientmail[fast]'")
    return Finding(NAME, Verdict.PASSED, f"numba {found} compiles them for large fragments")
