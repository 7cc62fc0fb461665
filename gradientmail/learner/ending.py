"""When a run ends for a learner, however it exchanges: read from its source, never a hint."""

from collections.abc import Callable

from gradientmail.learner.desk import Desk
from gradientmail.learner.posts import Arrival
from gradientmail.protocol.publishing import oldest_open_round


class Ending:
    """The newest versions a learner holds, and the end of the run that follows from them.

    Args:
        news: Called when the run ends.

    Attributes:
        ending: The run has ended, or someone asked it to.
        finished: The run has ended: no further version comes.
    """

    def __init__(self, desk: Desk, news: Callable[[], None]) -> None:
        self.ending = self.finished = False
        self._desk, self._run, self._news = desk, desk.run, news
        self._held: dict[int, Arrival] = {}

    async def _look_for_stop(self) -> None:
        reason = await self._run.mailbox.stop_reason()
        if reason is not None and not self.ending:
            self._desk.log.info("a stop was requested (%s); leaving", reason)
            self._end()

    def _look_for_last_round(self) -> None:
        """The manifest says which round is the last one."""
        last = self._run.manifest.settings.stop_after_rounds
        if last is None or len(self._held) < len(self._run.layouts):
            return
        versions = [self._held[p].version.number for p in range(len(self._held))]
        if oldest_open_round(self._run.algorithm.schedule, versions) >= last:
            self.finished = True
            self._end()

    def _end(self) -> None:
        if not self.ending:
            self.ending = True
            self._news()
