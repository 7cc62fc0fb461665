import pytest

from gradientmail.simulation.checking import judged_seed


@pytest.mark.parametrize(
    "family", ["defaced", "forged-heads", "left-behind", "rivals", "restarts"]
)
def test_a_family_keeps_every_promise(family, quiet):
    for seed in range(4):
        assert not judged_seed(seed, family).wrong, f"--family {family} --seed {seed}"


def test_rivals_race(quiet):
    verdicts = [judged_seed(seed, "rivals") for seed in range(3)]
    assert any(one.seen["two closers raced, and the loser went on"] for one in verdicts)


def test_a_reader_whose_payload_was_swept_looks_for_a_newer_one(quiet):
    verdicts = [judged_seed(seed, "slow-joiner") for seed in range(6)]
    assert not [verdict.wrong for verdict in verdicts if verdict.wrong]
    assert any(verdict.seen["a reader missed a swept payload"] for verdict in verdicts)
