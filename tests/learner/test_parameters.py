"""The parameter contract: what is listed, what travels, and that a model survives the trip."""

import copy

import pytest
import torch
from torch import nn

from gradientmail.codecs.layout import FragmentLayout, layout
from gradientmail.errors import SettingsError
from gradientmail.learner.parameters import (
    FragmentTensors,
    Vectors,
    describe,
    differences,
    exchanged,
    live_tensors,
    named_values,
)


class TiedNet(nn.Module):
    """An embedding tied to its head, a frozen layer between."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, width)
        self.middle = nn.Linear(width, width).requires_grad_(requires_grad=False)
        self.head = nn.Linear(width, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.middle(self.embed(tokens)))


class Wrapper(nn.Module):
    """A user's own module that looks like a data parallel wrapper."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def whole(model: nn.Module) -> FragmentLayout:
    """Everything ``model`` exchanges as one fragment."""
    specs = exchanged(describe(model, buffers="averaged"))
    numel = {spec.name: live_tensors(model)[spec.name].numel() for spec in specs}
    of_kind = {
        kind: [(spec.name, numel[spec.name]) for spec in specs if spec.kind == kind]
        for kind in ("parameter", "buffer")
    }
    return layout(of_kind["parameter"], of_kind["buffer"])


def assert_round_trip(model: nn.Module) -> None:
    """Values and strides come back exactly after the model was overwritten."""
    before = {name: t.detach().clone() for name, t in live_tensors(model).items()}
    strides = {name: t.stride() for name, t in live_tensors(model).items()}
    tensors = FragmentTensors(model, whole(model))
    flat = tensors.gather()
    tensors.scatter(torch.full_like(flat, 7.0))
    tensors.scatter(flat)
    for name, tensor in live_tensors(model).items():
        assert torch.equal(tensor, before[name]), name
        assert tensor.stride() == strides[name], name


# -- what is listed -------------------------------------------------------------------------


def test_frozen_parameters_are_listed_and_do_not_travel() -> None:
    specs = describe(TiedNet(), buffers="averaged")
    frozen = [spec.name for spec in specs if not spec.trainable]
    assert frozen == ["middle.weight", "middle.bias"]
    assert [spec.name for spec in exchanged(specs)] == ["embed.weight"]


def test_tied_weights_are_named_after_the_first_and_travel_once() -> None:
    aliases = {spec.name: spec.alias for spec in describe(TiedNet(), buffers="averaged")}
    assert aliases["head.weight"] == "embed.weight"
    assert aliases["embed.weight"] is None


def test_parameters_come_before_buffers_in_model_order() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(2, 1))
    names = [spec.name for spec in describe(model, buffers="averaged")]
    assert names == [
        *("0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"),
        *("1.running_mean", "1.running_var", "1.num_batches_tracked"),
    ]


@pytest.mark.parametrize(
    ("policy", "travelling"), [("averaged", ["running_mean", "running_var"]), ("local", [])]
)
def test_float_buffers_follow_the_policy_and_integer_buffers_stay(policy, travelling) -> None:
    specs = describe(nn.BatchNorm1d(3), buffers=policy)
    assert [s.name for s in exchanged(specs) if s.kind == "buffer"] == travelling
    assert "num_batches_tracked" in [s.name for s in specs]


def test_non_persistent_buffers_stay_local() -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.ones(2), persistent=False)
    specs = {spec.name: spec for spec in describe(model, buffers="averaged")}
    assert not specs["mask"].trainable


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_dtype_is_listed_as_torch_names_it(dtype: str) -> None:
    specs = describe(nn.Linear(2, 2).to(getattr(torch, dtype)), buffers="local")
    assert {spec.dtype for spec in specs} == {dtype}


def test_shape_of_a_scalar_and_of_an_empty_tensor() -> None:
    model = nn.Module()
    model.temperature = nn.Parameter(torch.tensor(1.5))
    model.nothing = nn.Parameter(torch.empty(0, 3))
    shapes = {spec.name: spec.shape for spec in describe(model, buffers="local")}
    assert shapes == {"temperature": (), "nothing": (0, 3)}


