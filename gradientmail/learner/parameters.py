"""The parameter contract over a live torch model: what is exchanged, under which names.

A canonical name is the name in the bare model: ``torch.compile`` puts ``_orig_mod.`` and data
parallel wrappers put ``module.`` in front of names, and both are dropped wherever they did so. A
model's own attribute that is called ``module`` stays in its names.

What travels: parameters that require a gradient, and, where the run averages buffers, persistent
float buffers. Frozen parameters, integer buffers and non-persistent buffers are listed in the
contract and stay local. Values travel as float32, those of a float64 tensor too. Tied tensors (one
object under several names) travel once, under the first name in model order.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from gradientmail.codecs.layout import FragmentLayout
from gradientmail.errors import ContractError, SettingsError
from gradientmail.protocol.modules import stays_local
from gradientmail.records.manifest import Manifest, TensorSpec

BufferPolicy = Literal["averaged", "local"]

EXCHANGED_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)
NAMES_SHOWN = 4
DIFFERENCES_SHOWN = 20


# -- the contract ---------------------------------------------------------------------------


def describe(
    model: nn.Module, *, buffers: BufferPolicy, local: Callable[[str], bool] = lambda _: False
) -> tuple[TensorSpec, ...]:
    """Return the contract of ``model``: its parameters, then its buffers, in model order.

    ``local`` says of a canonical name whether that tensor stays with each learner.

    Raises:
        SettingsError: the model cannot be exchanged: nothing in it is trainable, or a tensor that
            would travel is sparse, complex, not initialized, or overlaps another one.
    """
    bare = bare_names(model)
    persistent = {bare(key) for key in model.state_dict()}
    first_name: dict[int, str] = {}
    specs = []
    travelling = {}
    for name, tensor in live_tensors(model).items():
        first = first_name.setdefault(id(tensor), name)
        is_parameter = isinstance(tensor, nn.Parameter)
        averaged = (
            buffers == "averaged" and name in persistent and tensor.dtype in EXCHANGED_DTYPES
        )
        travels = (tensor.requires_grad if is_parameter else averaged) and not local(first)
        if travels:
            _refuse_unsupported(name, tensor)
            travelling[first] = tensor
        specs.append(
            TensorSpec(
                name=name,
                shape=tuple(tensor.shape),
                dtype=_dtype_name(tensor.dtype),
                kind="parameter" if is_parameter else "buffer",
                trainable=travels,
                alias=None if first == name else first,
            )
        )
    if not any(spec.kind == "parameter" and spec.trainable for spec in specs):
        raise SettingsError(
            "the model has no trainable parameter that is not kept local, so there is nothing to "
            "exchange; set requires_grad=True on the parameters to train"
        )
    _refuse_overlap(travelling)
    return tuple(specs)


def exchanged(specs: Iterable[TensorSpec]) -> tuple[TensorSpec, ...]:
    """Return the specs whose values travel, each group of tied tensors once, by its first name."""
    return tuple(spec for spec in specs if spec.trainable and spec.alias is None)


def require_same_model(manifest: Manifest, model: nn.Module) -> None:
    """Refuse a model that is not the run's.

    Raises:
        ContractError: with the differences; SettingsError: see ``describe``.
    """
    settings = manifest.settings
    local = partial(stays_local, settings=settings)
    if found := differences(
        manifest.tensors, describe(model, buffers=settings.buffers, local=local)
    ):
        raise ContractError(found)


def differences(run: Sequence[TensorSpec], here: Sequence[TensorSpec]) -> list[str]:
    """Return in which ways the model ``here`` is not the one of ``run``, a line for each way.

    Tensors that differ in the same way share a line. The order of the tensors does not matter.

    >>> differences(describe(nn.Linear(2, 1), buffers="local"),
    ...             describe(nn.Linear(3, 1), buffers="local"))
    ['weight: shape (1, 2) in the run, (1, 3) here']
    """
    of_run, of_here = ({spec.name: spec for spec in specs} for specs in (run, here))
    names_by_way: defaultdict[str, list[str]] = defaultdict(list)
    for name in of_run:
        if name not in of_here:
            names_by_way["missing here"].append(name)
    for name, spec in of_here.items():
        if name not in of_run:
            names_by_way["not in the run"].append(name)
        elif way := _difference(of_run[name], spec):
            names_by_way[way].append(name)
    lines = [f"{listed(names)}: {way}" for way, names in names_by_way.items()]
    if len(lines) > DIFFERENCES_SHOWN:
        rest = len(lines) - DIFFERENCES_SHOWN
        lines = [*lines[:DIFFERENCES_SHOWN], f"... and {rest} more differences"]
    return lines


def _difference(run: TensorSpec, here: TensorSpec) -> str:
    """Return everything in which ``here`` differs from ``run``; empty when nothing does."""
    facts = [
        ("", _kind(run), _kind(here)),
        ("shape ", str(run.shape), str(here.shape)),
        ("dtype ", run.dtype, here.dtype),
        ("", _tie(run), _tie(here)),
    ]
    return "; ".join(
        f"{what}{there} in the run, {ours} here" for what, there, ours in facts if there != ours
    )


def _kind(spec: TensorSpec) -> str:
    if spec.kind == "parameter":
        return "trainable parameter" if spec.trainable else "frozen parameter"
    return "averaged buffer" if spec.trainable else "local buffer"


def _tie(spec: TensorSpec) -> str:
    return "not tied" if spec.alias is None else f"tied to {spec.alias}"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    shown = ", ".join(names[:NAMES_SHOWN])
    rest = len(names) - NAMES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


# -- live tensors ---------------------------------------------------------------------------


def live_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return every parameter, then every buffer, by canonical name; tied ones under each name.

    Raises:
        SettingsError: two different tensors have one canonical name.
    """
    tensors: dict[str, Tensor] = {}
    bare = bare_names(model)
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    for raw, tensor in named:
        name = bare(raw)
        if tensors.setdefault(name, tensor) is not tensor:
            raise SettingsError(
                f"two tensors of the model are both called {name!r} once the wrappers' "
                "'module.' and '_orig_mod.' are dropped; rename one of them"
            )
    return tensors


