"""What a learner posts, keeps, carries on and gives up: to the number."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from gradientmail.codecs.layout import layout
from gradientmail.learner.posts import Arrival, Trained
from gradientmail.learner.training import Training
from gradientmail.protocol.publishing import Hold, Train
from tests.learner.lone import SAMPLES, TOKENS, Lone, flat, rejected, used

H = 4
"""Steps from round to round, for one fragment."""

CARRY = {"alignment": "carry", "overlap_steps": None}
"""Every step survives, and nobody waits."""


def deltas(lone: Lone) -> list[tuple[float, int, int]]:
    """Return (pseudo-gradient, steps, tokens) of everything posted."""
    return [
        (float(one.delta[0]), one.trained.steps, one.trained.tokens) for one in lone.wire.posted
    ]


# -- publishing ---------------------------------------------------------------------------------


def test_a_joining_learner_takes_over_the_committed_values() -> None:
    lone = Lone(fragments=2)
    lone.join(1.5, -2.0, version=7)
    assert lone.values == [1.5, -2.0]
    assert lone.wire.progress.versions == (7, 7)
    assert not lone.wire.posted


def test_a_due_round_posts_anchor_minus_theta_with_its_steps_and_tokens() -> None:
    lone = Lone()
    lone.join(1.0)
    lone.steps(H - 1, 0.25)
    assert not lone.wire.posted
    assert lone.step(0.25) == Hold()
    (draft,) = lone.wire.posted
    assert torch.equal(draft.delta, flat(-1.0))
    assert (draft.trained, draft.final) == (Trained(H, H * TOKENS, H * SAMPLES), False)
    assert draft.base.number == 0
    assert draft.key.split("/")[:4] == ["mail", "0000", "0000000000", "ann"]
    assert draft.step_s == pytest.approx(1.0)


def test_a_round_that_is_called_is_posted_at_once() -> None:
    lone = Lone()
    lone.join(0.0)
    lone.wire.calling = frozenset({0})
    lone.step(0.5)
    assert deltas(lone) == [(-0.5, 1, TOKENS)]


def test_fragments_take_turns_each_with_its_own_steps() -> None:
    lone = Lone(fragments=2, in_flight=2, **CARRY)
    lone.join(0.0, 0.0)
    lone.steps(H, 1.0, 2.0)
    assert deltas(lone) == [(-2.0, 2, 2 * TOKENS), (-8.0, 4, 4 * TOKENS)]
    assert [draft.fragment for draft in lone.wire.posted] == [0, 1]


def test_the_wait_for_a_commit_is_no_step_time() -> None:
    lone = Lone()
    lone.join(0.0)
    lone.steps(H, 1.0)
    lone.desk.clock._now_s += 1000.0  # type: ignore[attr-defined]
    lone.training.waited(1000.0)
    lone.commit(1, 0.0, **used(0))
    lone.training.settle()
    lone.steps(H, 1.0)
    assert lone.wire.posted[-1].step_s == pytest.approx(1.0)
    assert lone.wire.progress.waited_s == 1000.0


def test_a_leaving_learner_posts_what_is_left_as_its_last_word() -> None:
    lone = Lone(fragments=2, in_flight=2, **CARRY)
    lone.join(0.0, 0.0)
    lone.steps(3, 1.0, 1.0)
    lone.training.flush()
    assert deltas(lone) == [(-2.0, 2, 2 * TOKENS), (-3.0, 3, 3 * TOKENS)]
    assert [draft.final for draft in lone.wire.posted] == [False, True]


def test_a_narrow_model_posts_only_what_it_trained() -> None:
    """0.1 is no bfloat16: what rounding took from the commit is no pseudo-gradient."""
    lone = Lone(dtype=torch.bfloat16)
    lone.join(0.1)
    lone.steps(H, 0.0)
    assert deltas(lone) == [(0.0, H, H * TOKENS)]


# -- aligning -----------------------------------------------------------------------------------


def test_overwrite_takes_the_commit_and_starts_to_count_anew() -> None:
    lone = Lone(overlap_steps=2)
    lone.join(0.0)
    lone.steps(H + 1, 1.0)
    lone.commit(1, 5.0, **used(0))
    assert lone.step(1.0) == Train()
    assert lone.values == [5.0]
    lone.steps(2, 0.5)
    assert deltas(lone)[-1] == (-1.0, 2, 2 * TOKENS), "rounds stay a gap apart"
    assert lone.wire.progress.applied == 1


def test_carry_keeps_every_step_since_the_snapshot_and_counts_it() -> None:
    lone = Lone(**CARRY)
    lone.join(0.0)
    lone.steps(H + 2, 1.0)
    lone.commit(1, 10.0, **used(0))
    lone.step(1.0)
    assert lone.values == [10.0 + 3.0]
    lone.step(1.0)
    assert deltas(lone)[-1] == (-4.0, H, H * TOKENS)
    assert lone.wire.posted[-1].base.number == 1


def test_blend_keeps_its_share_and_counts_the_steps() -> None:
    lone = Lone(alignment="blend", mixing=0.5, overlap_steps=None)
    lone.join(0.0)
    lone.steps(H + 2, 1.0)
    lone.commit(1, 10.0, **used(0))
    lone.training.settle()
    assert lone.values == [8.0]
    lone.steps(2, 1.0)
    assert deltas(lone)[-1] == (0.0, H, H * TOKENS)


def test_what_was_trained_and_not_yet_posted_survives_another_learners_commit() -> None:
    lone = Lone(**CARRY)
    lone.join(0.0)
    lone.steps(3, 1.0)
    lone.commit(1, 10.0, **used(0, learner="bob"))
    assert lone.step(1.0) == Train()
    assert lone.values == [14.0]
    assert deltas(lone) == [(-4.0, 4, 4 * TOKENS)]
    assert lone.wire.posted[0].base.number == 1


@pytest.mark.parametrize(
    ("alignment", "variance"),
    [("overwrite", 0.5), ("carry", 0.1), ("blend", 0.1), ("adaptive", 0.1)],
)
def test_the_statistics_of_steps_that_are_kept_are_kept(alignment: str, variance: float) -> None:
    """Or they would reach nobody; added up like parameters, a variance could turn negative."""
    lone = Lone(alignment=alignment, mixing=0.5, overlap_steps=None)
    training = with_variance(lone)
    trained(lone, training, 0.1)
    arrive(lone, training, 2.0, 0.5)
    assert float(lone.model.variance) == torch.tensor(variance)
    assert lone.values != [2.0] or alignment == "overwrite", "parameters are aligned by the rule"


def test_the_statistics_of_others_are_taken_over_where_nothing_was_trained() -> None:
    lone = Lone(**CARRY)
    training = with_variance(lone)
    arrive(lone, training, 2.0, 0.5)
    assert float(lone.model.variance) == 0.5


def with_variance(lone: Lone) -> Training:
    """Return the training of the same learner, whose model also has statistics."""
    two = layout([("w0", 1)], [("variance", 1)])
    desk = replace(lone.desk, run=replace(lone.desk.run, layouts=(two,)))
    lone.model.register_buffer("variance", torch.ones(1))
    training = Training(desk, lone.model, lone.wire, discarded=lambda: None)
    params = torch.cat([flat(0.0), flat(1.0)])
    training.start([Arrival(version=lone.version(0), params=params)])
    return training


def trained(lone: Lone, training: Training, variance: float) -> None:
    with torch.no_grad():
        lone.model.variance.fill_(variance)
        lone.model.w0.fill_(1.0)
    training.stepped(TOKENS, None)


def arrive(lone: Lone, training: Training, weight: float, variance: float) -> None:
    one, params = lone.version(1), torch.cat([flat(weight), flat(variance)])
    lone.wire.arrivals.append(Arrival(version=one, params=params, history=(one.record,)))
    training.settle()


def test_an_older_or_equal_version_changes_nothing() -> None:
    lone = Lone()
    lone.join(3.0, version=2)
    lone.commit(2, 9.0)
    lone.commit(1, 9.0)
    lone.training.settle()
    assert lone.values == [3.0]


# -- what became of a contribution ----------------------------------------------------------------


def test_a_dropped_contribution_returns_and_its_steps_are_counted_in_the_next() -> None:
    lone = Lone(overlap_steps=None)
    lone.join(0.0)
    lone.steps(H, 1.0)
    (dropped,) = lone.wire.posted
    lone.commit(1, 0.0, **used(0, learner="bob"))
    lone.steps(H, 1.0)
    assert lone.wire.given_back == [(0, dropped.key)]
    assert not lone.wire.forgotten
    assert deltas(lone)[-1] == (-(H - 1.0), 2 * H - 1, (2 * H - 1) * TOKENS)
    assert lone.wire.posted[-1].trained.samples == (2 * H - 1) * SAMPLES
    assert (lone.wire.progress.dropped, lone.wire.progress.applied) == (1, 0)


def test_a_rejected_contribution_is_told_and_neither_returned_nor_counted() -> None:
    lone = Lone(overlap_steps=None)
    lone.join(0.0)
    lone.steps(H, 1.0)
    (draft,) = lone.wire.posted
    lone.commit(1, 0.0, **rejected(draft, "it lies"))
    lone.training.settle()
    lone.steps(H, 1.0)
    assert lone.wire.forgotten == [draft.key]
    assert not lone.wire.given_back
    assert lone.wire.progress.rejected == "it lies"
    assert deltas(lone)[-1] == (-float(H), H, H * TOKENS)


def test_a_rejection_in_a_version_that_was_passed_over_is_seen() -> None:
    lone = Lone(overlap_steps=None)
    lone.join(0.0)
    lone.steps(H, 1.0)
    (draft,) = lone.wire.posted
    lone.commit(3, 0.0, lone.version(1, **rejected(draft, "it lies")), lone.version(2))
    lone.training.settle()
    assert lone.wire.progress.rejected == "it lies"


def test_late_mail_is_pending_for_as_long_as_it_may_count() -> None:
    lone = Lone(max_staleness=1, **CARRY)
    lone.join(0.0)
    lone.steps(H, 1.0)
    (late,) = lone.wire.posted
    lone.commit(1, 0.0, **used(0, learner="bob"))
    lone.training.settle()
    assert (lone.wire.forgotten, lone.wire.given_back) == ([], [])
    lone.commit(2, 0.0, **used(0))
    lone.training.settle()
    assert lone.wire.forgotten == [late.key]
    assert lone.wire.progress.applied == 1


def test_late_mail_that_never_counted_returns() -> None:
    lone = Lone(max_staleness=1, **CARRY)
    lone.join(0.0)
    lone.steps(H, 1.0)
    (late,) = lone.wire.posted
    lone.commit(1, 0.0)
    lone.training.settle()
    lone.commit(2, 0.0)
    lone.training.settle()
    assert lone.wire.given_back == [(0, late.key)]


# -- restored from an older state -----------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, CARRY])
def test_what_an_earlier_self_posted_is_posted_again_and_counts_once(
    settings: dict[str, Any],
) -> None:
    """Killed while it held: its state is one step older than what it had posted."""
    lone = Lone(**settings)
    lone.join(0.0)
    lone.steps(H - 1, 1.0)
    lone.commit(1, 7.0, **used(0))
    assert lone.step(1.0) == Train()
    assert deltas(lone) == [(-float(H), H, H * TOKENS)]
    assert lone.values == [7.0]
    assert lone.wire.forgotten == [lone.wire.posted[0].key]
    lone.steps(H - 1, 1.0)
    assert len(lone.wire.posted) == 1, "the next round is due a whole gap later"
    lone.step(1.0)
    assert deltas(lone)[-1] == (-float(H), H, H * TOKENS)
    assert lone.wire.posted[-1].base.number == 1


@pytest.mark.parametrize("settings", [{}, CARRY])
def test_where_an_earlier_self_went_further_nothing_counts_twice(
    settings: dict[str, Any],
) -> None:
    lone = Lone(**settings)
    lone.join(0.0)
    lone.steps(2, 1.0)
    lone.commit(5, 7.0, lone.version(1, **used(0)), **used(4))
    assert lone.step(1.0) == Train()
    assert not lone.wire.posted
    assert lone.wire.started_over == [0]
    assert lone.values == [7.0]
    lone.steps(H, 1.0)
    assert deltas(lone) == [(-float(H), H, H * TOKENS)]


def test_what_waited_for_its_fate_is_forgotten_where_an_earlier_self_went_further() -> None:
    """That self has given it back and carried it on; giving it back again would count it twice."""
    lone = Lone(max_staleness=1, **CARRY)
    lone.join(0.0)
    lone.steps(H, 1.0)
    (pending,) = lone.wire.posted
    lone.commit(1, 0.0)
    lone.training.settle()
    lone.commit(3, 0.0, lone.version(2), **used(2))
    lone.training.settle()
    assert lone.wire.given_back == []
    assert lone.wire.forgotten == [pending.key]
    assert lone.wire.started_over == [0]


@pytest.mark.parametrize("restored", [False, True])
def test_late_mail_of_an_earlier_self_and_what_was_trained_again_count_once(
    *, restored: bool
) -> None:
    """It may have posted these steps, and its mail may still count though it came late."""
    lone = Lone(max_staleness=1, **CARRY)
    lone.join(0.0)
    lone.steps(H - 1, 1.0)
    lone.training.fragments[0].restored = restored
    lone.commit(1, 0.0, **used(0, learner="bob"))
    lone.training.settle()
    lone.commit(2, 0.0, **used(0))
    lone.training.settle()
    lone.steps(H, 1.0)
    bases = [(draft.base.number, draft.trained.steps) for draft in lone.wire.posted]
    if restored:
        assert bases == [(0, H - 1), (2, H)]
        assert lone.values == [float(H)]
    else:
        assert bases == [(2, H)], "they are part of the next one"


# -- what cannot be used --------------------------------------------------------------------------


def test_nan_is_not_posted_and_puts_the_model_back() -> None:
    lone = Lone()
    lone.join(3.0)
    lone.steps(H - 1, 1.0)
    assert lone.step(math.nan) == Train()
    assert not lone.wire.posted
    assert lone.values == [3.0]
    assert lone.discards == 1
    assert lone.wire.progress.rejected == "parameters are NaN or infinite"
    lone.step(0.5)
    assert deltas(lone) == [(-0.5, 1, TOKENS)]


def test_nan_in_one_fragment_leaves_what_others_posted_in_flight() -> None:
    lone = Lone(fragments=2, in_flight=2, overlap_steps=3)
    lone.join(0.0, 0.0)
    lone.steps(2, 1.0, 1.0)
    lone.step(1.0, math.nan)
    assert lone.step(0.0, 0.0) == Train()
    assert lone.values == [0.0, 0.0]
    assert lone.step(1.0, 1.0) == Hold(), "the overlap of round 0 is spent"
    lone.commit(1, 9.0, **used(0))
    lone.training.settle()
    assert lone.wire.progress.applied == 1
    assert [draft.fragment for draft in lone.wire.posted] == [0, 1]


def test_a_draft_that_no_codec_takes_is_taken_back_and_its_round_is_open_again() -> None:
    """Or everyone would wait for a contribution that was never sent."""
    lone = Lone()
    lone.join(3.0)
    lone.steps(H, 1.0)
    (draft,) = lone.wire.posted
    lone.wire.refusals.append((draft.key, "too large"))
    assert lone.training.settle() == Train()
    assert lone.values == [3.0]
    assert (lone.wire.progress.posted, lone.wire.progress.rejected) == (0, "too large")
    assert lone.steps(H, 0.5) == Hold()
    assert deltas(lone)[-1] == (-2.0, H, H * TOKENS)
    lone.commit(1, 0.0, **used(0))
    lone.training.settle()
    assert (lone.wire.progress.applied, lone.wire.progress.dropped) == (1, 0)


def test_a_refused_draft_leaves_later_rounds_in_flight() -> None:
    lone = Lone(fragments=2, in_flight=2, **CARRY)
    lone.join(0.0, 0.0)
    lone.steps(H, 1.0, 1.0)
    first, second = lone.wire.posted
    lone.wire.refusals.append((first.key, "too large"))
    lone.steps(2, 1.0, 1.0)
    assert [draft.fragment for draft in lone.wire.posted] == [0, 1, 0]
    assert lone.wire.posted[-1].base.number == 0
    lone.commit(1, 0.0, fragment=1, **used(0))
    lone.training.settle()
    assert lone.wire.forgotten == [second.key]