# -- wrappers -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(torch.compile, id="compile"),
        pytest.param(nn.DataParallel, id="data parallel"),
        pytest.param(lambda model: nn.DataParallel(torch.compile(model)), id="of compile"),
        pytest.param(lambda model: torch.compile(nn.DataParallel(model)), id="compile of it"),
    ],
)
def test_wrappers_change_nothing_in_the_contract(wrap) -> None:
    model = TiedNet()
    assert describe(wrap(model), buffers="averaged") == describe(model, buffers="averaged")


def test_a_compiled_submodule_changes_nothing_in_the_contract() -> None:
    model = TiedNet()
    expected = describe(model, buffers="averaged")
    model.middle = torch.compile(model.middle)
    assert describe(model, buffers="averaged") == expected


def test_distributed_data_parallel_changes_nothing_in_the_contract(tmp_path) -> None:
    group = torch.distributed
    group.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        model = TiedNet()
        wrapped = nn.parallel.DistributedDataParallel(model)
        assert describe(wrapped, buffers="averaged") == describe(model, buffers="averaged")
        assert list(named_values(wrapped)) == list(model.state_dict())
    finally:
        group.destroy_process_group()


def test_only_what_a_wrapper_put_there_is_dropped_from_names() -> None:
    model = Wrapper(nn.Linear(1, 1))
    model.module.module = Wrapper(nn.Linear(1, 1))
    own = list(model.state_dict())
    model.module.module = nn.DataParallel(torch.compile(model.module.module))
    assert list(named_values(nn.DataParallel(model))) == own
    specs = describe(nn.DataParallel(model), buffers="local")
    assert [spec.name for spec in specs] == own


def test_two_tensors_of_one_canonical_name_are_refused() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(2))
    model._orig_mod = nn.Linear(2, 2)
    with pytest.raises(SettingsError, match="both called 'weight'"):
        describe(model, buffers="local")


# -- what cannot be exchanged ---------------------------------------------------------------


def module_of(**parameters: torch.Tensor) -> nn.Module:
    model = nn.Module()
    for name, value in parameters.items():
        model.register_parameter(name, nn.Parameter(value))
    return model


def test_a_model_with_nothing_to_train_is_refused() -> None:
    with pytest.raises(SettingsError, match="no trainable parameter"):
        describe(nn.Linear(2, 2).requires_grad_(requires_grad=False), buffers="averaged")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.zeros(2, dtype=torch.complex64), "'w' has dtype complex64"),
        (torch.zeros(2, 2).to_sparse(), "'w' is sparse"),
        (torch.zeros(1).expand(3), "'w' is an expanded view"),
    ],
)
def test_a_tensor_without_a_float_vector_is_refused_by_name(value, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        describe(module_of(w=value), buffers="local")


def test_a_lazy_parameter_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="'weight' is not initialized"):
        describe(nn.LazyLinear(3), buffers="local")


def test_overlapping_views_are_refused_by_both_names() -> None:
    base = torch.zeros(10)
    with pytest.raises(SettingsError, match="'a' and 'b' overlap"):
        describe(module_of(a=base[:6], b=base[5:]), buffers="local")


def test_disjoint_views_of_one_storage_are_fine() -> None:
    base = torch.randn(10)
    assert_round_trip(module_of(a=base[:5], b=base[5:]))


def test_what_is_frozen_may_be_anything() -> None:
    model = module_of(w=torch.zeros(2), odd=torch.zeros(2, dtype=torch.complex64))
    model.odd.requires_grad_(requires_grad=False)
    assert [spec.name for spec in exchanged(describe(model, buffers="local"))] == ["w"]


# -- differences ----------------------------------------------------------------------------


def lines(run: nn.Module, here: nn.Module) -> list[str]:
    return differences(describe(run, buffers="averaged"), describe(here, buffers="averaged"))


def test_the_same_model_differs_in_nothing() -> None:
    assert lines(TiedNet(), TiedNet()) == []


