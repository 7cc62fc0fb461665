"""The learner in a user's own loop: joins a run, counts steps, exchanges in the background."""

import math
import random
from contextlib import ExitStack
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsIndex

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gradientmail.clock import Clock, SystemClock, fresh_nonce, system_random
from gradientmail.computing import computing_threads
from gradientmail.config import NodeSettings, checked
from gradientmail.errors import StateNotSavedError
from gradientmail.learner.background import Background
from gradientmail.learner.counting import counted
from gradientmail.learner.desk import Desk
from gradientmail.learner.exchange import Exchange
from gradientmail.learner.gossip import Gossip
from gradientmail.learner.parameters import require_same_model
from gradientmail.learner.posts import Arrival, Progress
from gradientmail.learner.program import Positioned
from gradientmail.learner.proximal import hook_proximal
from gradientmail.learner.saving import Saved, arrivals_of, loaded, restore_training
from gradientmail.learner.state import State, StateDir
from gradientmail.learner.training import Training
from gradientmail.logs import get_logger
from gradientmail.names import learner_name, require_name
from gradientmail.protocol.publishing import Hold
from gradientmail.run import Run, open_run, start_warming
from gradientmail.store.metered import Meter
from gradientmail.store.url import open_store
from gradientmail.tasks import race

COMPUTING_THREADS = 2

SAVES_MISSED = 10
"""How many saves may be due and not possible before a person is told."""

LOSS_EVERY_S = 1.0
"""A loss on a GPU is read this often at most: reading it waits for the device."""


