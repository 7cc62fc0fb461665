"""Watching the run: what anyone with read access to the store can see of it."""

import asyncio

from gradientmail.demo.story import Story
from gradientmail.records.commit import RoundRecord
from gradientmail.run import Run


class Watch:
    """Looks at the store and puts what is new into ``story``."""

    def __init__(self, run: Run, story: Story) -> None:
        self._run, self._story = run, story
        self._versions = [0] * len(run.layouts)

    async def look(self) -> list[RoundRecord]:
        """Take in presences and commits; return the new commits in the order they closed."""
        presences = await asyncio.gather(*map(self._run.mailbox.presence, self._story.shares))
        for presence in presences:
            if presence is not None:
                self._story.saw(presence)
        found = await asyncio.gather(*map(self._follow, range(len(self._versions))))
        new = sorted((record for some in found for record in some), key=lambda r: r.closed_at)
        self._story.commits.extend(new)
        return new

    async def _follow(self, fragment: int) -> list[RoundRecord]:
        new = []
        while found := await self._run.mailbox.commit(fragment, self._versions[fragment] + 1):
            new.append(found[0])
            self._versions[fragment] += 1
        return new
