"""Payloads written and read a chunk at a time, so that memory does not grow with the fragment."""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, Self

import torch
from torch import Tensor

from gradientmail.codecs import native
from gradientmail.codecs.blocks import EncodedChunk, check_magnitude, decode_chunk, encode_chunk
from gradientmail.codecs.devices import beside, on_host
from gradientmail.codecs.layout import TILE, chunks
from gradientmail.codecs.noise import Noise
from gradientmail.codecs.payload import PayloadFormat, PlacedEntry
from gradientmail.codecs.precision import Precision
from gradientmail.errors import PayloadError


class Target(Protocol):
    """Where a payload's bytes go."""

    def allocate(self, size_bytes: int) -> None:
        """Take the size that all that will be written needs."""
        ...

    def write_at(self, offset: int, data: memoryview) -> None:
        """Put ``data`` at ``offset``."""
        ...


class Source(Protocol):
    """Where a payload's bytes come from."""

    @property
    def size_bytes(self) -> int:
        """Bytes there are."""
        ...

    def read_at(self, offset: int, into: memoryview) -> None:
        """Fill ``into`` from ``offset`` on.

        Raises:
            PayloadError: it ends before.
        """
        ...


class PayloadWriter:
    """Writes a payload: the header at once, then chunks in any order.

    The header is by default the format's own without metadata. Where the metadata is to hold the
    digest of the data, write the data alone with ``header=b""`` and put the header before it.

    Args:
        noise: Round stochastically by it; see ``encode_chunk``.
    """

    def __init__(
        self,
        payload_format: PayloadFormat,
        target: Target,
        *,
        header: bytes | None = None,
        noise: Noise | None = None,
    ) -> None:
        if header is None:
            header = payload_format.header(None)
        self._format = payload_format
        self._target = target
        self._noise = noise
        self._data_start = len(header)
        self._rooms: defaultdict[tuple[Precision, int], list[native.Room]] = defaultdict(list)
        target.allocate(len(header) + payload_format.data_bytes)
        target.write_at(0, memoryview(header))

    def write(self, section: str, start: int, x: Tensor) -> Tensor:
        """Write ``x`` as elements ``[start, start + len(x))`` of a section, both whole tiles.

        Returns what a reader will decode, bit for bit, as float32 on the device of ``x``; of F32
        that may be ``x`` itself.

        Raises:
            NonFiniteError, PayloadError: see ``encode_chunk``; nothing was written.
        """
        precision = self._format.sections[section]
        if precision is Precision.F32 and _is_plain(x):
            check_magnitude(x)
            self._put(section, start, {"values": x})
            return x
        if self._noise is None and native.serves(precision, x.device) and _is_plain(x):
            return self._write_native(section, start, x, precision)
        noise = self._noise.at(start, x.numel(), x.device) if self._noise else None
        with beside(x):
            chunk = encode_chunk(x, precision, noise)
            self._put(section, start, chunk)
            return decode_chunk(chunk, precision)

    def _write_native(self, section: str, start: int, x: Tensor, precision: Precision) -> Tensor:
        """Write by kernels, through room that is used again: fresh memory is slow."""
        rooms = self._rooms[precision, x.numel()]
        room = rooms.pop() if rooms else native.Room.to_encode(x.numel(), precision)
        encoded = native.encode(x.view(-1), precision, room)
        chunk = room.entries if encoded else encode_chunk(x, precision)
        self._put(section, start, chunk)
        sent = decode_chunk(chunk, precision)
        rooms.append(room)
        return sent

    def _put(self, section: str, start: int, chunk: EncodedChunk) -> None:
        for placed in self._format.placed_of(section):
            offset = self._data_start + _byte_offset(placed, start)
            self._target.write_at(offset, bytes_of(on_host(chunk[placed.entry.name])))


class PayloadReader:
    """Decodes chunks of a payload whose header it has checked; from any thread.

    Raises:
        PayloadError: the source is not of this format; see ``PayloadFormat.check_header``.
    """

    def __init__(self, payload_format: PayloadFormat, source: Source) -> None:
        head = bytearray(min(source.size_bytes, payload_format.max_header_bytes))
        source.read_at(0, memoryview(head))
        self.header = payload_format.check_header(bytes(head), source.size_bytes)
        self._format = payload_format
        self._source = source

    def read(self, section: str, start: int, stop: int, out: Tensor | None = None) -> Tensor:
        """Return elements ``[start, stop)`` of a section, whole tiles, as flat float32.

        They come in ``out`` where given, which is contiguous and on the CPU.

        Raises:
            NonFiniteError, PayloadError: see ``decode_chunk``; or the source was cut off since.
        """
        precision = self._format.sections[section]
        if precision is Precision.F32 and (out is None or _is_plain(out)):
            x = torch.empty(stop - start) if out is None else out
            self.read_entries(section, start, {"values": x})
            check_magnitude(x)
            return x
        chunk = native.empty_entries(stop - start, precision)
        self.read_entries(section, start, chunk)
        return decode_chunk(chunk, precision, out)

    def read_entries(self, section: str, start: int, into: EncodedChunk) -> None:
        """Fill the stored items from element ``start`` on, by entry name.

        Raises:
            PayloadError: the source was cut off since.
        """
        placed = self._format.placed_of(section)
        self.read_stored(section, start, [bytes_of(into[one.entry.name]) for one in placed])

    def read_stored(self, section: str, start: int, into: Sequence[memoryview]) -> None:
        """Fill the same as bytes, an entry after the other.

        Raises:
            PayloadError: the source was cut off since.
        """
        for placed, view in zip(self._format.placed_of(section), into, strict=True):
            self._source.read_at(self.header.data_start + _byte_offset(placed, start), view)


