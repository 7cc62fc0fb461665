"""Creating a run from Python: what ``gradientmail init`` does, with a model at hand."""

import asyncio
from os import PathLike, fspath
from typing import Any

from torch import nn

from gradientmail.algorithm import by_name
from gradientmail.algorithms.presets import DEFAULT, preset
from gradientmail.clock import SystemClock, system_random
from gradientmail.config import NodeSettings, RunSettings, checked, resolve
from gradientmail.doctor import require_fit
from gradientmail.operations.creating import create_run, require_no_run
from gradientmail.records.manifest import Manifest
from gradientmail.store.url import open_store


def init(
    url: str | PathLike[str],
    model: nn.Module,
    *,
    algorithm: str = DEFAULT,
    node: NodeSettings | None = None,
    **settings: Any,  # noqa: ANN401 - the fields of RunSettings
) -> Manifest:
    """Create a run at ``url``: the values of ``model`` become version 0.

    Args:
        url: ``s3://bucket/run``, ``file:///...`` or a path.
        model: What every learner's model must look like.
        algorithm: The preset ``settings`` default from.
        node: ``store_client`` and ``retry_deadline_s`` are used.
        settings: Fields of ``RunSettings``; a named choice may be a value: ``outer=Adam(lr=0.1)``.

    Raises:
        SettingsError: a setting or the model cannot work.
        RunExistsError: there is a run at ``url``.
        StoreUnfitError: the store breaks a promise that a run needs.

    Example:
        >>> gm.init("s3://bucket/run", model, algorithm="diloco", sync_every=100)
    """
    node, clock, rng = checked(node), SystemClock(), system_random()
    chosen = resolve(RunSettings, ("preset", preset(algorithm)), ("argument", by_name(settings)))

    async def create() -> Manifest:
        store = open_store(
            fspath(url),
            clock=clock,
            rng=rng,
            client=node.store_client,
            deadline_s=node.retry_deadline_s,
        )
        try:
            await require_no_run(store)
            await require_fit(store, rng=rng)
            return await create_run(store, model, chosen, clock=clock, rng=rng)
        finally:
            await store.close()

    return asyncio.run(create())
