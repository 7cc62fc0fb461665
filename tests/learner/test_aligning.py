"""Aligned in place and by pieces, parameters are what the rule says of the whole."""

import pytest
import torch

from gradientmail.algorithms.alignment import ALIGNMENTS, Alignment
from gradientmail.codecs.layout import CHUNK
from gradientmail.learner.aligning import Meeting, align

NUMEL, END = 2 * CHUNK + 100, 2 * CHUNK + 10
rules = pytest.mark.parametrize(
    "rule", [make(0.25) for make in ALIGNMENTS.values()], ids=ALIGNMENTS
)


def vectors() -> list[torch.Tensor]:
    chance = torch.Generator().manual_seed(0)
    return [torch.randn(NUMEL, generator=chance) for _ in range(4)]


@rules
def test_by_pieces_and_in_place_it_is_the_rule_of_the_whole(rule: Alignment) -> None:
    start, committed, local, snapshot = vectors()
    whole = rule.align(start[:END], committed[:END], local[:END].clone(), snapshot[:END])
    meeting = Meeting(start=start, committed=committed, snapshot=snapshot, end=END)
    align(rule, meeting, local, keep_buffers=True)
    assert torch.equal(local[:END], whole)


@rules
def test_buffers_are_kept_or_those_of_the_commit(rule: Alignment) -> None:
    for keep in (True, False):
        start, committed, local, snapshot = vectors()
        buffers = (local if keep else committed)[END:].clone()
        meeting = Meeting(start=start, committed=committed, snapshot=snapshot, end=END)
        align(rule, meeting, local, keep_buffers=keep)
        assert torch.equal(local[END:], buffers)


@rules
def test_what_the_commit_is_met_with_stays_as_it_is(rule: Alignment) -> None:
    start, committed, local, snapshot = vectors()
    before = [start.clone(), committed.clone(), snapshot.clone()]
    meeting = Meeting(start=start, committed=committed, snapshot=snapshot, end=END)
    align(rule, meeting, local, keep_buffers=False)
    assert all(map(torch.equal, [start, committed, snapshot], before))


@rules
def test_what_is_owed_is_what_the_parameters_lack_of_the_newest_steps(rule: Alignment) -> None:
    start, committed, local, snapshot = vectors()
    fresh = local - snapshot
    meeting = Meeting(start=start, committed=committed, snapshot=snapshot, end=END)
    owed = align(rule, meeting, local, keep_buffers=True)
    assert (owed is not None) == rule.owes
    if owed is not None:
        assert torch.equal(owed[:END], (local - committed - fresh)[:END])
        assert not owed[END:].any()
