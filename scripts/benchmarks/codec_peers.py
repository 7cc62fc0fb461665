"""What drives a peer's codec and aggregator, in its own environment: nothing of ours is imported.

gradientmail 0.0.2 is another project that shares our name; its API is driven as its own closer
drives it.
"""

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Times = dict[str, list[float]]


def gradientmail_002(numel: int, repetitions: int) -> dict[str, dict[str, Times]]:
    """Return seconds of a copy, and of coding as many float32 numbers."""
    adapter: Any = importlib.import_module("gradientmail.adapters.torch")
    torch.set_num_threads(1)
    backend, found = adapter.TorchBackend(), {}
    anchor, theta, total = torch.randn(numel), torch.randn(numel), torch.zeros(numel)
    for precision in ("F8_E4M3", "F4"):
        data, scale = adapter.TorchValue(anchor - theta).quantize(precision)

        def encode(p: str = precision) -> None:
            adapter.TorchValue(anchor - theta).quantize(p)

        def accumulate(data: Any = data, scale: Any = scale) -> None:
            total.add_(backend.dequantize(data, scale, (numel,)).data * 0.5)

        found[f"encode {precision}"] = _in_turn(anchor, encode, repetitions)
        found[f"decode and accumulate {precision}"] = _in_turn(anchor, accumulate, repetitions)
    return found


def close_002(numel: int, count: int, precision: str) -> dict[str, float]:
    """Return CPU seconds and peak bytes above start of closing one round, without any files."""
    adapter: Any = importlib.import_module("gradientmail.adapters.torch")
    rounds: Any = importlib.import_module("gradientmail.algorithms")
    formats: Any = importlib.import_module("gradientmail.serialization")
    diloco: Any = importlib.import_module("gradientmail.algorithms.diloco")
    torch.set_num_threads(1)
    theta = torch.randn(numel)
    schema = formats.Schema((formats.ParameterSpec("w", "F32", (numel,)),))
    data, scale = adapter.TorchValue(theta * 1e-3).quantize(precision)
    name = rounds.scale_name("w") if hasattr(rounds, "scale_name") else formats.scale_name("w")
    final = False
    contributions = [
        rounds.Contribution(f"n{i}", 10, 10, 1000 + i, 0.1, final, {"w": data, name: scale})
        for i in range(count)
    ]
    state = rounds.FragmentState(1, {"w": adapter.TorchValue(theta).to_bytes("F32")}, {})
    algorithm = diloco.DiLoCo(100, 1, in_flight=1, delta_dtype=precision)
    aggregator = algorithm.aggregator(schema, ["w"], adapter.TorchBackend())
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    start, began = _status("VmRSS"), time.process_time()
    aggregator.close_round(state, contributions)
    return {"cpu_s": time.process_time() - began, "peak_bytes": _status("VmHWM") - start}


def _in_turn(
    numbers: torch.Tensor, work: Callable[[], None], repetitions: int
) -> dict[str, Times]:
    copy = torch.empty_like(numbers)
    cases: dict[str, Callable[[], object]] = {"copy": lambda: copy.copy_(numbers), "own": work}
    found: dict[str, Times] = {name: {"wall": [], "cpu": []} for name in cases}
    for repetition in range(-1, repetitions):
        for name, case in cases.items():
            wall, cpu = time.perf_counter(), time.process_time()
            case()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            if repetition >= 0:
                found[name]["wall"].append(wall)
                found[name]["cpu"].append(cpu)
    return found


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024.0
