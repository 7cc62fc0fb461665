"""The run of the demo: learners and a closer as processes, two of which are killed on the way."""

import asyncio
from itertools import count

from gradientmail.demo.children import DemoError, gradientmail
from gradientmail.demo.stage import Stage
from gradientmail.demo.story import CLOSER, Kill, Point
from gradientmail.demo.watching import Watch
from gradientmail.errors import RecordError, SettingsError
from gradientmail.operations.exporting import export_run
from gradientmail.run import Run
from gradientmail.tasks import race, together

LOOK_S = 0.5
JOIN_LIMIT_S = 120.0
END_LIMIT_S = 90.0


class Together:
    """Trains ``run``, the one at the stage's URL."""

    def __init__(self, stage: Stage, run: Run) -> None:
        self._stage, self._scale, self._story = stage, stage.scale, stage.story
        self._children, self._clock = stage.children, stage.clock
        self._run, self._watch = run, Watch(run, stage.story)
        self._begun = asyncio.Event()

    async def train(self) -> None:
        """Play the whole run; every process has ended when this returns.

        Raises:
            DemoError: a process ended that should not have, or did not end when it should.
        """
        await race(self._play(), self._keep_looking(), self._keep_measuring())
        await race(self._stop(), self._keep_looking())
        await self._look()

    # -- what happens, one thing after another -------------------------------------------------

    async def _play(self) -> None:
        for name in (CLOSER, *self._scale.shares):
            await self._start(name)
        await self._until_begun()
        for name, share in self._scale.kills:
            await self._until(share * self._scale.seconds)
            await self._kill(name)
            await self._clock.sleep(self._scale.away_s)
            await self._start(name)
            self._stage.tell(f"started {name} again")
        await self._until(self._scale.seconds)

    async def _start(self, name: str) -> None:
        if name == CLOSER:
            command = gradientmail("closer", self._stage.url, "--until-done", "--name", name)
        else:
            state_dir, share = str(self._stage.out / "state" / name), str(self._scale.shares[name])
            options = ("--name", name, "--state-dir", state_dir, "--throttle", share)
            command = gradientmail("learner", self._stage.url, *options)
        await self._children.start(name, *command)

    async def _until_begun(self) -> None:
        try:
            async with asyncio.timeout(JOIN_LIMIT_S):
                await self._begun.wait()
        except TimeoutError as error:
            log = self._children.log(self._story.fastest)
            raise DemoError(f"nobody joined within {JOIN_LIMIT_S:.0f} s; see {log}") from error

    async def _until(self, at_s: float) -> None:
        await self._begun.wait()
        await self._clock.sleep(max(0.0, at_s - self._stage.now_s()))

    async def _kill(self, name: str) -> None:
        pid = self._children.pid(name)
        await self._children.kill(name)
        self._story.kills.append(Kill(name, self._clock.wall()))
        self._stage.tell(f"kill -9 {pid}: {name}")

    async def _stop(self) -> None:
        """Ask the run to end, as a person would, and wait until everybody has left."""
        self._stage.tell("asked the run to stop")
        await self._children.output("stop", *gradientmail("stop", self._stage.url))
        names = (CLOSER, *self._scale.shares)
        await together(*(self._children.finish(name, limit_s=END_LIMIT_S) for name in names))

    # -- what is seen meanwhile ----------------------------------------------------------------

    async def _keep_looking(self) -> None:
        while True:
            self._children.check()
            await self._look()
            await self._clock.sleep(LOOK_S)

    async def _look(self) -> None:
        await self._watch.look()
        if self._story.began_at is not None:
            self._begun.set()
        self._stage.show(self._stage.now_s())

    async def _keep_measuring(self) -> None:
        for number in count():
            await self._measure()
            await self._until((number + 1) * self._scale.evaluate_every_s)

    async def _measure(self) -> None:
        """Evaluate what is committed now."""
        at_s, params = self._stage.now_s(), self._stage.out / "committed.safetensors"
        try:
            await export_run(self._run.mailbox.store, params, model=self._stage.held_out.model)
        except (RecordError, SettingsError) as error:
            self._stage.tell(f"a version was swept while it was read: {error}")
            return
        self._story.together.append(Point(at_s, await self._stage.held_out.loss(params)))
