"""Write runs whose mail is hostile, one for each codec, and what must become of every object.

    OUT/I8/           a run in a directory: `gradientmail closer OUT/I8` meets its mail
    OUT/I8.json       [{"key": ..., "name": ..., "outcome": ..., "reason": a regular expression}]

The same bytes each time: whatever is drawn comes from a seed, and no clock is read.
"""

import argparse
import asyncio
import json
import random
from pathlib import Path

import torch
from torch import nn

from gradientmail.codecs.precision import Precision
from gradientmail.config import RunSettings
from gradientmail.operations.creating import create_run
from gradientmail.run import open_run
from gradientmail.store.local import LocalStore
from gradientmail.testing.clock import ManualClock
from gradientmail.testing.hostile import hostile_mail


async def write(out: Path, codec: str) -> int:
    """Write one run; return how many objects are in its mail."""
    store = LocalStore(out / codec)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Linear(30, 40))
    settings = RunSettings(uplink=codec)
    await create_run(store, model, settings, clock=ManualClock(), rng=random.Random(0))
    run = await open_run(store)
    expected = []
    for specimen in hostile_mail(run, run.origin(0)):
        await store.put(specimen.key, [specimen.body()])
        expected.append(
            {
                "key": specimen.key,
                "name": specimen.name,
                "outcome": specimen.outcome.value,
                "reason": specimen.reason,
            }
        )
    (out / f"{codec}.json").write_text(json.dumps(expected, indent=1))
    return len(expected)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", metavar="OUT", type=Path, help="a directory that is not there yet")
    parser.add_argument("--codec", choices=list(Precision), action="append", help="only this one")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True)
    for codec in asked.codec or list(Precision):
        print(f"{asked.out / codec}: {asyncio.run(write(asked.out, codec))} objects")


if __name__ == "__main__":
    main()
