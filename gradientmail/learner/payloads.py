"""Parameters of versions: fetched, checked and decoded, by the shortest way that leads there."""

import torch
from torch import Tensor

from gradientmail.algorithm import Algorithm
from gradientmail.algorithms.aggregator import PARAMS, UPDATE
from gradientmail.codecs.layout import FragmentLayout, chunks
from gradientmail.codecs.payload import PayloadFormat
from gradientmail.codecs.streaming import BufferSource, PayloadReader, decoded
from gradientmail.errors import PayloadError, RecordError
from gradientmail.learner.desk import Desk
from gradientmail.learner.posts import Arrival
from gradientmail.records import canonical
from gradientmail.records.manifest import PayloadRef
from gradientmail.run import Version

LOST_AFTER_POLLS = 10
"""So often the newest version's payload is looked for; a sweep leaves it and moves on sooner."""


class Payloads:
    """What a learner reads of ``fragments/``. All that takes long runs off the event loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._run = desk, desk.run

    async def newest(self, newest: Version, held: Arrival | None) -> tuple[Version, Tensor]:
        """Return the newest version whose parameters can be had: an older one may be swept.

        Args:
            newest: The newest version known.
            held: What is there already, for an update to start from.

        Raises:
            RecordError: those of the newest version are lost, which no sweep does.
        """
        polls = 0
        while True:
            try:
                return newest, await self._params(newest, held)
            except PayloadError as exc:
                extra = {"fragment": newest.fragment, "version": newest.number}
                self._desk.log.warning("looking for a newer version: %s", exc, extra=extra)
            await self._desk.clock.sleep(self._run.manifest.settings.poll_s)
            newer = await self._run.newest(newest.fragment, newest.number)
            polls = polls + 1 if newer.number == newest.number else 0
            if polls == LOST_AFTER_POLLS:
                await self._require_swept(newest)
                polls = 0
            newest = newer

    async def _require_swept(self, version: Version) -> None:
        boundary = await self._run.mailbox.newest_boundary(version.fragment)
        if version.number > boundary:
            reason = f"the payload of the newest version, {version.number}, is missing or damaged"
            raise RecordError(version.params.key, reason)

    async def _params(self, newest: Version, held: Arrival | None) -> Tensor:
        """Return the parameters of ``newest``: by its update where that is shorter."""
        if held is not None and newest.params == held.version.params:
            return held.params
        if (updated := await self._by_update(newest, held)) is not None:
            return updated
        algorithm, layout = self._of(newest.fragment)
        params_format = algorithm.params_format(layout.numel)
        data = await self._read(newest.params)
        params: Tensor = await self._desk.offload(
            checked_params, newest.params, data, params_format, self._desk.device
        )
        return params

    def _of(self, fragment: int) -> tuple[Algorithm, FragmentLayout]:
        return self._run.algorithms[fragment], self._run.layouts[fragment]

    async def _by_update(self, newest: Version, held: Arrival | None) -> Tensor | None:
        """Return what an update makes of the held parameters; None where none leads on."""
        algorithm, layout = self._of(newest.fragment)
        update_format = algorithm.update_format(layout.numel)
        if not (held and newest.update and update_format and _follows(newest, held.version)):
            return None
        try:
            data = await self._read(newest.update)
            updated: Tensor = await self._desk.offload(
                _checked_update, newest.update, data, update_format, held.params
            )
        except PayloadError as exc:
            extra = {"fragment": newest.fragment, "version": newest.number}
            self._desk.log.warning("taking the parameters instead: %s", exc, extra=extra)
            return None
        return updated

    async def _read(self, ref: PayloadRef) -> bytes:
        data = await self._run.mailbox.store.read(ref.key, 0, ref.size_bytes + 1)
        if data is None:
            raise PayloadError(f"{ref.key} is gone: swept, or lost")
        return data


def _follows(version: Version, before: Version) -> bool:
    return version.number == before.number + 1


def _check(ref: PayloadRef, data: bytes) -> None:
    if len(data) != ref.size_bytes or canonical.digest_of(data) != ref.digest:
        raise PayloadError(f"{ref.key} differs from its record's digest")


def checked_params(
    ref: PayloadRef, data: bytes, params_format: PayloadFormat, device: torch.device
) -> Tensor:
    """Return a version's parameters on ``device``.

    Raises:
        PayloadError: the bytes are not those of ``ref``, or not of the format.
    """
    _check(ref, data)
    return decoded(data, params_format, section=PARAMS).to(device)


def _checked_update(
    ref: PayloadRef, data: bytes, update_format: PayloadFormat, held: Tensor
) -> Tensor:
    """Return ``held`` plus the update, the same addition the closer made."""
    _check(ref, data)
    reader = PayloadReader(update_format, BufferSource(data))
    params = torch.empty_like(held)
    for start, stop in chunks(0, update_format.numel):
        update = reader.read(UPDATE, start, stop).to(held.device)
        torch.add(held[start:stop], update, out=params[start:stop])
    return params
