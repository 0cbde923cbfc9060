"""What is sent to etcd's JSON gateway, and what it answers."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Known:
    """A key as etcd has it; ``revision`` is 0 if there is none."""

    value: bytes = b""
    revision: int = 0
    lease: int = 0

    @classmethod
    def parse(cls, found: dict[str, Any]) -> Known:
        """Return the key of an answer to ``read()``."""
        for pair in found.get("kvs", ()):
            return cls._of(pair)
        return cls()

    @classmethod
    def by_name(cls, found: dict[str, Any], prefix: bytes) -> dict[str, Known]:
        """Return the keys of an answer to ``read_all()``, without the prefix."""
        return {
            b64decode(pair["key"])[len(prefix) :].decode(): cls._of(pair)
            for pair in found.get("kvs", ())
        }

    @classmethod
    def _of(cls, pair: dict[str, Any]) -> Known:
        return cls(
            b64decode(pair.get("value", "")),
            int(pair["mod_revision"]),
            int(pair.get("lease", 0)),
        )


def text(key: bytes) -> str:
    """Return bytes as the gateway wants them."""
    return b64encode(key).decode()


def read(key: bytes) -> dict[str, Any]:
    """Return the step that reads a key."""
    return {"request_range": {"key": text(key)}}


def read_all(prefix: bytes) -> dict[str, Any]:
    """Return the step that reads all keys that begin so, in their order."""
    # All keys up to the prefix with its last byte one higher begin with it.
    end = prefix[:-1] + bytes([prefix[-1] + 1])
    return {"request_range": {"key": text(prefix), "range_end": text(end)}}


def put(key: bytes, value: bytes, lease: int = 0) -> dict[str, Any]:
    """Return the step that writes a key, which ends with the lease, if one is given."""
    return {
        "request_put": {"key": text(key), "value": text(value), "lease": str(lease)}
    }


def delete(key: bytes) -> dict[str, Any]:
    """Return the step that deletes a key."""
    return {"request_delete_range": {"key": text(key)}}


def unchanged(key: bytes, revision: int) -> dict[str, Any]:
    """Return the condition that a key is as it was at this revision."""
    return {
        "key": text(key),
        "target": "MOD",
        "result": "EQUAL",
        "mod_revision": str(revision),
    }


def answers(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each reading step of a transaction found."""
    found = result.get("responses", ())
    return [each["response_range"] for each in found if "response_range" in each]
