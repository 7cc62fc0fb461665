"""Whether a GPU codes to the bytes of the CPU, and at what share of its own copy speed.

    scripts/gpu_check            on the GPU there is
    scripts/gpu_check --cpu      on the CPU, to try the script itself

Exit status 1: some bytes differ. Ratios are medians of five, in turn: of a copy within the device,
and of copying the float32 numbers out instead of their codes.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gradientmail.codecs.blocks import decode_chunk, encode_chunk
from gradientmail.codecs.devices import beside, on_host
from gradientmail.codecs.layout import CHUNK, TILE
from gradientmail.codecs.precision import Precision

SPECIAL = [0.0, -0.0, 1e-45, -1e-45, 2.0**-126, 2.0**-119, 0.5, 1.5, -2.5, 448.0, 2.0**14]


def main() -> int:
    """Check, measure, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true", help="use the CPU in place of a GPU")
    given = parser.parse_args()
    if not given.cpu and not torch.cuda.is_available():
        print("no GPU that torch can use; --cpu tries the script on the CPU", file=sys.stderr)
        return 2
    device = torch.device("cpu" if given.cpu else "cuda")
    name = "CPU" if given.cpu else torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}")
    wrong = [precision for precision in Precision if not same(precision, device)]
    print("bytes differ: " + ", ".join(wrong) if wrong else "all bytes are those of the CPU")
    print(f"{'':8} of a copy   of copying out")
    for precision in Precision:
        within, out = figures(precision, device)
        print(f"{precision:8} {within:9.2f} {out:12.2f}", flush=True)
    return 1 if wrong else 0


def same(precision: Precision, device: torch.device) -> bool:
    """Whether entries, and what is decoded of them, are equal on both."""
    for x in numbers():
        here, there = encode_chunk(x, precision), x.to(device)
        with beside(there):
            chunk = encode_chunk(there, precision)
            back = on_host(decode_chunk(chunk, precision))
        if not all(torch.equal(on_host(chunk[name]), items) for name, items in here.items()):
            return False
        if not torch.equal(
            back.view(torch.int32), decode_chunk(here, precision).view(torch.int32)
        ):
            return False
    return True


def numbers() -> list[Tensor]:
    """Return normal, heavy-tailed, tiny and special numbers, whole tiles of each."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(16 * TILE, generator=generator)
    special = torch.tensor(SPECIAL).repeat(TILE // len(SPECIAL) + 1)[:TILE]
    ties = (normal * 8).round() / 8
    return [normal, (normal**3).clamp(-6e4, 6e4), normal * 2.0**-120, special, ties, ties * 0]


def figures(precision: Precision, device: torch.device) -> tuple[float, float]:
    """Return the speed of encoding against a copy, and of sending codes out against float32."""
    x = torch.randn(64 * CHUNK if device.type == "cuda" else 4 * CHUNK, device=device)
    y = torch.empty_like(x)

    def encode_out() -> None:
        with beside(x):
            for items in encode_chunk(x, precision).values():
                on_host(items)

    def copy_out() -> None:
        on_host(x) if device.type == "cuda" else y.copy_(x)

    def copy() -> None:
        y.copy_(x)

    def encode() -> None:
        encode_chunk(x, precision)

    cases = {"copy": copy, "encode": encode, "copy out": copy_out, "encode out": encode_out}
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for repetition in range(6):
        for name, case in cases.items():
            seconds = timed(case, device)
            if repetition:
                taken[name].append(seconds)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    return median["copy"] / median["encode"], median["copy out"] / median["encode out"]


def timed(case: Callable[[], None], device: torch.device) -> float:
    """Return wall seconds until the device has done it."""
    began = time.perf_counter()
    case()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
