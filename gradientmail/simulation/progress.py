"""Progress: how far a calm run must come, and within which time."""

import json
from collections.abc import Mapping

from gradientmail.simulation.bucket import Bucket
from gradientmail.simulation.checks import COMMIT
from gradientmail.simulation.line import LATEST_S
from gradientmail.simulation.scenario import Scenario

VERSIONS = 2
"""Versions every fragment must gain."""


class Goal:
    """``VERSIONS`` more versions of every fragment within ``bound_s`` of the calm.

    The bound: the last request that was late has arrived, a killed process has returned, a lost
    lease has run out, silent learners have been given up, and each round has had its timeout and
    its steps; all by the slowest clock of the fleet, and twice.
    """

    def __init__(self, scenario: Scenario, bucket: Bucket, now: float) -> None:
        self._bucket = bucket
        self._fragments = scenario.settings.fragments
        self._start = self._versions()
        self.bound_s = _bound_s(scenario, self._timeouts_s(scenario))
        self.until_s = now + self.bound_s

    def reached(self) -> bool:
        """Whether every fragment has come far enough."""
        found = self._versions()
        return all(found[p] >= self._start[p] + VERSIONS for p in range(self._fragments))

    def complaint(self) -> str:
        """Say what is missing."""
        return (
            f"calm for {self.bound_s:.0f} s, and versions went only from {self._start} to "
            f"{self._versions()}"
        )

    def _versions(self) -> list[int]:
        versions = [0] * self._fragments
        for entry in self._bucket.list("commits/"):
            if match := COMMIT.fullmatch(entry.key):
                fragment = int(match[1])
                versions[fragment] = max(versions[fragment], int(match[2]))
        return versions

    def _timeouts_s(self, scenario: Scenario) -> float:
        """Return how long ``VERSIONS`` rounds may take that all run into their timeouts."""
        longest_s = 0.0
        for p, version in enumerate(self._start):
            data = self._bucket.read(f"commits/{p:04d}/{version:010d}.json")
            known = json.loads(data)["estimates"] if data else {}
            longest_s = max(longest_s, _timeouts_s(known, 30.0 * scenario.settings.poll_s))
        return longest_s


def _timeouts_s(known: Mapping[str, float | None], least_s: float) -> float:
    """Sum up timeouts of three times what rounds take, where each becomes the next one's past."""
    quorum_s = known.get("quorum_s")
    rest_s = (known.get("step_s") or 0.0) + (known.get("sync_s") or 0.0)
    sum_s = 0.0
    for _ in range(VERSIONS):
        timeout_s = max(least_s, 3.0 * ((quorum_s or 0.0) + rest_s))
        sum_s += timeout_s
        quorum_s = timeout_s if quorum_s is None else 0.9 * quorum_s + 0.1 * timeout_s
    return sum_s


def _bound_s(scenario: Scenario, timeouts_s: float) -> float:
    settings = scenario.settings
    slowest = min(member.clock.rate for member in scenario.fleet)
    step_s = max(member.step_s for member in scenario.fleet if member.role == "learner")
    waits_s = (
        2 * settings.lease_s
        + 2 * settings.presence_s
        + scenario.retry_deadline_s
        + timeouts_s
        + VERSIONS * settings.sync_every * step_s
    )
    return LATEST_S + 120.0 + 2 * waits_s / slowest