def named_values(model: nn.Module) -> dict[str, Tensor]:
    """Return copies on the CPU of the tensors of ``model.state_dict()``, by canonical name.

    Tied tensors appear under each of their names, so that ``load_state_dict`` of the bare model
    accepts the result strictly.
    """
    bare = bare_names(model)
    return {
        bare(key): value.detach().to("cpu", copy=True).contiguous()
        for key, value in model.state_dict().items()
        if isinstance(value, Tensor)
    }


def bare_names(model: nn.Module) -> Callable[[str], str]:
    """Return what makes a name in ``model`` the canonical one."""
    modules = dict(model.named_modules(remove_duplicate=False))
    wrapped = {path for path in modules if _is_wrapped(path, modules)}

    def bare(name: str) -> str:
        parts = name.split(".")
        paths = accumulate(parts, "{}.{}".format)
        kept = (part for part, path in zip(parts, paths, strict=True) if path not in wrapped)
        return ".".join(kept)

    return bare


def _is_wrapped(path: str, modules: Mapping[str, nn.Module]) -> bool:
    around, _, name = path.rpartition(".")
    return name == "_orig_mod" or (name == "module" and isinstance(modules[around], WRAPPERS))


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _refuse_unsupported(name: str, tensor: Tensor) -> None:
    """Raise ``SettingsError`` when ``tensor`` has no float32 vector that stands for it."""
    if nn.parameter.is_lazy(tensor):
        raise SettingsError(
            f"{name!r} is not initialized; run one batch through the model before joining"
        )
    if tensor.layout != torch.strided:
        raise SettingsError(f"{name!r} is sparse; only dense tensors are exchanged: freeze it")
    if tensor.dtype not in EXCHANGED_DTYPES:
        known = ", ".join(_dtype_name(dtype) for dtype in EXCHANGED_DTYPES)
        raise SettingsError(
            f"{name!r} has dtype {_dtype_name(tensor.dtype)}, which is not exchanged; "
            f"freeze it, or use one of {known}"
        )


