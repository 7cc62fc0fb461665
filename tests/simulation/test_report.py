from collections import Counter

from gradientmail.simulation.checking import Verdict
from gradientmail.simulation.report import Report


def a_verdict(wrong=()):
    return Verdict(
        seed=1,
        wrong=wrong,
        seen=Counter({"x": 7}),
        digest="",
        operations=10,
        virtual_s=1800.0,
        commits=2,
    )


def test_it_sums_up_and_bounds_the_rate_of_failures_only_where_there_was_none():
    report = Report()
    for _ in range(300):
        report.add(a_verdict())
    assert report.seen == {"x": 300}
    assert report.summary("seeds") == (
        "300 seeds, 3000 operations, 600 commits, 150.0 simulated hours: 0 wrong; "
        "failure rate below 0.01 (3/N)"
    )
    report.add(a_verdict(wrong=("something",)))
    assert report.summary("seeds").endswith("1 wrong")
