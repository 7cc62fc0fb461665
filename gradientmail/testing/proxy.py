"""A proxy before a real S3 server: it loses, delays, cuts and repeats what passes, or refuses.

    with fault_proxy(server) as proxy:
        proxy.plan = first(2, creates, Wire.DROP_ANSWER)

reads: the first two creates are applied and their answers lost.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from urllib.parse import urlsplit

from gradientmail.clock import SystemClock
from gradientmail.testing.servers import S3Server

PIECES = 8


class Wire(Enum):
    """What happens to one request and its answer."""

    DROP_REQUEST = auto()
    """The connection breaks before the server sees the request."""
    DROP_ANSWER = auto()
    """The server does it, and the connection breaks."""
    UNAVAILABLE_AFTER = auto()
    """The server does it, and the answer is a 503."""
    UNAVAILABLE_BEFORE = auto()
    """The server never sees the request, and the answer is a 503."""
    CONFLICT = auto()
    """The server never sees the request, and the answer is a 409."""
    TOKEN_EXPIRED = auto()
    """The server never sees the request, and the answer is that the credentials expired."""
    IGNORE_CONDITION = auto()
    """The server is not told ``If-None-Match``, as if it knew no such header."""
    DELAY_ANSWER = auto()
    """The server does it, and the answer comes ``FaultProxy.delay_s`` later."""
    TRICKLE_ANSWER = auto()
    """The server does it, and the answer comes in ``PIECES``, ``FaultProxy.delay_s`` apart."""
    CUT_ANSWER = auto()
    """The server does it, and the connection breaks in the middle of the answer."""
    REPEAT_ANSWER = auto()
    """The server does it, and the answer comes twice over the same connection."""
    REPEAT_REQUEST = auto()
    """The server gets the request twice, and the answer is that to the second one."""


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer: its first line, its headers (names in lower case), its body."""

    first: str
    headers: dict[str, str]
    body: bytes = b""

    def encoded(self) -> bytes:
        """Return it as it goes over the wire."""
        lines = [self.first, *(f"{name}: {value}" for name, value in self.headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body


def _refusal(status: str, code: str) -> Message:
    body = f"<Error><Code>{code}</Code><Message>by plan</Message></Error>".encode()
    headers = {"content-type": "application/xml", "content-length": str(len(body))}
    return Message(f"HTTP/1.1 {status}", headers, body)


_UNAVAILABLE = _refusal("503 Service Unavailable", "ServiceUnavailable")
_INSTEAD: dict[Wire | None, Message | None] = {
    Wire.DROP_REQUEST: None,
    Wire.UNAVAILABLE_BEFORE: _UNAVAILABLE,
    Wire.CONFLICT: _refusal("409 Conflict", "ConditionalRequestConflict"),
    Wire.TOKEN_EXPIRED: _refusal("400 Bad Request", "ExpiredToken"),
}

WirePlan = Callable[[Message], Wire | None]


def healthy(request: Message) -> Wire | None:  # noqa: ARG001
    """Pass everything on."""
    return None


def creates(request: Message) -> bool:
    """Whether ``request`` is a create-if-absent."""
    return request.first.startswith("PUT") and "if-none-match" in request.headers


def first(count: int, which: Callable[[Message], bool], fault: Wire) -> WirePlan:
    """``fault`` happens to the first ``count`` requests that are ``which``."""
    left = count

    def plan(request: Message) -> Wire | None:
        nonlocal left
        if not left or not which(request):
            return None
        left -= 1
        return fault

    return plan


class FaultProxy:
    """The way through the proxy to ``upstream``; change ``plan`` at any time.

    Attributes:
        server: ``upstream`` at the proxy's own address.
        delay_s: how late a delayed answer is, and each piece of one that trickles.
        requests: all that came so far.
    """

    server: S3Server

    def __init__(self, upstream: S3Server) -> None:
        self.upstream = upstream
        self.plan: WirePlan = healthy
        self.delay_s = 1.0
        self.requests: list[Message] = []

    async def run(self, ready: Callable[[], None], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; call ``ready`` once ``server`` is there."""
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        port = listener.sockets[0].getsockname()[1]
        self.server = replace(self.upstream, endpoint=f"http://127.0.0.1:{port}")
        ready()
        await stop.wait()
        listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await _receive_request(reader, writer)
                self.requests.append(request)
                fault = self.plan(request)
                answer = await self._answer(request, fault)
                if answer is None:
                    writer.transport.abort()
                    return
                if fault is Wire.TRICKLE_ANSWER:
                    await self._trickle(answer, writer)
                    continue
                cut = fault is Wire.CUT_ANSWER
                writer.write(answer[: len(answer) // 2] if cut else answer)
                await writer.drain()
                if cut:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done with this connection
        finally:
            writer.close()

    async def _trickle(self, answer: bytes, writer: asyncio.StreamWriter) -> None:
        piece_bytes = -(-len(answer) // PIECES)
        for start in range(0, len(answer), piece_bytes):
            await SystemClock().sleep(self.delay_s)
            writer.write(answer[start : start + piece_bytes])
            await writer.drain()

    async def _answer(self, request: Message, fault: Wire | None) -> bytes | None:
        """Return what the client gets; None breaks the connection."""
        if fault in _INSTEAD:
            instead = _INSTEAD[fault]
            return instead.encoded() if instead else None
        if fault is Wire.IGNORE_CONDITION:
            kept = {n: v for n, v in request.headers.items() if n != "if-none-match"}
            request = replace(request, headers=kept)
        if fault is Wire.REPEAT_REQUEST:
            await self._forward(request)
        return await self._spoilt((await self._forward(request)).encoded(), fault)

    async def _spoilt(self, answer: bytes, fault: Wire | None) -> bytes | None:
        """Return what becomes of the server's own answer on its way back."""
        if fault is Wire.DROP_ANSWER:
            return None
        if fault is Wire.DELAY_ANSWER:
            await SystemClock().sleep(self.delay_s)
        if fault is Wire.REPEAT_ANSWER:
            return 2 * answer
        return _UNAVAILABLE.encoded() if fault is Wire.UNAVAILABLE_AFTER else answer

    async def _forward(self, request: Message) -> Message:
        address = urlsplit(self.upstream.endpoint)
        reader, writer = await asyncio.open_connection(
            address.hostname, address.port, limit=1 << 26
        )
        try:
            writer.write(request.encoded())
            await writer.drain()
            answer = await _receive(reader)
            if request.first.startswith("HEAD"):
                return answer
            return replace(answer, body=await _receive_body(reader, answer.headers))
        finally:
            writer.close()


@contextlib.contextmanager
def fault_proxy(upstream: S3Server) -> Iterator[FaultProxy]:
    """Run a proxy before ``upstream`` on a thread of its own."""
    proxy, ready, stop = FaultProxy(upstream), threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    def serve() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(proxy.run(ready.set, stop))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield proxy
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


async def _receive_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message:
    request = await _receive(reader)
    if request.headers.pop("expect", None):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return replace(request, body=await _receive_body(reader, request.headers))


async def _receive(reader: asyncio.StreamReader) -> Message:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first_line, *lines = head.rstrip("\r\n").split("\r\n")
    named = (line.partition(":") for line in lines)
    return Message(first_line, {name.lower(): value.strip() for name, _, value in named})


async def _receive_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(headers.get("content-length", 0)))
    body = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        chunk = await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        body += size + chunk
        if chunk == b"\r\n":
            return body