def test_shape_and_dtype_differ() -> None:
    assert lines(nn.Linear(2, 1), nn.Linear(3, 1).bfloat16()) == [
        "weight: shape (1, 2) in the run, (1, 3) here; dtype float32 in the run, bfloat16 here",
        "bias: dtype float32 in the run, bfloat16 here",
    ]


def test_missing_and_unknown_tensors() -> None:
    assert lines(nn.Linear(2, 1), nn.Sequential(nn.Linear(2, 1))) == [
        "weight, bias: missing here",
        "0.weight, 0.bias: not in the run",
    ]


def test_frozen_here() -> None:
    here = nn.Linear(2, 1)
    here.bias.requires_grad_(requires_grad=False)
    assert lines(nn.Linear(2, 1), here) == [
        "bias: trainable parameter in the run, frozen parameter here"
    ]


def test_tied_in_the_run_only() -> None:
    here = TiedNet()
    here.head.weight = nn.Parameter(here.head.weight.detach().clone())
    assert lines(TiedNet(), here) == [
        "head.weight: tied to embed.weight in the run, not tied here"
    ]


def test_a_parameter_that_became_a_buffer() -> None:
    here = nn.Linear(2, 1)
    bias = here.bias.detach()
    del here.bias
    here.register_buffer("bias", bias)
    assert lines(nn.Linear(2, 1), here) == [
        "bias: trainable parameter in the run, averaged buffer here"
    ]


def test_hundreds_of_equal_differences_share_a_line() -> None:
    run = nn.Sequential(*[nn.Linear(2, 2) for _ in range(200)])
    assert lines(run, copy.deepcopy(run).half()) == [
        "0.weight, 0.bias, 1.weight, 1.bias and 396 more: dtype float32 in the run, float16 here"
    ]


def test_hundreds_of_unlike_differences_are_capped() -> None:
    run = nn.Sequential(*[nn.Linear(n, 2) for n in range(1, 200)])
    here = nn.Sequential(*[nn.Linear(n + 1, 2) for n in range(1, 200)])
    told = lines(run, here)
    assert len(told) == 21
    assert told[-1] == "... and 179 more differences"


# -- one fragment ---------------------------------------------------------------------------


def test_every_kind_of_tensor_survives_the_trip() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Linear(5, 4).bfloat16(), nn.Linear(4, 3).half()
    )
    model.to(memory_format=torch.channels_last)
    model.transposed = nn.Parameter(torch.randn(6, 4).t())
    model.scalar = nn.Parameter(torch.tensor(2.5))
    model.empty = nn.Parameter(torch.empty(0, 3))
    assert not model.transposed.is_contiguous()
    assert not model[0].weight.is_contiguous()
    assert_round_trip(model)


def test_the_flat_vector_is_in_logical_order_whatever_the_strides() -> None:
    plain = nn.Conv2d(3, 5, 3)
    last = copy.deepcopy(plain).to(memory_format=torch.channels_last)
    gathered = [FragmentTensors(m, whole(m)).gather() for m in (plain, last)]
    assert torch.equal(*gathered)


def test_padding_is_zero() -> None:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.fill_(2.0)
        model.bias.fill_(3.0)
    flat = FragmentTensors(model, whole(model)).gather()
    assert flat.numel() == whole(model).numel
    assert flat.sum() == 6 * 2.0 + 2 * 3.0


def test_scatter_through_one_name_moves_the_tied_ones() -> None:
    model = TiedNet()
    tensors = FragmentTensors(model, whole(model))
    tensors.scatter(torch.ones_like(tensors.gather()))
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.head.weight, torch.ones(7, 4))


