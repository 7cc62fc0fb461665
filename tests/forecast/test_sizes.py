import pytest
import torch

from gradientmail.algorithm import algorithm_of
from gradientmail.codecs.streaming import BufferTarget, PayloadWriter
from gradientmail.config import RunSettings
from gradientmail.forecast.fleet import Model
from gradientmail.forecast.reading import tensors_of
from gradientmail.forecast.sizes import sizes_of
from gradientmail.protocol.plans import TensorSize


@pytest.mark.parametrize("downlink", [None, "I8"])
@pytest.mark.parametrize("uplink", ["F32", "I8", "I4", "F4"])
def test_a_payload_is_as_large_as_the_one_that_is_written(
    uplink: str, downlink: str | None
) -> None:
    algorithm = algorithm_of(RunSettings(uplink=uplink, downlink=downlink))  # type: ignore[arg-type]
    sizes = sizes_of(algorithm, [TensorSize("weight", 10_000)]).fragments[0]
    assert sizes.numel == 12_288
    form = algorithm.update_format(sizes.numel) or algorithm.params_format(sizes.numel)
    target = BufferTarget()
    writer = PayloadWriter(form, target)
    for section in form.sections:
        writer.write(section, 0, torch.zeros(sizes.numel))
    assert sizes.step == len(target.data)
    assert sizes.contribution == pytest.approx(
        sizes.numel * algorithm.delta_dtype.bytes_per_parameter + 4096
    )


def test_a_commit_grows_with_its_participants_and_with_all_who_ever_took_part() -> None:
    sizes = sizes_of(algorithm_of(RunSettings()), [TensorSize("weight", 10)])
    assert 300 < sizes.participant < 600
    assert sizes.commit_of(10, 20) - sizes.commit_of(9, 20) == sizes.participant
    assert sizes.commit_of(10, 20) - sizes.commit_of(10, 19) == sizes.applied > 15


def test_fragments_together_hold_the_model() -> None:
    algorithm = algorithm_of(RunSettings(fragments=4, plan="strided", sync_every=8))
    tensors = tensors_of(Model(width=64, blocks=8, vocabulary=100))
    sizes = sizes_of(algorithm, tensors)
    total = sum(tensor.numel for tensor in tensors)
    assert len(sizes.fragments) == 4
    assert total <= sizes.numel < total + 4 * 4096