class Learner:
    """Takes part in the run at ``url`` with the user's own model, optimizer and loop.

    On entering, the model takes over the run's newest parameters (or this learner's own, from
    ``state_dir``). Each ``step`` is counted; a fragment's pseudo-gradient is posted when its round
    is due, and commits are put into the model between steps.

    Args:
        url: ``s3://bucket/run``, ``file:///...`` or a path.
        model: Must be the run's model; its parameters are changed in place.
        optimizer: Only saved and restored with ``state_dir``.
        name: This learner's name; by default drawn from the host's, once for a state directory.
        state_dir: Directory of this learner's own, so that a restart loses nothing.
        position: Anything with ``state_dict`` and ``load_state_dict`` to save along.

    Raises:
        RunNotFoundError, ContractError, StoreError, SettingsError, NotJoinedError: on entering,
            and then nothing was written.

    Example:
        >>> with gm.Learner("s3://bucket/run", model, optimizer=optimizer) as learner:
        ...     for batch in batches:
        ...         loss = train(batch)
        ...         learner.step(tokens=batch.numel(), samples=len(batch), loss=loss)
        ...         if learner.done:
        ...             break
    """

    def __init__(  # noqa: PLR0913 - the one place where a user says everything
        self,
        url: str | PathLike[str],
        model: nn.Module,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        name: str | None = None,
        state_dir: str | PathLike[str] | None = None,
        position: Positioned | None = None,
        node: NodeSettings | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._node = checked(node)
        self._clock, self._rng = clock or SystemClock(), rng or system_random()
        self._url, self._model = fspath(url), model
        device = next(model.parameters(), torch.empty(0)).device
        self._saved = Saved(model=model, optimizer=optimizer, position=position, device=device)
        directory = state_dir or self._node.state_dir
        self._state_path = Path(directory) if directory else None
        given = name or self._node.name
        self.name = require_name(given or learner_name(self._state_path, self._rng))
        self._state_dir: StateDir | None = None
        self._saved_at = self._clock.now()
        self._told_of_no_save = False
        self._loss_read_at = -LOSS_EVERY_S
        self._tree: dict[str, Any] | None = None
        self._background = Background(self._exchange_until_left)
        self._proximal: RemovableHandle | None = None
        self._asked_to_stop = False

    # -- joining and leaving -----------------------------------------------------------------

    def __enter__(self) -> Self:
        """Join the run."""
        if self._state_path is not None:
            self._state_dir = StateDir(self._state_path)
        try:
            self._join()
        except BaseException:
            self._leave()
            raise
        return self

    def _join(self) -> None:
        self._desk, self._exchange = self._background.start()
        self._run, self._log = self._desk.run, self._desk.log
        self._training = Training(
            self._desk, self._model, self._exchange, discarded=self._saved.heal_optimizer
        )
        self._start_training()
        self._least_samples = int(self._run.weighs_samples)
        mu = self._run.manifest.settings.proximal
        self._proximal = hook_proximal(self._saved.optimizer, self._training, mu)
        if self._state_dir is not None:
            self._state()  # what cannot be saved is better known now than at the first save

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave; after an error, without waiting for rounds in flight."""
        self.close(wait=kind is None and not self._asked_to_stop)

    def close(self, *, wait: bool = True) -> None:
        """Leave the run: what is on its way is posted, the state is saved, our presence ends.

        Args:
            wait: Also wait for the commits of rounds in flight, for as long as rounds here take.

        An interrupt meanwhile ends it at once.
        """
        self._background.require_ready()
        interrupted = False
        try:
            if not self._background.failed:
                self._finish(wait=wait)
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            self._leave(at_once=interrupted)

    def request_stop(self) -> None:
        """Make ``done`` true and end any wait; from any thread or a signal handler.

        A learner that has not joined yet ends with ``NotJoinedError``.
        """
        self._asked_to_stop = True
        self._background.give_up()
        self._background.notify()

    # -- training ----------------------------------------------------------------------------

    def step(
        self,
        tokens: SupportsIndex,
        loss: Tensor | float | None = None,
        *,
        samples: SupportsIndex = 0,
    ) -> None:
        """Count one inner step of ``tokens`` tokens; call it after ``optimizer.step()``.

        Returns after commits that arrived are in the model and rounds that are due are on their
        way. Waits only where the run's ``overlap_steps`` says so.

        Args:
            tokens: Trained on in it.
            loss: Of it, to be shown.
            samples: Examples in it; needed where the run weighs contributions by them.

        Raises:
            SettingsError: no whole number, or nothing was counted of what a contribution weighs.
            StoreError, RecordError: the exchange ended for good; the message says why.
        """
        self._background.require_ready()
        tokens, samples = counted(tokens, samples, least_samples=self._least_samples)
        self._background.check()
        self._training.stepped(tokens, self._read(loss), samples=samples)
        while True:
            news = self._background.news
            if not isinstance(self._training.settle(), Hold) or self.done:
                break
            began = self._clock.now()
            self._background.wait_beyond(news)
            self._training.waited(self._clock.now() - began)
            self._background.check()
        if self._clock.now() - self._saved_at >= self._node.save_every_s:
            self._save()

    @property
    def done(self) -> bool:
        """Whether the run has ended, or this learner was asked to stop: leave the loop."""
        self._background.require_ready()
        return self._exchange.ending or self._asked_to_stop

    @property
    def batch_share(self) -> int | None:
        """What of the run's ``global_batch`` the next step is to take, by measured speeds.

        None where the run has none: then batches are the program's own.
        """
        self._background.require_ready()
        batch = self._run.algorithm.global_batch
        return None if batch is None else self._training.pace.share(self.name, batch)

    @property
    def progress(self) -> Progress:
        """What this learner has done so far."""
        self._background.require_ready()
        return self._exchange.progress

    @property
    def run(self) -> Run:
        """The run it takes part in."""
        self._background.require_ready()
        return self._run

    # -- in the background thread ------------------------------------------------------------

    async def _exchange_until_left(self, background: Background) -> None:
        meter = Meter()
        store = open_store(
            self._url,
            clock=self._clock,
            rng=self._rng,
            client=self._node.store_client,
            meter=meter,
            deadline_s=self._node.retry_deadline_s,
        )
        threads = ExitStack()
        try:
            run = await open_run(store)
            require_same_model(run.manifest, self._model)
            desk = Desk(
                run=run,
                name=self.name,
                incarnation=fresh_nonce(self._rng),
                device=self._saved.device,
                clock=self._clock,
                rng=self._rng,
                offload=threads.enter_context(computing_threads(COMPUTING_THREADS)),
                meter=meter,
                log=get_logger("gradientmail.learner", run=run.name, learner=self.name),
                tags=tuple(require_name(tag.strip()) for tag in self._node.tags.split(",") if tag),
            )
            start_warming(run, desk.log)
            by_gossip = run.manifest.settings.exchange == "gossip"
            exchange = (Gossip if by_gossip else Exchange)(desk, news=background.notify)
            await exchange.join(await self._load(run))
            background.ready(desk, exchange)
            if run.algorithm.alone:
                await background.leaving.wait()
                return
            await race(exchange.run(), background.leaving.wait())
            await exchange.leave()
        finally:
            threads.close()
            await store.close()

    async def _load(self, run: Run) -> dict[int, Arrival]:
        """Return what the state directory holds, and keep its tree for the training thread."""
        state = self._state_dir.load() if self._state_dir else None
        if state is None:
            return {}
        self._tree = loaded(state, run, self.name)
        held = await arrivals_of(run, self._tree, self._saved.device)
        self._versions = [arrival.version for arrival in held]
        return dict(enumerate(held))

    # -- small parts -------------------------------------------------------------------------

    def _start_training(self) -> None:
        if self._tree is None:
            self._training.start(self._exchange.take()[0])
            return
        self._saved.restore(self._tree)
        restore_training(self._training, self._tree, self._versions, self._saved.device)
        self._exchange.outbox.restore(self._tree["outbox"])
        for p, fragment in enumerate(self._training.fragments):
            if not fragment.posted:
                continue
            if isinstance(self._exchange, Gossip):
                self._training.post_again(p)  # our post may be gone from the store
            else:
                self._exchange.expect(p)
        self._log.info("restored at step %d from %s", self._training.step, self._state_path)
        self._tree = None

    def _read(self, loss: Tensor | float | None) -> float | None:
        now = self._clock.now()
        if loss is None or now - self._loss_read_at < LOSS_EVERY_S:
            return None
        self._loss_read_at = now
        value = float(loss.detach() if isinstance(loss, Tensor) else loss)
        if not math.isfinite(value):
            self._log.warning("the loss is %s at step %d", value, self._training.step + 1)
        return value

    def _finish(self, *, wait: bool) -> None:
        if wait:
            self._wait_for_rounds()
        goes_on_later = self._asked_to_stop and self._state_dir is not None
        if self._run.algorithm.flush_on_close and not goes_on_later:
            self._training.flush()
        self._settle_outbox()
        self._save()

    def _wait_for_rounds(self) -> None:
        """Wait for the commits of our rounds in flight; give up where they are overdue."""
        poll_s = self._run.manifest.settings.poll_s
        fragments = self._training.fragments
        limit_s = max(one.version.estimates.timeout(poll_s) for one in fragments)
        deadline = self._clock.now() + limit_s
        while True:
            self._background.check()
            news = self._background.news
            self._training.settle()
            left_s = deadline - self._clock.now()
            if not self._training.publishing.in_flight or self._exchange.finished or left_s <= 0:
                return
            self._background.wait_beyond(news, left_s)

    def _settle_outbox(self) -> None:
        if not self._exchange.outbox.settled:
            self._log.info(
                "waiting for the store to take what was posted, for %.0f s at most; an interrupt "
                "(Ctrl-C) ends it",
                self._node.retry_deadline_s,
            )
        try:
            self._background.call(self._exchange.outbox.until_settled, self._node.retry_deadline_s)
        except TimeoutError:
            self._log.warning(
                "left before the last contribution was acknowledged; %s",
                "the next start posts it" if self._state_dir else "it is lost",
            )

    def _save(self) -> None:
        """Save, unless the outbox is at work on what it holds; then at the next step."""
        if self._state_dir is None:
            return
        self._training.heal()
        state = self._state()
        if state is None:
            self._tell_of_no_save()
            return
        try:
            self._state_dir.save(state)
            self._training.local.keep(self._training.step)
        except StateNotSavedError as exc:
            self._log.error("%s", exc)
        self._saved_at = self._clock.now()
        self._told_of_no_save = False

    def _tell_of_no_save(self) -> None:
        """Say once when a contribution that is not acknowledged holds up saving for long."""
        unsaved_s = self._clock.now() - self._saved_at
        if not self._told_of_no_save and unsaved_s > SAVES_MISSED * self._node.save_every_s > 0:
            self._told_of_no_save = True
            self._log.warning(
                "no state was saved for %d s, since contributions are still on their way: a "
                "restart now would go on from there",
                unsaved_s,
            )

    def _state(self) -> State | None:
        outbox = self._exchange.outbox.state()
        if outbox is None:
            return None
        return self._saved.save(self._run, self.name, self._training, outbox)

    def _leave(self, *, at_once: bool = False) -> None:
        if self._proximal is not None:
            self._proximal.remove()
        try:
            self._background.stop(at_once=at_once)
        finally:
            if self._state_dir is not None:
                self._state_dir.close()
