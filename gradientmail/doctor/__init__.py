"""Does a store keep the promises a run stands on, and is a run that lives there well?"""

from gradientmail.doctor.findings import Finding, Verdict
from gradientmail.doctor.fitness import require_fit
from gradientmail.doctor.kernels import kernels_finding
from gradientmail.doctor.linting import lint_run
from gradientmail.doctor.probing import probe_store
from gradientmail.doctor.rules import worst

__all__ = [
    "Finding",
    "Verdict",
    "kernels_finding",
    "lint_run",
    "probe_store",
    "require_fit",
    "worst",
]
