"""A small convolutional classifier with BatchNorm on the digits that scikit-learn ships."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gradientmail.errors import SettingsError
from gradientmail.learner.program import Program
from gradientmail.programs.sampling import RandomBatches

HELD_OUT_ONE_IN = 5


class Digits(NamedTuple):
    """Images float32 (count, 1, 8, 8) from 0 to 1, and their labels int64 (count,)."""

    images: Tensor
    labels: Tensor

    def take(self, at: Tensor) -> "Digits":
        """Return those at the indices, or where the mask, ``at`` says."""
        return Digits(self.images[at], self.labels[at])


def load_digits(device: torch.device) -> tuple[Digits, Digits]:
    """Return the digits to train on, and every fifth, held out.

    Raises:
        SettingsError: scikit-learn is not installed.
    """
    try:
        from sklearn import datasets  # noqa: PLC0415 - only this program needs it
    except ImportError as error:
        raise SettingsError(
            "the digits program needs scikit-learn: pip install 'gradientmail[demo]'"
        ) from error
    images, labels = datasets.load_digits(return_X_y=True)
    every = Digits(
        torch.tensor(images, dtype=torch.float32, device=device).view(-1, 1, 8, 8) / 16,
        torch.tensor(labels, dtype=torch.int64, device=device),
    )
    held_out = torch.arange(len(every.labels), device=device) % HELD_OUT_ONE_IN == 0
    return every.take(~held_out), every.take(held_out)


def network() -> nn.Sequential:
    """Return the classifier: images (batch, 1, 8, 8) -> logits (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 10),
    )


def program(
    *,
    device: torch.device,
    seed: int,
    data_seed: int,
    batch: int = 32,
    learning_rate: float = 3e-3,
) -> Program:
    """Return the classifier with AdamW, random batches of digits, and held-out loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network().to(device)
    train, held_out = load_digits(device)

    def evaluate(model: nn.Module) -> float:
        return cross_entropy(logits(model, held_out), held_out.labels).item()

    return Program(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=learning_rate),
        batches=RandomBatches(len(train.labels), train.take, size=batch, seed=data_seed),
        loss=loss,
        evaluate=evaluate,
    )


def loss(model: nn.Module, batch: Digits) -> Tensor:
    """Return the mean cross entropy in nats."""
    return cross_entropy(model(batch.images), batch.labels)


def accuracy(model: nn.Module, digits: Digits) -> float:
    """Return the share of ``digits`` that ``model`` names right."""
    named = logits(model, digits).argmax(1)
    return (named == digits.labels).float().mean().item()


@torch.no_grad()
def logits(model: nn.Module, digits: Digits) -> Tensor:
    """Return the logits with BatchNorm's running statistics; the mode stays what it was."""
    training = model.training
    model.eval()
    try:
        result: Tensor = model(digits.images)
    finally:
        model.train(training)
    return result
