"""Does a store keep the promises a run stands on? Asked before a run, not after."""

from gradientmail.doctor.findings import Finding, Verdict
from gradientmail.doctor.fitness import require_fit
from gradientmail.doctor.probing import probe_store

__all__ = ["Finding", "Verdict", "probe_store", "require_fit"]