def test_local_and_frozen_values_are_untouched() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model[0].bias.requires_grad_(requires_grad=False)
    bias = model[0].bias.clone()
    tensors = FragmentTensors(model, whole(model))
    tensors.scatter(torch.full_like(tensors.gather(), 5.0))
    assert torch.equal(model[0].bias, bias)
    assert model[1].num_batches_tracked == 0
    assert torch.equal(model[1].running_mean, torch.full((3,), 5.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_is_what_scatter_leaves(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(5, 4).to(dtype), nn.Linear(4, 3))
    tensors = FragmentTensors(model, whole(model))
    flat = tensors.gather()
    flat += (flat != 0) * 1e-4
    expected = tensors.rounded(flat)
    tensors.scatter(flat)
    assert torch.equal(tensors.gather(), expected)
    assert not torch.equal(expected, flat)


def test_rounding_float32_costs_no_copy() -> None:
    model = nn.Linear(2, 2)
    tensors = FragmentTensors(model, whole(model))
    flat = tensors.gather()
    assert tensors.rounded(flat) is flat


def test_double_values_travel_as_float32() -> None:
    model = nn.Linear(2, 2).double()
    tensors = FragmentTensors(model, whole(model))
    flat = tensors.gather()
    tensors.scatter(flat)
    assert flat.dtype == torch.float32
    assert torch.equal(tensors.gather(), flat)


def test_the_view_stays_live_when_the_model_is_converted() -> None:
    model = nn.Linear(2, 2)
    tensors = FragmentTensors(model, whole(model))
    model.double()
    tensors.scatter(torch.ones_like(tensors.gather()))
    assert torch.equal(model.weight, torch.ones(2, 2, dtype=torch.float64))


def test_the_flat_vector_is_where_the_model_is() -> None:
    model = nn.Linear(2, 2, device="meta")
    assert FragmentTensors(model, whole(model)).gather().is_meta


# -- export ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrap", [lambda model: model, torch.compile, nn.DataParallel], ids=["bare", "compile", "dp"]
)
def test_named_values_load_strictly_into_the_bare_model(wrap) -> None:
    model, other = TiedNet(), TiedNet()
    other.load_state_dict(named_values(wrap(model)), strict=True)
    assert torch.equal(other.embed.weight, model.embed.weight)
    assert other.head.weight is other.embed.weight


def test_named_values_keep_a_users_own_module_called_module() -> None:
    assert list(named_values(Wrapper(nn.Linear(1, 1)))) == ["module.weight", "module.bias"]


def test_named_values_are_contiguous_copies() -> None:
    model = TiedNet()
    model.head.weight.data = model.head.weight.data.t().contiguous().t()
    values = named_values(model)
    assert all(value.is_contiguous() for value in values.values())
    assert len({value.data_ptr() for value in values.values()}) == len(values)


# -- memory that is used again --------------------------------------------------------------


def test_a_vector_given_back_is_taken_again_at_any_length() -> None:
    vectors = Vectors(100, torch.device("cpu"))
    first = vectors.take(100)
    vectors.give(first)
    again = vectors.take(60)
    assert again.data_ptr() == first.data_ptr()
    assert again.shape == (60,)


def test_a_vector_in_use_is_not_taken_by_another() -> None:
    vectors = Vectors(10, torch.device("cpu"))
    assert vectors.take(10).data_ptr() != vectors.take(10).data_ptr()


def test_what_was_never_taken_or_is_given_twice_is_left_alone() -> None:
    vectors = Vectors(10, torch.device("cpu"))
    mine, taken = torch.zeros(10), vectors.take(10)
    vectors.give(mine, None, taken, taken)
    assert vectors.take(10).data_ptr() == taken.data_ptr()
    assert vectors.take(10).data_ptr() not in (mine.data_ptr(), taken.data_ptr())


def test_what_is_gathered_into_used_memory_has_zeros_between_tensors() -> None:
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2))
    sizes = [(name, parameter.numel()) for name, parameter in model.named_parameters()]
    where = layout(sizes, [])
    vectors = Vectors(where.numel, torch.device("cpu"))
    used = vectors.take(where.numel)
    used.fill_(7.0)
    vectors.give(used)
    gathered = FragmentTensors(model, where, vectors).gather()
    assert gathered.data_ptr() == used.data_ptr()
    inside = torch.zeros(where.numel, dtype=torch.bool)
    for slot in where.slots:
        inside[slot.offset : slot.offset + slot.numel] = True
    assert not gathered[~inside].any()
    parameters = torch.cat([one.detach().flatten() for one in model.parameters()])
    assert torch.equal(gathered[inside], parameters)
