"""What a store does that is full, refuses a user, or is not where it should be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import pytest

from django_shedlock.exceptions import LockProviderError
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import LockState
from django_shedlock.providers.base import LockProvider
from tests.support.locks import configure, status_of, take, try_from
from tests.support.ports import free_port


class StoreStates:
    """
    One test for each state of a store and each thing to do in it.

    A subclass names the store, and says how to bring it into each state.
    """

    store: ClassVar[str]
    """How messages name the store."""
    full_fix: ClassVar[str]
    """What the error of a full store says to do; a regular expression."""
    forbidden_fix: ClassVar[str]
    """What the error of a refused user says to do; a regular expression."""
    releases_when_full: ClassVar[bool] = True
    """Does a release work on a full store? Else its error says what to do."""

    @pytest.fixture
    def locks(self) -> Iterator[LockProvider]:
        """Return a provider with no locks, on a server that ``full`` may fill."""
        raise NotImplementedError

    def full(self, locks: LockProvider) -> AbstractContextManager[None]:
        """Let the store have no room while the body runs."""
        raise NotImplementedError

    def forbidden(self, locks: LockProvider) -> AbstractContextManager[LockProvider]:
        """Yield a provider of the same locks whose user may only read them."""
        raise NotImplementedError

    def at(self, port: int, *, tls: bool) -> LockProvider:
        """Return a provider whose server is at this port of loopback."""
        raise NotImplementedError

    @contextmanager
    def plain_port(self, locks: LockProvider) -> Iterator[int]:
        """Yield the port of a server of this store that speaks no TLS."""
        raise NotImplementedError

    def test_full_store_gives_no_lock(self, locks: LockProvider) -> None:
        """The error says what is wrong, and what to do; nobody "holds" the lock."""
        with (
            self.full(locks),
            pytest.raises(LockProviderError, match=rf"'new'.*{self.store}") as raised,
        ):
            try_from(locks, configure("new"))
        raised.match(self.full_fix)

    def test_full_store_releases(self, locks: LockProvider) -> None:
        """A lock that is held is released, or the error says what to do."""
        held = take(configure(), locks)
        with self.full(locks):
            if self.releases_when_full:
                assert locks.release(held)
            else:
                with pytest.raises(LockProviderError, match=self.full_fix):
                    locks.release(held)
                held.was_release_tried = True
        if not self.releases_when_full:
            assert locks.release(held)
        assert status_of(locks).state is LockState.FREE
        assert isinstance(try_from(locks, configure()), Lock)

    def test_forbidden_acquisition(self, locks: LockProvider) -> None:
        """The error names the right that is missing."""
        take(configure("known"), locks).release()
        with self.forbidden(locks) as refused:
            for name in ("known", "new"):
                with pytest.raises(
                    LockProviderError, match=rf"'{name}'.*{self.store}"
                ) as raised:
                    try_from(refused, configure(name))
                raised.match(self.forbidden_fix)
                assert not raised.value.is_uncertain

    def test_forbidden_release(self, locks: LockProvider) -> None:
        """The lock stays held, and the error names the right that is missing."""
        held = take(configure(), locks)
        with self.forbidden(locks) as refused:
            with pytest.raises(LockProviderError, match="'job'") as raised:
                refused.release(held)
            raised.match(self.forbidden_fix)
        assert status_of(locks).state is LockState.RUNNING

    def test_check_of_a_wrong_address(self) -> None:
        """The warning names the store, why it is not reached, and the option."""
        provider = self.at(free_port(), tls=False)
        [found] = provider.check_store([])
        assert found.id == "shedlock.W005"
        assert self.store in found.msg
        assert "refused" in found.msg
        assert provider.address in str(found.hint)  # type: ignore[attr-defined]

    def test_check_of_tls_to_a_plain_port(self, locks: LockProvider) -> None:
        """The warning says that the server may speak no TLS."""
        with self.plain_port(locks) as port:
            [found] = self.at(port, tls=True).check_store([])
        assert found.id == "shedlock.W005"
        assert self.store in found.msg
        assert "may speak no TLS" in str(found.hint)

    def test_advice_on_a_handshake_that_is_reset(self) -> None:
        """A server without TLS may also reset the connection."""
        provider: Any = self.at(1, tls=True)
        error = LockProviderError(
            "ConnectionResetError(104, 'Connection reset by peer')"
        )
        assert "may speak no TLS" in provider.advice(error)

    def test_advice_on_a_certificate(self) -> None:
        """Nobody is told to do without TLS because a certificate is wrong."""
        provider: Any = self.at(1, tls=True)
        error = LockProviderError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed")
        assert "may speak no TLS" not in provider.advice(error)
