"""
A stand-in for MongoDB, by mongoeco. Writes its URL, and serves until it is killed.

With a URL as its argument it only asks whether that server answers.
"""

import asyncio
import sys

from mongoeco.wire import AsyncMongoEcoProxyServer
from pymongo import MongoClient


async def serve():
    """Serve on a free port of loopback."""
    async with AsyncMongoEcoProxyServer() as server:
        sys.stdout.write(server.address.uri)
        sys.stdout.flush()
        await asyncio.Event().wait()


def ask(url):
    """Raise an error if the server does not answer."""
    with MongoClient(url, timeoutMS=1000) as client:
        client.admin.command("ping")


if sys.argv[1:]:
    ask(*sys.argv[1:])
else:
    asyncio.run(serve())
