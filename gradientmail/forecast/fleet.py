"""A fleet as its owner describes it: ``FLEET.toml`` as values, with units in the names."""

from typing import Annotated, Any

import msgspec

from gradientmail.config import NAME_PATTERN, AtLeastOne, AtLeastZero, PositiveSeconds, Seconds

Price = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
Rate = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]
PerDay = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
Hours = Annotated[float, msgspec.Meta(ge=0.0, le=1e6)]
Name = Annotated[str, msgspec.Meta(pattern=rf"^{NAME_PATTERN}\Z")]

BITS = 8
DAY_S = 86_400.0
HOUR_S = 3600.0


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What is trained: a number of parameters, or the shape of a transformer.

    Attributes:
        parameters: How many there are; none where ``width`` is given.
        blocks: Transformer blocks, of equal size.
        width: Size of the residual stream: 12 width^2 parameters a block, and the embedding.
        vocabulary: Rows of the embedding, which is also the head.
    """

    parameters: AtLeastOne | None = None
    blocks: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 24
    width: AtLeastOne | None = None
    vocabulary: AtLeastZero = 0


class Learners(msgspec.Struct, frozen=True, kw_only=True):
    """Learners of one kind.

    Attributes:
        name: Of the one learner, or of the group: its members are numbered.
        count: How many there are.
        step_s: Seconds of an inner step.
        step_spread: Each learner's step takes up to this share more or less, drawn once.
        up_mbit_s: To the store, in 10^6 bits a second; or ``up_mbyte_s``, in 10^6 bytes.
        down_mbit_s: From the store; or ``down_mbyte_s``.
        interruptions_per_day: How often it is taken away or killed, at random instants.
        interruption_s: How long it is then gone.
        keeps_state: It has a state directory that outlives an interruption.
        save_every_s: Seconds between two saves of it.
        joins_h, leaves_h: When it comes and goes; none stays.
        price_per_hour: What it costs while it is there.
    """

    name: Name
    count: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    step_s: PositiveSeconds
    step_spread: Share = 0.0
    up_mbit_s: Rate | None = None
    up_mbyte_s: Rate | None = None
    down_mbit_s: Rate | None = None
    down_mbyte_s: Rate | None = None
    interruptions_per_day: PerDay = 0.0
    interruption_s: Seconds = 300.0
    keeps_state: bool = True
    save_every_s: PositiveSeconds = 30.0
    joins_h: Hours = 0.0
    leaves_h: Hours | None = None
    price_per_hour: Price = 0.0

    @property
    def up_bytes_s(self) -> float:
        """Bytes a second to the store."""
        return bytes_s(self.up_mbit_s, self.up_mbyte_s)

    @property
    def down_bytes_s(self) -> float:
        """Bytes a second from the store."""
        return bytes_s(self.down_mbit_s, self.down_mbyte_s)


class Closers(msgspec.Struct, frozen=True, kw_only=True):
    """The closers: one works, the others stand by.

    Attributes:
        count: How many processes there are.
        up_mbit_s: To the store, in 10^6 bits a second; or ``up_mbyte_s``, in 10^6 bytes.
        down_mbit_s: From the store; or ``down_mbyte_s``.
        numbers_per_s: Parameters of contributions it checks or adds up in a second.
        interruptions_per_day: How often the one at work is killed.
        interruption_s: How long until it stands for the lease again.
        price_per_hour: What each of them costs.
    """

    count: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    up_mbit_s: Rate | None = None
    up_mbyte_s: Rate | None = None
    down_mbit_s: Rate | None = None
    down_mbyte_s: Rate | None = None
    numbers_per_s: Annotated[float, msgspec.Meta(gt=0.0)] = 2e8
    interruptions_per_day: PerDay = 0.0
    interruption_s: Seconds = 60.0
    price_per_hour: Price = 0.0

    @property
    def up_bytes_s(self) -> float:
        """Bytes a second to the store."""
        return bytes_s(self.up_mbit_s, self.up_mbyte_s)

    @property
    def down_bytes_s(self) -> float:
        """Bytes a second from the store."""
        return bytes_s(self.down_mbit_s, self.down_mbyte_s)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What the store asks for. A deletion is free everywhere we know of.

    Attributes:
        put_per_million: A million creates, puts and parts of puts.
        get_per_million: A million reads and parts of reads.
        list_per_million: A million listings.
        stored_gb_month: 10^9 bytes stored for 30 days.
        egress_gb: 10^9 bytes read.
    """

    put_per_million: Price = 0.0
    get_per_million: Price = 0.0
    list_per_million: Price = 0.0
    stored_gb_month: Price = 0.0
    egress_gb: Price = 0.0


class StoreSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The store: as wide as the lines that lead to it.

    Attributes:
        latency_s: Seconds of an operation, beside the bytes it moves.
        prices: Its price table.
    """

    latency_s: Seconds = 0.05
    prices: Prices = Prices()


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a forecast needs.

    Attributes:
        run: Settings as in ``run.toml``, on top of each preset.
        presets: Which presets to put side by side; none: what ``run`` says.
        hours: How long to look ahead.
        rounds: Stop after so many rounds of all fragments together, if that is sooner.
        seed: Of interruptions and of what else is drawn.
    """

    model: Model
    learners: tuple[Learners, ...]
    closer: Closers
    store: StoreSpec = StoreSpec()
    run: dict[str, Any] = {}
    presets: tuple[str, ...] = ()
    hours: Annotated[float, msgspec.Meta(gt=0.0, le=1e6)] | None = None
    rounds: AtLeastOne | None = None
    seed: AtLeastZero = 0


def bytes_s(mbit_s: float | None, mbyte_s: float | None) -> float:
    """Return bytes a second; exactly one of the two is given.

    >>> bytes_s(20.0, None), bytes_s(None, 2.5)
    (2500000.0, 2500000.0)
    """
    return 1e6 * (mbyte_s if mbyte_s is not None else (mbit_s or 0.0) / BITS)
