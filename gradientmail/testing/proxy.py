"""A proxy before a real S3 server that loses answers, refuses, or makes it ignore conditions.

    with FaultProxy(server) as proxy:
        proxy.plan = first(2, creates, Wire.DROP_ANSWER)

reads: the first two creates are applied and their answers lost.
"""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from gradientmail.testing.servers import S3Server


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
    IGNORE_CONDITION = auto()
    """The server is not told ``If-None-Match``, as if it knew no such header."""


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


@dataclass
class FaultProxy:
    """A context manager; ``server`` is then the way through the proxy to ``upstream``."""

    upstream: S3Server
    plan: WirePlan = healthy
    requests: list[Message] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)

    @property
    def server(self) -> S3Server:
        """Return ``upstream`` at the proxy's own address."""
        return replace(self.upstream, endpoint=f"http://127.0.0.1:{self._port}")

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 26)
        self._listener = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self._port: int = self._listener.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._listener.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await _receive_request(reader, writer)
                self.requests.append(request)
                answer = await self._answer(request, self.plan(request))
                if answer is None:
                    writer.transport.abort()
                    return
                writer.write(answer.encoded())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is done with this connection
        finally:
            writer.close()

    async def _answer(self, request: Message, fault: Wire | None) -> Message | None:
        """Return what the client gets; None breaks the connection."""
        if fault in _INSTEAD:
            return _INSTEAD[fault]
        if fault is Wire.IGNORE_CONDITION:
            kept = {n: v for n, v in request.headers.items() if n != "if-none-match"}
            request = replace(request, headers=kept)
        answer = await self._forward(request)
        if fault is Wire.DROP_ANSWER:
            return None
        return _UNAVAILABLE if fault is Wire.UNAVAILABLE_AFTER else answer

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
