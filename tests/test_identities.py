"""The identity of an acquisition."""

from __future__ import annotations

import os
import socket

import pytest

from django_shedlock.identities import new_identity, split_identity


def test_identity_is_host_process_and_random() -> None:
    """An operator sees where a lock is held; chance tells acquisitions apart."""
    host, pid, chance = new_identity().split(":")
    assert (host, pid) == (socket.gethostname(), str(os.getpid()))
    assert len(chance) == 16


def test_each_acquisition_has_its_own_identity() -> None:
    """Two acquisitions of one thread of one host are not the same (W1, W2)."""
    assert len({new_identity() for _ in range(100)}) == 100


def test_identity_of_a_long_host_name_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The column has 255 characters, and Kubernetes long names."""
    monkeypatch.setattr(socket, "gethostname", lambda: "h" * 253)
    assert len(new_identity()) <= 255


@pytest.mark.parametrize(
    ("locked_by", "host", "pid"),
    [
        ("web-1:7:a", "web-1", 7),
        ("fe80::1:7:a", "fe80::1", 7),
        ("java-host", "java-host", None),
        ("a:b", "a:b", None),
        ("a:b:c", "a:b:c", None),
    ],
)
def test_holder_has_a_host_and_a_process(
    locked_by: str, host: str, pid: int | None
) -> None:
    """A run has both apart; who wrote another form is taken for a host."""
    assert split_identity(locked_by) == (host, pid)
