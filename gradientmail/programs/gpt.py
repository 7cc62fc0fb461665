"""A byte-level GPT on the source of the Python standard library, sized to learn on one core.

Pre-norm blocks, rotary positions (Su et al., arXiv 2104.09864), squared ReLU (So et al., arXiv
2109.08668), projections onto the residual stream that start at zero: with them the loss leaves
the plateau of byte frequencies within a few dozen steps at a constant learning rate.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu, scaled_dot_product_attention

from gradientmail.learner.program import Program
from gradientmail.programs.sampling import RandomBatches
from gradientmail.programs.source import Text, library_source

BYTES = 256
ROTARY_BASE = 1000.0
EVALUATED_WINDOWS = 64
TEMPERATURE = 0.7


# -- the model ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model. ``context`` is in bytes; ``width / heads`` is even."""

    layers: int = 6
    width: int = 192
    heads: int = 6
    context: int = 128
    tied: bool = False


class Block(nn.Module):
    """Causal attention, then a two-layer network of four times the width, each on a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.merge = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.RMSNorm(width)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)
        nn.init.zeros_(self.merge.weight)
        nn.init.zeros_(self.narrow.weight)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """(batch, length, width) -> the same shape."""
        batch, length, width = x.shape
        qkv = self.qkv(self.norm_attention(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        seen = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.merge(seen.transpose(1, 2).reshape(batch, length, width))
        added: Tensor = self.narrow(relu(self.widen(self.norm_mlp(x))).square())
        return x + added


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


class GPT(nn.Module):
    """A transformer over bytes; ``head`` is ``embed`` where the shape says tied."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.context = shape.context
        self.embed = nn.Embedding(BYTES, shape.width)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, BYTES, bias=False)
        nn.init.zeros_(self.head.weight)
        if shape.tied:
            # As a head, rows of unit values would start with logits in the tens.
            nn.init.normal_(self.embed.weight, std=0.02)
            self.head.weight = self.embed.weight
        head_width = shape.width // shape.heads
        frequency = torch.pow(ROTARY_BASE, -torch.arange(0, head_width, 2) / head_width)
        angle = torch.outer(torch.arange(shape.context), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, length) int64, at most the context long -> logits (batch, length, 256)."""
        length = tokens.shape[1]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        logits: Tensor = self.head(self.norm(x))
        return logits


# -- training it ----------------------------------------------------------------------------


def program(
    *,
    device: torch.device,
    seed: int,
    data_seed: int,
    shape: Shape = Shape(),
    batch: int = 4,
    learning_rate: float = 2e-3,
) -> Program:
    """Return the GPT with AdamW, random windows of the training files, and held-out loss."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT(shape).to(device)
    text = library_source()
    return Program(
        model=model,
        optimizer=torch.optim.AdamW(
            model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True
        ),
        batches=training_windows(text, shape.context, batch, data_seed, device),
        loss=loss,
        tokens=tokens,
        evaluate=HeldOut(text, shape.context, device),
    )


def training_windows(
    text: Text, context: int, batch: int, seed: int, device: torch.device
) -> RandomBatches[Tensor]:
    """Return endless batches of random windows: int64, shape (batch, context + 1)."""
    windows = text.train.unfold(0, context + 1, 1)
    return RandomBatches(
        len(windows), lambda at: windows[at].to(device, torch.int64), size=batch, seed=seed
    )


class HeldOut:
    """model -> mean nats per byte on windows spread evenly over the held-out files."""

    def __init__(
        self, text: Text, context: int, device: torch.device, *, count: int = EVALUATED_WINDOWS
    ) -> None:
        windows = text.held_out.unfold(0, context + 1, 1)
        at = torch.arange(count) * (len(windows) - 1) // (count - 1)
        self._windows = windows[at].to(device, torch.int64)

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> float:
        """Return the held-out loss of ``model``."""
        return loss(model, self._windows).item()


def loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the mean nats per byte of predicting each next byte; batch (batch, length + 1)."""
    logits = model(batch[:, :-1])
    return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def tokens(batch: Tensor) -> int:
    """Return how many bytes are predicted in ``batch``."""
    return batch[:, 1:].numel()


@torch.no_grad()
def sample(model: GPT, prompt: str, length: int, generator: torch.Generator) -> str:
    """Return what ``model`` writes after ``prompt``: ``length`` bytes, drawn on the CPU."""
    written = list(prompt.encode())
    start = len(written)
    device = model.embed.weight.device
    for _ in range(length):
        seen = torch.tensor([written[-model.context :]], device=device)
        likely = (model(seen)[0, -1] / TEMPERATURE).softmax(-1)
        written.append(int(torch.multinomial(likely.cpu(), 1, generator=generator)))
    return bytes(written[start:]).decode(errors="replace")
