"""Train one model on scattered machines that share nothing but a bucket or a directory.

    import gradientmail as gm

    with gm.Learner("s3://bucket/run", model, optimizer=optimizer) as learner:
        for batch in batches:
            loss = train(batch)
            learner.step(tokens=batch.numel(), loss=loss)
            if learner.done:
                break

What is exported stands in ``__init__.pyi`` and is imported when it is first used: a command that
needs no tensor does not wait for torch.
"""

import lazy_loader

from gradientmail.version import VERSION

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = VERSION
