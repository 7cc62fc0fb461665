"""A program: what the command line trains, returned by a user's ``module:function``.

The function is called with those of these keywords that it accepts:

    device      torch.device to put the model and the batches on
    seed        int, the same for every learner of a run: draw the initial parameters from it
    data_seed   int, another one for each learner: draw the order of the data from it

and returns a ``Program``, or its first four fields as a tuple:

    def program(device, seed, data_seed):
        torch.manual_seed(seed)
        model = nn.Linear(8, 1).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return model, optimizer, batches(data_seed), loss
"""

import difflib
import importlib
import inspect
import pkgutil
import sys
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gradientmail.errors import SettingsError

FIELD_TYPES: dict[str, type] = {
    "model": nn.Module,
    "optimizer": torch.optim.Optimizer,
    "batches": Iterable,
    "loss": Callable,  # type: ignore[dict-item]
}


@runtime_checkable
class Positioned(Protocol):
    """Batches that know where they are, so that a restarted learner goes on at the next one.

    The state is a tree of what ``gradientmail.learner.state`` can save.
    """

    def state_dict(self) -> Any:  # noqa: ANN401 - any tree that can be saved
        """Return the position after the last batch handed out."""
        ...

    def load_state_dict(self, state: Any) -> None:  # noqa: ANN401
        """Go to ``state``: the next batch is the one that followed it."""
        ...


def examples(batch: Any) -> int:  # noqa: ANN401 - whatever the program's batches are
    """Return how many examples ``batch`` holds: the length of its first tensor.

    Raises:
        SettingsError: ``batch`` is not a tensor, or a tuple, list or dict that begins with one.
    """
    first = next(iter(batch.values()), None) if isinstance(batch, dict) else batch
    if isinstance(batch, tuple | list) and batch:
        first = batch[0]
    if not isinstance(first, Tensor) or first.dim() == 0:
        raise SettingsError(
            f"cannot count the examples of a batch of type {type(batch).__name__}; "
            "return a Program with tokens=<function of a batch>, and samples= alike"
        )
    return len(first)


@dataclass(frozen=True, slots=True)
class Program:
    """A model, and all that is needed to train it.

    Attributes:
        model: Where the device argument said.
        optimizer: The inner optimizer over the model's parameters.
        batches: Training ends when they do. Their position is saved when they are ``Positioned``.
        loss: (model, batch) -> scalar to be minimized.
        tokens: How many tokens a batch has; examples if not given.
        evaluate: model -> loss on held-out data.
        samples: How many examples a batch has; asked where a run weighs contributions by them.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    batches: Iterable[Any]
    loss: Callable[[nn.Module, Any], Tensor]
    tokens: Callable[[Any], int] = examples
    evaluate: Callable[[nn.Module], float] | None = None
    samples: Callable[[Any], int] = examples


def data_seed(seed: int, learner: str) -> int:
    """Return the ``data_seed`` of ``learner``: the same at every start, its own in the run."""
    return zlib.crc32(f"{seed}/{learner}".encode())


def load_program(name: str, *, device: torch.device, seed: int, data_seed: int) -> Program:
    """Import ``module:function``, looking in the current directory first, and call it.

    Raises:
        SettingsError: there is no such module or function, or it returned something else.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise SettingsError(
            f"program {name!r} is not of the form module:function, "
            "such as gradientmail.programs.gpt:program"
        )
    function = _function(_module(module_name), function_name)
    return _checked(name, _call(function, device=device, seed=seed, data_seed=data_seed))


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name != missing and not name.startswith(f"{missing}."):
            raise SettingsError(f"module {name!r} needs {missing!r}: install it") from error
        parent, _, leaf = name.rpartition(".")
        near = _near(leaf, _modules_in(parent)) if missing == name else ""
        raise SettingsError(
            f"there is no module {missing!r}; looked in {here} and on the Python path{near}"
        ) from error


def _modules_in(package: str) -> list[str]:
    paths = sys.modules[package].__path__ if package else [str(Path.cwd())]
    return [module.name for module in pkgutil.iter_modules(paths)]


def _function(module: ModuleType, name: str) -> Callable[..., object]:
    function = getattr(module, name, None)
    if callable(function):
        return function  # type: ignore[no-any-return]
    near = _near(name, [each for each, value in vars(module).items() if callable(value)])
    raise SettingsError(f"module {module.__name__!r} has no function {name!r}{near}")


def _near(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _call(function: Callable[..., object], **arguments: object) -> object:
    """Call ``function`` with those of ``arguments`` that it accepts."""
    accepted = inspect.signature(function).parameters.values()
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in accepted):
        return function(**arguments)
    names = {each.name for each in accepted}
    return function(**{key: value for key, value in arguments.items() if key in names})


def _checked(name: str, result: object) -> Program:
    if isinstance(result, tuple) and len(result) == 4:
        result = Program(*result)
    if not isinstance(result, Program):
        raise SettingsError(
            f"{name} returned {type(result).__name__}; return a gradientmail Program "
            "or the tuple (model, optimizer, batches, loss)"
        )
    for field, kind in FIELD_TYPES.items():
        value = getattr(result, field)
        if not isinstance(value, kind):
            raise SettingsError(
                f"{name} returned as {field} an object of type {type(value).__name__}; "
                f"it must be of type {kind.__name__}"
            )
    return result