class BufferTarget:
    """A ``Target`` in memory: ``data`` is what was written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def allocate(self, size_bytes: int) -> None:
        """See ``Target``."""
        self.data = bytearray(size_bytes)

    def write_at(self, offset: int, data: memoryview) -> None:
        """See ``Target``."""
        memoryview(self.data)[offset : offset + len(data)] = data


class BufferSource:
    """A ``Source`` in memory."""

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        self._view = memoryview(buffer)
        self.size_bytes = len(self._view)

    def read_at(self, offset: int, into: memoryview) -> None:
        """See ``Source``."""
        found = self._view[offset : offset + len(into)]
        if len(found) < len(into):
            raise _cut_off(offset + len(found))
        into[:] = found


class _File:
    def __init__(self, path: Path, flags: int) -> None:
        self._fd = os.open(path, flags, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class FileTarget(_File):
    """A ``Target`` in a file, new or overwritten in place; a context manager."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_RDWR | os.O_CREAT)

    def allocate(self, size_bytes: int) -> None:
        """See ``Target``."""
        os.ftruncate(self._fd, size_bytes)

    def write_at(self, offset: int, data: memoryview) -> None:
        """See ``Target``."""
        while data:
            written = os.pwrite(self._fd, data, offset)
            offset, data = offset + written, data[written:]


class FileSource(_File):
    """A ``Source`` in a file; a context manager."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._fd).st_size

    def read_at(self, offset: int, into: memoryview) -> None:
        """See ``Source``."""
        while into:
            count = os.preadv(self._fd, [into], offset)
            if not count:
                raise _cut_off(offset)
            offset, into = offset + count, into[count:]


def encoded(
    flat: Tensor, precision: Precision, *, section: str = "data", metadata: str | None = None
) -> bytearray:
    """Return a whole payload object of one section. ``flat`` is whole tiles, of any float dtype.

    >>> flat = torch.arange(4096.0)
    >>> bool((decoded(encoded(flat, Precision.F32), Precision.F32) == flat).all())
    True

    Raises:
        SettingsError: ``flat`` is not whole tiles.
        NonFiniteError, PayloadError: see ``encode_chunk``.
    """
    flat = flat.reshape(-1)
    payload_format = PayloadFormat(flat.numel(), {section: precision})
    target = BufferTarget()
    writer = PayloadWriter(payload_format, target, header=payload_format.header(metadata))
    for start, stop in chunks(0, flat.numel()):
        writer.write(section, start, flat[start:stop])
    return target.data


def decoded(
    data: bytes | bytearray | memoryview,
    form: Precision | PayloadFormat,
    *,
    section: str = "data",
) -> Tensor:
    """Return one section of a whole payload object as flat float32.

    Raises:
        PayloadError: the bytes are not of this form, or not finite.
    """
    if isinstance(form, Precision):
        data_bytes = len(data) - 8 - int.from_bytes(data[:8], "little")
        tiles = max(0, data_bytes) // round(TILE * form.bytes_per_parameter)
        form = PayloadFormat(tiles * TILE, {section: form})
    reader = PayloadReader(form, BufferSource(data))
    flat = torch.empty(form.numel)
    for start, stop in chunks(0, form.numel):
        reader.read(section, start, stop, out=flat[start:stop])
    return flat


def _is_plain(x: Tensor) -> bool:
    """Whether the memory of ``x`` is what F32 stores."""
    return x.dtype is torch.float32 and x.device.type == "cpu" and x.is_contiguous()


def _byte_offset(placed: PlacedEntry, start: int) -> int:
    return placed.offset + start // placed.entry.per * placed.entry.item_bytes


def bytes_of(items: Tensor) -> memoryview:
    """View a flat tensor on the CPU as bytes; by way of uint8, which numpy knows."""
    return items.detach().view(torch.uint8).numpy().data


def _cut_off(end: int) -> PayloadError:
    return PayloadError(f"the payload is cut off after {end} bytes")
