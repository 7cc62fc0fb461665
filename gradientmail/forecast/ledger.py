"""What everyone asked of the store, and what it costs."""

from dataclasses import dataclass, field

from gradientmail.forecast.fleet import Prices
from gradientmail.store.buckets import FIRST_BYTES, PART_BYTES

MILLION = 1e6
GB = 1e9
MONTH_S = 30 * 86_400.0


@dataclass(slots=True)
class Account:
    """One process's requests, as a bucket bills them, and its bytes.

    Attributes:
        puts: Creates, puts, and the parts of large ones.
        gets: Reads, whether or not there was something, and the parts of large ones.
        lists: Listings.
        deletes: Deletions.
    """

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    up_bytes: int = 0
    down_bytes: int = 0

    @property
    def requests(self) -> int:
        """All requests."""
        return self.puts + self.gets + self.lists + self.deletes

    def put(self, size_bytes: int, times: int = 1) -> None:
        """Enter puts of ``size_bytes`` each; a large one goes up in parts."""
        parts = -(-size_bytes // PART_BYTES)
        self.puts += times * (1 if parts <= 1 else parts + 2)
        self.up_bytes += times * size_bytes

    def get(self, size_bytes: int, times: int = 1) -> None:
        """Enter whole reads of ``size_bytes`` each; 0: there was nothing.

        What is beyond the first of a large one comes in parts.
        """
        rest = max(0, size_bytes - FIRST_BYTES)
        self.gets += times * (1 + -(-rest // PART_BYTES))
        self.down_bytes += times * size_bytes

    def fetch(self, size_bytes: int) -> None:
        """Enter a fetch, which comes in parts from the first on."""
        self.gets += max(1, -(-size_bytes // PART_BYTES))
        self.down_bytes += size_bytes

    def listed(self, times: int = 1) -> None:
        """Enter listings."""
        self.lists += times

    def plus(self, other: "Account") -> "Account":
        """Return the sum of two accounts."""
        return Account(
            self.puts + other.puts,
            self.gets + other.gets,
            self.lists + other.lists,
            self.deletes + other.deletes,
            self.up_bytes + other.up_bytes,
            self.down_bytes + other.down_bytes,
        )

    def cost(self, prices: Prices) -> float:
        """Return what the requests and the bytes read cost."""
        return (
            self.puts * prices.put_per_million
            + self.gets * prices.get_per_million
            + self.lists * prices.list_per_million
        ) / MILLION + self.down_bytes / GB * prices.egress_gb


@dataclass(slots=True)
class Stored:
    """How much lies in the store, over time.

    Attributes:
        size_bytes: Now.
        peak_bytes: The most there ever was.
        byte_seconds: Integral over time.
    """

    size_bytes: int = 0
    peak_bytes: int = 0
    byte_seconds: float = 0.0
    _at: float = field(default=0.0, repr=False)

    def add(self, size_bytes: int, now: float) -> None:
        """Take note of bytes that came, or, below 0, went."""
        self.advance(now)
        self.size_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.size_bytes)

    def advance(self, now: float) -> None:
        """Let time pass."""
        self.byte_seconds += self.size_bytes * (now - self._at)
        self._at = now

    def cost(self, prices: Prices) -> float:
        """Return what storing it cost."""
        return self.byte_seconds / GB / MONTH_S * prices.stored_gb_month


@dataclass(slots=True)
class Lane:
    """One direction of one machine's line, or its processor: one thing after another.

    Attributes:
        rate: Units a second.
        free_at: When it has done all that was asked.
        busy_s: Seconds in use.
    """

    rate: float
    free_at: float = 0.0
    busy_s: float = 0.0

    def take(self, units: float, now: float) -> tuple[float, float]:
        """Do ``units`` of work after all there is; return when that begins and ends."""
        start = max(now, self.free_at)
        takes_s = units / self.rate
        self.free_at = start + takes_s
        self.busy_s += takes_s
        return start, self.free_at
