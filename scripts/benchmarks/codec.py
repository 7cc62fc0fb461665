"""Coding: tensors to payload entries and back, by one thread, against a plain copy.

Encode takes a pseudo-gradient, chunk by chunk; delta and encode first subtracts parameters from
the anchor, which reads twice as much. Decode and accumulate adds eight stored contributions times
a weight each, as a closer does; the figure is for one of them. A ratio of 1 is as fast as torch's
``copy_`` of the same float32 numbers.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from benchmarks.frame import (
    ChildError,
    Options,
    Result,
    Samples,
    Skipped,
    at_least,
    compared,
    in_child,
    interleaved,
    ratio,
)
from benchmarks.peers import GRADIENTMAIL_002, TORCHFT, PeerError, python_of
from gradientmail.closer.summing import length_at_once
from gradientmail.codecs import native
from gradientmail.codecs.blocks import decode_chunk, encode_chunk
from gradientmail.codecs.layout import ALIGN, CHUNK, chunks
from gradientmail.codecs.precision import Precision

ENCODE = {
    **dict.fromkeys(("I8", "I4"), at_least(0.6)),
    **dict.fromkeys(("NF4", "F4"), at_least(0.33)),
    "SPARSE": at_least(0.2),
}
DECODE = {
    **dict.fromkeys(Precision, at_least(0.8)),
    **dict.fromkeys(("I8", "I4"), at_least(1.0)),
}
CONTRIBUTIONS = 8


def run(options: Options) -> Iterator[Result]:
    """Measure."""
    torch.set_num_threads(1)
    million = 1 << 20
    sizes = {"tiny": [million // 2], "quick": [4 * million], "full": [16 * million, 64 * million]}
    precisions = list(Precision) if options.size == "full" else [Precision.I8, Precision.NF4]
    if not native.warm_up():
        yield Skipped(what="compiled kernels", reason=native.why_not())
    for numel in sizes[options.size]:
        yield from _ours(numel, precisions, options, "ours")
    native._kernels.reason = "not asked for"  # noqa: SLF001 - to measure what torch does alone
    yield from _ours(sizes[options.size][0], precisions, options, "ours, without numba")
    if options.peer:
        yield from _peers(sizes[options.size][0], options)


def _ours(numel: int, precisions: list[Precision], options: Options, of: str) -> Iterator[Result]:
    anchor, theta, copy = torch.randn(numel), torch.randn(numel), torch.empty(numel)
    for precision in precisions:
        chunk = encode_chunk(anchor[:CHUNK] - theta[:CHUNK], precision)
        accumulate = accumulator(numel, chunk, precision)
        found = interleaved(
            {
                "copy": lambda: copy.copy_(anchor),
                "encode": lambda p=precision: encode_all(anchor, None, p),
                "delta": lambda p=precision: encode_all(anchor, theta, p),
                "decode": accumulate,
            },
            times=options.repetitions,
        )
        for name, what, targets in (
            ("encode", "encode", {}),
            ("delta", "delta and encode", ENCODE),
            ("decode", "decode and accumulate", DECODE),
        ):
            yield compared(
                f"{what} {precision}, {numel >> 20}M",
                ratio(found["copy"], found[name], "cpu"),
                "of a copy (CPU)",
                found[name],
                target=targets.get(precision) if of == "ours" else None,
                of=of,
            )


def encode_all(anchor: Tensor, theta: Tensor | None, precision: Precision) -> None:
    """Encode chunk by chunk, as a payload is written; ``theta`` is subtracted first."""
    delta, room = torch.empty(CHUNK), None
    if native.serves(precision, torch.device("cpu")):
        room = native.Room.to_encode(CHUNK, precision)
    for start, stop in chunks(0, anchor.numel()):
        own = anchor[start:stop]
        if theta is not None:
            own = torch.sub(own, theta[start:stop], out=delta)
        if room is None:
            encode_chunk(own, precision)
        else:
            native.encode(own, precision, room)


def accumulator(
    numel: int, chunk: dict[str, Tensor], precision: Precision
) -> Callable[[], object]:
    """Return what adds a stored chunk, again and again, until ``numel`` numbers were added.

    As much of it at once as a closer reads of so many contributions.
    """
    if native.why_not():
        times = -(-numel // (CHUNK * CONTRIBUTIONS))
        total, room = torch.zeros(CHUNK), torch.empty(CHUNK)
        return lambda: [_plain(chunk, precision, total, room) for _ in range(times)]
    length = length_at_once(precision, CONTRIBUTIONS)
    times = -(-numel // (length * CONTRIBUTIONS))
    parts = [chunk[entry.name][: length // entry.per] for entry in precision.entries]
    arrays = [native.as_array(part)[None].repeat(CONTRIBUTIONS, 0) for part in parts]
    factors = np.ones((1, CONTRIBUTIONS, 1), np.float32)
    slots = np.zeros(length // ALIGN, np.int32)
    sums = native.room_for(len(slots))
    return lambda: [native.combine(arrays, precision, factors, slots, sums) for _ in range(times)]


def _plain(chunk: dict[str, Tensor], precision: Precision, total: Tensor, room: Tensor) -> None:
    for _ in range(CONTRIBUTIONS):
        total.add_(decode_chunk(chunk, precision, out=room).mul_(0.5))


# -- peers --------------------------------------------------------------------------------------


def _peers(numel: int, options: Options) -> Iterator[Result]:
    yield Skipped(what=TORCHFT.name, reason="its fp8 quantization is Triton: it needs a GPU")
    try:
        python = python_of(GRADIENTMAIL_002)
        found = in_child(
            "benchmarks.codec_peers:gradientmail_002", numel, options.repetitions, python=python
        )
    except (PeerError, ChildError) as error:
        yield Skipped(what=GRADIENTMAIL_002.name, reason=str(error).strip().splitlines()[-1])
        return
    for what, times in found.items():
        copy, own = Samples(**times["copy"]), Samples(**times["own"])
        yield compared(
            f"{what}, {numel >> 20}M",
            ratio(copy, own, "cpu"),
            "of a copy (CPU)",
            own,
            of=GRADIENTMAIL_002.name,
        )
