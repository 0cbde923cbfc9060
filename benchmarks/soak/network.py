"""A proxy between workers and their server that loses, delays and cuts, by a seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.soak.journal import Journal
from benchmarks.soak.watch import end_with_parent
from tests.support.processes import Parent

KINDS = {
    "swallowed request": 3,
    "swallowed reply": 4,
    "cut request": 2,
    "cut reply": 3,
    "delay": 8,
}
"""What becomes of a connection at last, and how often; after a delay it goes on."""

MESSAGES = 300
"""So many from the client come before a fault, on the average."""

LONGEST_DELAY = 3.0
SILENCES = (20, 80)
"""Seconds between two silences, in which nothing passes on any connection."""

LONGEST_SILENCE = 8.0
LINGER = 2.0
"""Seconds after which the server learns at the latest that a client is gone."""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Network:
    """
    What the proxy has to know. A lower ``pace`` brings more faults.

    ``addresses`` are the server's socket, or the port of each member. What is swallowed
    stays so for ever, or until ``longest_swallow`` seconds are over.
    """

    addresses: Sequence[str | int]
    journal: Path
    seed: int = 1
    pace: float = 1.0
    longest_swallow: float | None = None


def run(parent: Parent, network: Network) -> None:
    """Serve until the process is ended; say the ports first."""
    end_with_parent()
    asyncio.run(Proxy(network).serve(parent.say))


class Proxy:
    """Listens on a port for each member, and connects each client to that member."""

    def __init__(self, network: Network):
        self._network = network
        self._journal = Journal(network.journal)
        self._accepted = 0
        self._passes = asyncio.Event()

    async def serve(self, say: Callable[[list[int]], None]) -> None:
        self._passes.set()
        ports = []
        async with AsyncExitStack() as listening:
            for address in self._network.addresses:
                accept = partial(self._accept, address)
                server = await asyncio.start_server(accept, "127.0.0.1", 0)
                await listening.enter_async_context(server)
                ports.append(server.sockets[0].getsockname()[1])
            say(ports)
            await self._fall_silent()

    async def _fall_silent(self) -> None:
        chance, pace = random.Random(self._network.seed), self._network.pace
        while True:
            await asyncio.sleep(chance.uniform(*SILENCES) * pace)
            self._journal.write("fault", kind="network: silence")
            self._passes.clear()
            await asyncio.sleep(chance.uniform(0, LONGEST_SILENCE) * pace)
            self._passes.set()

    async def _accept(self, address: str | int, *client: *Stream) -> None:
        self._accepted += 1
        chance = random.Random(f"{self._network.seed} {self._accepted}")
        self._journal.write("fault", kind="connections")
        try:
            server = await connect(address)
        except OSError:
            client[1].transport.abort()
            return
        await Connection(client, server, self._network, chance, self._harm).last()

    async def _harm(self, kind: str | None) -> None:
        if kind is not None:
            self._journal.write("fault", kind=f"network: {kind}")
        await self._passes.wait()


async def connect(address: str | int) -> Stream:
    """Connect to the server; raises ``OSError`` if it is away."""
    if isinstance(address, str):
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection("127.0.0.1", address)


class Connection:
    """One client's connection, until a side closes it or its fault comes."""

    def __init__(
        self,
        client: Stream,
        server: Stream,
        network: Network,
        chance: random.Random,
        harm: Callable[[str | None], Awaitable[None]],
    ):
        self._from_client, self._to_client = client
        self._from_server, self._to_server = server
        self._chance = chance
        self._mean = 1 / max(MESSAGES * network.pace, 10)
        self._harm = harm
        self._longest_swallow = network.longest_swallow
        self._is_mute = False
        self._choose()

    def _choose(self) -> None:
        [self._kind] = self._chance.choices([*KINDS], [*KINDS.values()])
        self._left = round(self._chance.expovariate(self._mean))

    async def last(self) -> None:
        """Pass on both ways, and close both ends after it."""
        back = asyncio.create_task(self._pass_back())
        try:
            with suppress(OSError):
                await self._pass_on()
        finally:
            self._to_client.transport.abort()
            if self._is_mute:
                # As with a host that is gone: its server learns of it later.
                await asyncio.sleep(self._chance.uniform(0, LINGER))
            self._to_server.transport.abort()
            back.cancel()

    async def _pass_on(self) -> None:
        while data := await self._from_client.read(65536):
            self._left -= 1
            if self._left >= 0:
                await self._harm(None)
            elif not await self._survives(data):
                return
            self._to_server.write(data)
            await self._to_server.drain()

    async def _survives(self, data: bytes) -> bool:
        kind = self._kind
        await self._harm(kind)
        if kind == "delay":
            await asyncio.sleep(self._chance.uniform(0, LONGEST_DELAY))
            self._choose()
            return True
        how, what = kind.split()
        self._is_mute = True
        if what == "reply":
            self._to_server.write(data)
            await self._to_server.drain()
        if how == "cut":
            await asyncio.sleep(self._chance.uniform(0, 0.3))
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(self._longest_swallow):
                while await self._from_client.read(65536):  # until the client gives up
                    pass
        return False

    async def _pass_back(self) -> None:
        with suppress(OSError):
            while data := await self._from_server.read(65536):
                await self._harm(None)
                if not self._is_mute:
                    self._to_client.write(data)
                    await self._to_client.drain()
        if not self._is_mute:
            self._to_client.close()
