"""The soak's network fails as it should."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.soak.journal import read
from tests.support.soak.proxy import KINDS, Network, Proxy


class Echo:
    """A server that answers in capitals, behind the proxy."""

    def __init__(self) -> None:
        self.heard = b""
        self.has_ended = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: Any) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(100):
                self.heard += data
                writer.write(data.upper())
        writer.close()
        self.has_ended.set()


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[Echo, Any, Any]]:
    """Return the server, and both ends of a connection to it by the proxy."""
    echo, ports = Echo(), asyncio.get_running_loop().create_future()
    path = str(folder / "socket")
    proxy = Proxy(Network([path], folder / "journal"))
    async with await asyncio.start_unix_server(echo.answer, path):
        serving = asyncio.create_task(proxy.serve(ports.set_result))
        reader, writer = await asyncio.open_connection("127.0.0.1", *await ports)
        yield echo, reader, writer
        writer.close()
        await echo.has_ended.wait()
        serving.cancel()


async def talk(folder: Path, *, is_answered: bool) -> tuple[bytes, bytes]:
    """Send two messages; return what the server heard, and its replies."""
    async with connected(folder) as (echo, reader, writer):
        writer.write(b"one ")
        replies = await reader.read(100)
        writer.write(b"two ")
        if is_answered:
            replies += await reader.read(100)
        writer.write_eof()
        with suppress(ConnectionError):
            replies += await reader.read()
        await echo.has_ended.wait()
        return echo.heard, replies


HEARD = {
    "swallowed request": (b"one ", b"ONE "),
    "swallowed reply": (b"one two ", b"ONE "),
    "cut request": (b"one ", b"ONE "),
    "cut reply": (b"one two ", b"ONE "),
    "delay": (b"one two ", b"ONE TWO "),
}


@pytest.mark.parametrize("kind", KINDS)
def test_fault_of_a_connection(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is lost, or only its reply; a delay loses nothing."""
    monkeypatch.setattr(random.Random, "choices", lambda *args: [kind])
    monkeypatch.setattr(random.Random, "expovariate", lambda *args: 1)
    monkeypatch.setattr(random.Random, "uniform", lambda self, low, high: low)
    talking = talk(tmp_path, is_answered=kind == "delay")
    assert asyncio.run(talking) == HEARD[kind]
    kinds = [event["kind"] for event in read(tmp_path / "journal")]
    assert kinds[:2] == ["connections", f"network: {kind}"]
