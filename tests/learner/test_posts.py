import torch

from gradientmail.algorithm import DELTA
from gradientmail.codecs.layout import TILE, layout
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.precision import Precision
from gradientmail.learner.posts import encode_delta

LAYOUT = layout([("large", 128), ("small", 64), ("still", 64)])


def delta() -> torch.Tensor:
    values = torch.zeros(TILE)
    values[:128] = torch.arange(128.0) + 1.0
    values[128:192] = 1e-3
    return values


def test_a_tensor_that_did_not_change_is_absent() -> None:
    encoded = encode_delta(PayloadFormat(TILE, {DELTA: Precision.F32}), LAYOUT, delta())
    assert encoded.norms[2] is None
    assert encoded.norms[1]


def test_a_tensor_of_which_a_sparse_payload_holds_nothing_is_there_with_norm_0() -> None:
    encoded = encode_delta(PayloadFormat(TILE, {DELTA: Precision.SPARSE}), LAYOUT, delta())
    assert encoded.norms[0]
    assert encoded.norms[1:] == (0.0, None)


def test_what_was_not_sent_is_the_rest() -> None:
    sent = delta()
    encoded = encode_delta(PayloadFormat(TILE, {DELTA: Precision.SPARSE}), LAYOUT, sent)
    assert encoded.rest is sent
    assert torch.equal(encoded.rest[128:], delta()[128:])