def _refuse_overlap(tensors: dict[str, Tensor]) -> None:
    """Raise ``SettingsError`` when writing one tensor would change another, or itself twice."""
    extents: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.is_meta or tensor.numel() == 0:
            continue
        dims = [(int(n), step) for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
        if any(n > 1 and step == 0 for n, step in dims):
            raise SettingsError(f"{name!r} is an expanded view; store it with .clone()")
        start = int(tensor.storage_offset())
        end = start + 1 + sum((n - 1) * step for n, step in dims)
        span = (start * tensor.itemsize, end * tensor.itemsize, name)
        extents[tensor.untyped_storage().data_ptr()].append(span)
    for spans in extents.values():
        for (_, end, name), (start, _, other) in pairwise(sorted(spans)):
            if start < end:
                raise SettingsError(
                    f"{name!r} and {other!r} overlap in one storage; tie them by using the same "
                    "Parameter object, or give each its own storage with .clone()"
                )


# -- one fragment ---------------------------------------------------------------------------


class Vectors:
    """Memory for flat float32 vectors, used again and again.

    A fresh vector costs several times what is written into it: the system hands out its pages one
    by one (measured: ``docs/log.md``).

    Args:
        numel: Of the longest.
    """

    def __init__(self, numel: int, device: torch.device) -> None:
        self._numel, self._device = numel, device
        self._free: list[Tensor] = []
        self._taken: dict[int, Tensor] = {}

    def take(self, numel: int) -> Tensor:
        """Return a vector of ``numel`` elements, which may hold anything."""
        whole = self._free.pop() if self._free else torch.empty(self._numel, device=self._device)
        self._taken[whole.data_ptr()] = whole
        return whole[:numel]

    def give(self, *vectors: Tensor | None) -> None:
        """Take back what nobody reads any more; what ``take`` did not return is left alone."""
        for vector in vectors:
            whole = None if vector is None else self._taken.pop(vector.data_ptr(), None)
            if whole is not None:
                self._free.append(whole)


class FragmentTensors:
    """The live tensors of one fragment, read and written as one flat float32 vector.

    The vector is ``layout.numel`` long: each tensor in row-major order at its slot, whatever its
    strides, and zeros between. Call the methods where the optimizer is not writing.

    Args:
        vectors: Where the memory of what is gathered comes from; fresh where none is given.
    """

    def __init__(
        self, model: nn.Module, layout: FragmentLayout, vectors: Vectors | None = None
    ) -> None:
        tensors = live_tensors(model)
        self._vectors = vectors
        self._numel = layout.numel
        self._parts = [
            (slice(slot.offset, slot.offset + slot.numel), tensors[slot.name])
            for slot in layout.slots
        ]
        ends = [0, *(part.stop for part, _ in self._parts)]
        starts = [*(part.start for part, _ in self._parts), layout.numel]
        self._gaps = [slice(a, b) for a, b in zip(ends, starts, strict=True) if a < b]

    @torch.no_grad()
    def gather(self) -> Tensor:
        """Return the values as float32, shape (numel,), on the device of the tensors."""
        if self._vectors is None:
            out = torch.empty(self._numel, device=self._parts[0][1].device)
        else:
            out = self._vectors.take(self._numel)
        for part, tensor in self._parts:
            out[part].view(tensor.shape).copy_(tensor)
        for gap in self._gaps:
            out[gap] = 0.0
        return out

    @torch.no_grad()
    def scatter(self, flat: Tensor) -> None:
        """Write ``flat`` back in place, each value rounded to its tensor's dtype."""
        for part, tensor in self._parts:
            tensor.copy_(flat[part].view(tensor.shape))

    def is_finite(self) -> bool:
        """Whether the live tensors are all finite."""
        return all(bool(torch.isfinite(tensor).all()) for _, tensor in self._parts)

    def beside(self, flat: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield each live tensor, and its values in ``flat`` as a view of its shape."""
        for part, tensor in self._parts:
            yield tensor, flat[part].view(tensor.shape)

    def rounded(self, flat: Tensor) -> Tensor:
        """Return what ``gather`` would after ``scatter(flat)``, without touching the model.

        ``flat`` itself when every tensor holds all of float32.
        """
        narrow = [
            (part, tensor.dtype)
            for part, tensor in self._parts
            if tensor.dtype in (torch.bfloat16, torch.float16)
        ]
        if not narrow:
            return flat
        result = flat.clone()
        for part, dtype in narrow:
            result[part] = flat[part].to(dtype)
        return result
