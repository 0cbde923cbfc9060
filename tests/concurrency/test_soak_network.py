"""The proxy of the soak loses, cuts and delays what its faults say."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak import network
from benchmarks.soak.journal import read
from benchmarks.soak.network import Network, Proxy
from tests.support.waiting import PATIENCE

SECONDS = 0.2
"""A delay and a silence take so long, and a connection may swallow for so long."""
SILENT_SECONDS = 0.5
"""A cut takes 0.3 seconds, so nothing comes any more after this time."""


class CapitalsServer:
    """Answers each message in capitals, and keeps what it has received."""

    def __init__(self) -> None:
        self.received = b""
        self.is_left = asyncio.Event()

    async def answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while data := await reader.read(100):
                self.received += data
                writer.write(data.upper())
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.is_left.set()


@dataclass
class Client:
    """One end of a connection through the proxy; ``server`` is at the other end."""

    server: CapitalsServer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, message: bytes, patience: float = PATIENCE) -> bytes | None:
        """Return the reply, nothing if the connection ends, ``None`` if it hangs."""
        self.writer.write(message)
        try:
            return await asyncio.wait_for(self.reader.read(100), patience)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""

    async def leave(self) -> bytes:
        """Close the connection; return all that the server has received."""
        self.writer.close()
        await self.server.is_left.wait()
        return self.server.received


@asynccontextmanager
async def connected(journal: Path, **options: Any) -> AsyncIterator[Client]:
    """Return a client of a server that it reaches through the proxy."""
    server, ports = CapitalsServer(), asyncio.get_running_loop().create_future()
    async with await asyncio.start_server(server.answer, "127.0.0.1", 0) as listening:
        address = listening.sockets[0].getsockname()[1]
        proxy = Proxy(Network([address], journal, **options))
        serving = asyncio.create_task(proxy.serve(ports.set_result))
        [port] = await ports
        client = Client(server, *await asyncio.open_connection("127.0.0.1", port))
        try:
            yield client
        finally:
            client.writer.close()
            serving.cancel()


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a fault hit the second message, and let all times be the longest."""
    monkeypatch.setattr(random.Random, "expovariate", lambda self, mean: 1)
    monkeypatch.setattr(random.Random, "uniform", lambda self, low, high: high)
    monkeypatch.setattr(network, "LONGEST_DELAY", SECONDS)
    monkeypatch.setattr(network, "LONGEST_SILENCE", SECONDS)
    monkeypatch.setattr(network, "LINGER", 0.0)
    return tmp_path / "journal"


OUTCOMES = {
    "swallowed request": (None, b"one "),
    "swallowed reply": (None, b"one two "),
    "cut request": (b"", b"one "),
    "cut reply": (b"", b"one two "),
    "delay": (b"TWO ", b"one two "),
}
"""What becomes of the second message: its reply, and what the server has received."""


@pytest.mark.parametrize("kind", network.KINDS)
def test_fault_of_a_connection(
    kind: str, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault loses a request or only its reply, and a delay loses nothing."""
    monkeypatch.setattr(network, "KINDS", {kind: 1})

    async def outcome() -> tuple[bytes | None, bytes]:
        async with connected(journal) as client:
            assert await client.ask(b"one ") == b"ONE "
            return await client.ask(b"two ", patience), await client.leave()

    patience = SILENT_SECONDS if OUTCOMES[kind][0] is None else PATIENCE
    assert asyncio.run(outcome()) == OUTCOMES[kind]
    kinds = [event["kind"] for event in read(journal)]
    assert kinds == ["connections", f"network: {kind}"]


def test_swallowing_has_an_end(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that swallows is closed after the longest time for that."""
    monkeypatch.setattr(network, "KINDS", {"swallowed request": 1})

    async def reply() -> bytes | None:
        async with connected(journal, longest_swallow=SECONDS) as client:
            await client.ask(b"one ")
            reply = await client.ask(b"two ")
            assert await client.leave() == b"one "
            return reply

    assert asyncio.run(reply()) == b""


def test_delay_takes_its_time(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delayed message arrives after the delay."""
    monkeypatch.setattr(network, "KINDS", {"delay": 1})

    async def seconds() -> float:
        async with connected(journal) as client:
            await client.ask(b"one ")
            begin = time.monotonic()
            await client.ask(b"two ")
            seconds = time.monotonic() - begin
            await client.leave()
            return seconds

    assert asyncio.run(seconds()) > SECONDS * 0.9


def test_silence(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a silence nothing passes, and nothing is lost."""
    monkeypatch.setattr(network, "SILENCES", (0, 0))

    async def seconds() -> float:
        async with connected(journal) as client:
            begin = time.monotonic()
            assert await client.ask(b"one ") == b"ONE "
            seconds = time.monotonic() - begin
            await client.leave()
            return seconds

    # The request waits for the end of one silence, and the reply for that of the next.
    assert asyncio.run(seconds()) > SECONDS * 0.9
    assert "network: silence" in [event["kind"] for event in read(journal)]


def test_server_that_is_away(journal: Path) -> None:
    """The proxy closes the connection of a client whose server it can't reach."""

    async def reply() -> bytes:
        ports = asyncio.get_running_loop().create_future()
        nowhere = str(journal.with_name("nowhere"))
        proxy = Proxy(Network([nowhere], journal))
        serving = asyncio.create_task(proxy.serve(ports.set_result))
        reader, writer = await asyncio.open_connection("127.0.0.1", *await ports)
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        except ConnectionError:
            return b""
        finally:
            writer.close()
            serving.cancel()

    assert asyncio.run(reply()) == b""
