"""Making the next version's payloads: aggregated once, and uploaded until all are in the store."""

import mmap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from gradientmail.algorithms.aggregator import Outcome
from gradientmail.clock import fresh_nonce
from gradientmail.closer.aggregation import Files, Written, aggregate, roles
from gradientmail.closer.desk import Desk
from gradientmail.closer.intake import Accepted
from gradientmail.records import keys
from gradientmail.records.manifest import PayloadRef
from gradientmail.run import Version
from gradientmail.store.disk_errors import disk_errors
from gradientmail.tasks import together


@dataclass(frozen=True)
class _Made:
    """Payloads that lie in the spool.

    Attributes:
        of: Keys of the contributions they are made of.
        keys: By role; names that no one else uses.
        refs: Of those that are in the store.
    """

    of: tuple[str, ...]
    keys: Mapping[str, str]
    written: Written
    refs: dict[str, PayloadRef] = field(default_factory=dict)


class Making:
    """The payloads of one fragment's next version.

    While the store takes none or only some of them, nothing is made anew and nothing uploaded
    twice: neither the spool nor the store fills with attempts.
    """

    def __init__(self, desk: Desk, fragment: int) -> None:
        self._desk = desk
        self._fragment = fragment
        self._layout = desk.run.layouts[fragment]
        self._algorithm = desk.run.algorithms[fragment]
        self._roles = roles(self._algorithm, self._layout.numel)
        self._made: _Made | None = None

    async def make(
        self, present: Version, accepted: Sequence[Accepted]
    ) -> tuple[Outcome, Mapping[str, PayloadRef]]:
        """Return what the version after ``present`` is made of, once its payloads are uploaded.

        Raises:
            TooFewError, PayloadError, StoreFullError: see ``aggregate``; nothing is left behind.
            StoreUnavailableError: some are not uploaded; the next call goes on with these.
        """
        made = self._made
        if made is None or made.of != _names(accepted) or not self._is_whole(made):
            self._forget()
            made = self._made = await self._aggregate(present, accepted)
        missing = [role for role in made.keys if role not in made.refs]
        await together(*(self._upload(made, role) for role in missing))
        return made.written.outcome, made.refs

    def advance(self) -> None:
        """Begin the version after the next; files are for the spool to keep or drop."""
        self._made = None

    def _is_whole(self, made: _Made) -> bool:
        """Whether what is still to be uploaded lies in the spool."""
        missing = (key for role, key in made.keys.items() if role not in made.refs)
        return all(self._desk.spool.path(key).exists() for key in missing)

    def _forget(self) -> None:
        if self._made is not None:
            self._desk.spool.drop(*self._made.keys.values())
            self._made = None

    async def _aggregate(self, present: Version, accepted: Sequence[Accepted]) -> _Made:
        spool, nonce = self._desk.spool, fresh_nonce(self._desk.rng)
        target = {
            role: keys.payload(self._fragment, present.number + 1, nonce, role)
            for role in self._roles
        }
        files = Files(
            params=await spool.payload(present.params),
            outer=await spool.payload(present.outer) if present.outer else None,
            version=present.number,
            outer_steps=present.outer_steps,
        )
        paths = {role: spool.path(key) for role, key in target.items()}
        with ExitStack() as undo:
            undo.callback(spool.drop, *target.values())
            written: Written = await self._desk.offload(
                aggregate, self._algorithm, self._layout, accepted, files, paths
            )
            undo.pop_all()
        return _Made(_names(accepted), target, written)

    async def _upload(self, made: _Made, role: str) -> None:
        key = made.keys[role]
        path = self._desk.spool.path(key)
        with disk_errors(path), path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        await self._desk.run.mailbox.store.put(key, [memoryview(data)])
        digest = made.written.digests[role]
        made.refs[role] = PayloadRef(key=key, size_bytes=len(data), digest=digest)


def _names(accepted: Sequence[Accepted]) -> tuple[str, ...]:
    return tuple(one.key for one in accepted)
