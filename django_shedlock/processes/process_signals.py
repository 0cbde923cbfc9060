"""The signals that a process receives while it waits for its children."""

import os
import select
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType


class ProcessSignals:
    """
    Notes the signals that this process receives, for a loop that waits for them.

    Each of them ends a ``wait()``, even one that comes just before, or that the system
    gives to another thread. So does the end of a child. ``numbers`` are the signals to
    note. An ignored one stays ignored, as nohup wants it.
    """

    def __init__(self, numbers: Sequence[signal.Signals]):
        self.received: list[int] = []
        self._numbers = numbers
        self._has_alarm = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Note the signals while the body runs, unless it runs in another thread."""
        self._woken, waker = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(waker, False)
        is_main = threading.current_thread() is threading.main_thread()
        numbers = (*self._numbers, signal.SIGALRM, signal.SIGCHLD) if is_main else ()
        before = {number: signal.getsignal(number) for number in numbers}
        if is_main:
            former_waker = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
            # An ignored SIGCHLD would hide a child's status.
            signal.signal(signal.SIGCHLD, ignore)
            for number in self._numbers:
                if before[number] is not signal.SIG_IGN:
                    signal.signal(number, self.note)
        try:
            yield
        finally:
            if self._has_alarm:
                signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)
            if is_main:
                signal.set_wakeup_fd(former_waker)
            os.close(self._woken)
            os.close(waker)

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        self.received.append(number)

    def set_alarm(self, seconds: float, interval: float) -> None:
        """Receive SIGALRM after so many seconds, and then at intervals."""
        self._has_alarm = True
        signal.signal(signal.SIGALRM, self.note)
        signal.setitimer(signal.ITIMER_REAL, seconds, interval)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until something happens; it may also end sooner."""
        poll = select.poll()  # select() refuses descriptors above 1023
        poll.register(self._woken, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
        with suppress(BlockingIOError):
            os.read(self._woken, 4096)


def ignore(number: int, frame: FrameType | None) -> None:
    """Handle a signal, and do nothing. What this process starts does not ignore it."""
