"""On the CPU nothing is copied and nothing waits; on a GPU, ``scripts/gpu_check`` looks."""

import pytest
import torch

from gradientmail.codecs.blocks import encode_chunk
from gradientmail.codecs.devices import beside, on_host
from gradientmail.codecs.layout import TILE
from gradientmail.codecs.precision import Precision


def test_on_the_cpu_it_is_the_same_memory() -> None:
    x = torch.ones(4)
    with beside(x):
        assert on_host(x) is x


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("precision", Precision)
def test_a_gpu_gives_the_bytes_of_the_cpu(precision: Precision) -> None:
    x = torch.randn(4 * TILE, generator=torch.Generator().manual_seed(0))
    expected = encode_chunk(x, precision)
    there = x.cuda()
    with beside(there):
        found = {name: on_host(items) for name, items in encode_chunk(there, precision).items()}
    assert all(torch.equal(found[name], items) for name, items in expected.items())
