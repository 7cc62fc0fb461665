"""SGD and its momenta: the given values, and torch's own optimizer step for step."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from gradientmail.algorithms.outer import HeavyBall, Nesterov, OuterOptimizer, Sgd, Turn

DILOCO = Nesterov(lr=0.7, momentum=0.9)
PLAIN = Sgd(lr=1.0)
RULES = [DILOCO, PLAIN, HeavyBall(lr=0.5, momentum=0.9), Nesterov(lr=0.1, momentum=0.99)]


def steps(
    outer: OuterOptimizer, theta: Sequence[float], *locals_: Sequence[float]
) -> list[Tensor]:
    """Return the parameters after each round whose mean of local parameters is given."""
    now = torch.tensor(theta)
    state = outer.init(now)
    seen = []
    for local in locals_:
        now, state = outer.update(now, now - torch.tensor(local), state)
        seen.append(now)
    return seen


def close(*values: float) -> object:
    return pytest.approx(list(values), abs=1e-6)


# -- given values ---------------------------------------------------------------------------


def test_a_nesterov_step_is_the_given_one() -> None:
    state = {"momentum": torch.zeros(1)}
    theta, state = DILOCO.update(torch.ones(1), torch.tensor([0.5]), state)
    assert theta.tolist() == close(0.335)
    assert state["momentum"].tolist() == close(0.5)


@pytest.mark.parametrize(
    ("lr", "first", "second"),
    [(0.5, [0.525, 1.05], [0.29875, 0.5975]), (0.7, [0.335, 0.67], [0.27095, 0.5419])],
)
def test_two_nesterov_steps_are_the_given_ones(
    lr: float, first: list[float], second: list[float]
) -> None:
    outer = Nesterov(lr=lr, momentum=0.9)
    seen = steps(outer, [1.0, 2.0], [0.5, 1.0], [0.5, 1.0])
    assert [theta.tolist() for theta in seen] == [close(*first), close(*second)]


def test_two_heavy_ball_steps_are_slowmos() -> None:
    outer = HeavyBall(lr=0.5, momentum=0.9)
    seen = steps(outer, [1.0, 2.0], [0.5, 1.0], [0.7, 1.4])
    assert [theta.tolist() for theta in seen] == [close(0.75, 1.5), close(0.5, 1.0)]


def test_a_zero_delta_still_moves_what_has_momentum() -> None:
    """Why a tensor that no contribution holds is not stepped at all."""
    theta, state = DILOCO.update(torch.ones(1), torch.zeros(1), {"momentum": torch.tensor([0.5])})
    assert theta.tolist() == close(1 - 0.2835)
    assert state["momentum"].tolist() == close(0.45)


# -- torch.optim.SGD ------------------------------------------------------------------------


@pytest.mark.parametrize("outer", RULES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_rule_is_torchs_over_many_steps(
    outer: Sgd | HeavyBall | Nesterov, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    parameter = torch.nn.Parameter(torch.randn(100, generator=generator, dtype=dtype))
    momentum = 0.0 if isinstance(outer, Sgd) else outer.momentum
    theirs = torch.optim.SGD(
        [parameter], lr=outer.lr, momentum=momentum, nesterov=isinstance(outer, Nesterov)
    )
    ours = parameter.detach().clone()
    state = outer.init(ours)
    for _ in range(200):
        gradient = torch.randn(100, generator=generator, dtype=dtype)
        parameter.grad = gradient.clone()
        theirs.step()
        ours, state = outer.update(ours, gradient, state)
    tolerance = 1e-9 if dtype is torch.float64 else 1e-4  # float32: torch fuses, and 200 steps add
    assert torch.allclose(ours, parameter.detach(), rtol=0, atol=tolerance)


# -- properties -----------------------------------------------------------------------------


def test_without_momentum_there_is_no_state_to_keep() -> None:
    assert PLAIN.sections == ()
    assert DILOCO.sections == ("momentum",)
    assert PLAIN.update(torch.ones(1), torch.ones(1), {}) == (torch.zeros(1), {})


def test_a_turn_scales_the_learning_rate_and_not_the_momentum() -> None:
    state = {"momentum": torch.zeros(1)}
    theta, after = DILOCO.update(torch.ones(1), torch.tensor([0.5]), state, Turn(scale=0.5))
    assert theta.tolist() == close(1 - 0.5 * 0.665)
    assert after["momentum"].tolist() == close(0.5)


# -- plain averaging gives one learner back its own parameters ------------------------------

floats = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)


def there_and_back(anchor: float, theta: float) -> tuple[Tensor, Tensor]:
    """Return what a learner alone trained to, and what the round makes of it."""
    a, b = torch.tensor(anchor), torch.tensor(theta)
    return b, PLAIN.update(a, a - b, {})[0]


@given(floats, st.floats(0.5, 2.0, width=32))
def test_it_is_bit_for_bit_where_no_parameter_moves_past_half_or_twice_itself(
    anchor: float, ratio: float
) -> None:
    """Sterbenz: then ``anchor - theta`` is exact in float32, and so is taking it away again."""
    local = (torch.tensor(anchor) * torch.tensor(ratio)).item()
    if not 0.5 * abs(anchor) <= abs(local) <= 2.0 * abs(anchor):
        return  # the product itself was rounded out of the range
    theta, committed = there_and_back(anchor, local)
    assert committed.item() == theta.item()


@given(floats)
def test_it_is_bit_for_bit_from_zero(theta: float) -> None:
    assert there_and_back(0.0, theta)[1].item() == theta


@given(st.integers(-(2**23), 2**23), st.integers(-(2**23), 2**23), st.integers(-40, 40))
def test_it_is_bit_for_bit_on_a_grid_that_holds_the_difference(
    anchor: int, theta: int, exponent: int
) -> None:
    local, committed = there_and_back(anchor * 2.0**exponent, theta * 2.0**exponent)
    assert committed.item() == local.item()


@example(1.0, 1e-10)
@given(floats, floats)
def test_elsewhere_it_is_within_the_rounding_of_the_difference(
    anchor: float, theta: float
) -> None:
    """A pseudo-gradient in float32 cannot say more: from 1 to 1e-10 it is exactly 1."""
    local, committed = there_and_back(anchor, theta)
    difference = abs(anchor - theta)
    assert abs(committed.item() - local.item()) <= 2.0**-22 * difference
