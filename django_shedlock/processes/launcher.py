"""
Runs a command, and ends it if the process that asked for it dies.

``python launcher.py SOCKET SIZE`` reads SIZE bytes from the socket, a marshalled tuple:
the command, the environment variables to change (``None`` removes one), the grace
between SIGTERM and SIGKILL in seconds, and whether there is a terminal. Each byte after
that is the number of a signal to send, or ``END_ORDER``. At the end of the socket the
process that asked has died, so the command has to end as well.

The launcher is run by its path. It imports nothing of the package, and nothing that
loads slowly. Its exit status is the command's, or that of a shell if a signal ended the
command, or if the command could not be started.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import select
import signal
import sys
import time
from contextlib import suppress
from enum import IntEnum

END_ORDER = 0
"""Ends the command and all that it has started; sent in place of a signal's number."""


class ShellStatus(IntEnum):
    """The exit statuses of a shell for a command that it could not run."""

    CANNOT_START = 126
    NOT_FOUND = 127


def status_of_signal(number: int) -> int:
    """Return the exit status of a shell for a command that this signal ended."""
    return 128 + number


class Guardian:
    """
    Sends a running command its signals, and ends it with all that it has started.

    On Linux it ends every descendant of this process in this session, whatever its
    process group. On other systems, or without /proc, it ends the command's process
    group, and in a terminal the command alone. Outside a terminal the command leads a
    group of its own. In a terminal it shares the group of the process that asked, which
    may have other members, such as the rest of a pipe.

    ``command`` is the program's name for messages, ``pid`` its process. ``grace`` is
    the time between SIGTERM and SIGKILL in seconds.
    """

    def __init__(self, command: bytes, pid: int, *, grace: float, has_terminal: bool):
        self._command = command
        self._pid = pid
        self._grace = grace
        self._has_terminal = has_terminal
        self._status: int | None = None
        self._killing_at: float | None = None

    def watch(self, orders: int, ends: int) -> int:
        """
        Carry out orders until the command has ended; return its status as a shell does.

        ``orders`` is the socket of the process that asked. ``ends`` becomes readable
        when a child ends. After ``end()``, wait for all that the command has started.
        """
        sources = select.poll()  # select() refuses descriptors above 1023
        sources.register(ends, select.POLLIN)
        sources.register(orders, select.POLLIN)
        while self._status is None or (self._killing_at is not None and self.send(0)):
            # While it ends, look every 50 ms for what the command has left behind.
            pause = None if self._killing_at is None else 50
            ready = [source for source, _ in sources.poll(pause)]
            if ends in ready:
                os.read(ends, 4096)
            # On Linux, orphans of the command are children of this process.
            with suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                    if ended[0] == self._pid:
                        status = os.waitstatus_to_exitcode(ended[1])
                        is_killed = status < 0
                        self._status = (
                            status_of_signal(-status) if is_killed else status
                        )
            if orders in ready:
                received = _received(orders, 4096)
                if not received:
                    sources.unregister(orders)
                for number in received or [END_ORDER]:
                    if number == END_ORDER:
                        self.end()
                    elif not self._was_sent_to_all(number):
                        self.send(number)
            if self._killing_at is not None and time.monotonic() >= self._killing_at:
                self.send(signal.SIGKILL)
        return self._status

    def end(self) -> None:
        """Send SIGTERM once; ``watch()`` sends SIGKILL after the grace."""
        if self._killing_at is None:
            self._killing_at = time.monotonic() + self._grace
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)  # a stopped process can't tidy up

    def send(self, number: int) -> bool:
        """Send a signal; return whether there is a process that can get it."""
        is_sent, refusal = False, None
        for target in self._targets():
            try:
                os.kill(target, number)
                is_sent = True
            except ProcessLookupError:
                pass
            except PermissionError as error:  # it runs as another user, as with sudo
                refusal = error
        # Before one of these signals was refused, SIGTERM was refused and reported.
        if refusal and number not in {0, signal.SIGCONT, signal.SIGKILL}:
            _print(
                f"Command {os.fsdecode(self._command)!r}, process {self._pid}, can't "
                f"be sent {signal.Signals(number).name}, so it goes on: "
                f"{refusal.strerror}"
            )
        return is_sent

    def _targets(self) -> set[int]:
        own_group = None if self._has_terminal else self._pid
        with suppress(OSError):
            found = _descendants().items()
            # Signal the group as a whole: its processes may start others meanwhile.
            return {-group if group == own_group else pid for pid, group in found}
        if own_group is not None:
            return {-own_group}
        return {self._pid} if self._status is None else set()

    def _was_sent_to_all(self, number: int) -> bool:
        # For Ctrl-C and the like a terminal signals the whole group: the command, and
        # this process, where the signal is blocked. A process may have signalled only
        # the wrapper and this process, as `killall` does.
        if not self._has_terminal or number not in signal.sigpending():
            return False
        if sys.platform != "linux":  # other systems do not say who sent it
            signal.sigwait([number])
            return True
        sent = signal.sigtimedwait([number], 0)
        by_kernel = 0x80  # SI_KERNEL: the terminal sent the signal, and no process
        return sent is not None and sent.si_code == by_kernel


def main(orders: int, size: int) -> int:
    """
    Run a command; return its exit status.

    ``orders`` is the socket of the process that asked. ``size`` is the number of bytes
    of the command on it.
    """
    text = b""
    while len(text) < size:
        if not (part := _received(orders, size - len(text))):
            return status_of_signal(signal.SIGTERM)  # the process that asked has died
        text += part
    command, variables, grace, has_terminal = marshal.loads(text)  # noqa: S302
    os.set_inheritable(orders, False)
    ends, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _note_end)
    if sys.platform == "linux":
        set_child_subreaper = 36  # PR_SET_CHILD_SUBREAPER
        ctypes.CDLL(None).prctl(set_child_subreaper, 1)
    # From here on, a signal to the whole group is for the command alone. Until here it
    # must end this process, because there is no command to receive it.
    blocked = signal.valid_signals() - {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    pid = os.fork()
    if not pid:
        if not has_terminal:
            os.setpgid(0, 0)
        try:
            # If the launcher is killed, the process that asked kills the command. So it
            # has to know the process or the group before anything runs.
            os.write(orders, b"%d" % (os.getpid() if has_terminal else -os.getpid()))
        except OSError:  # the process that asked has died
            os._exit(status_of_signal(signal.SIGTERM))
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os._exit(become(command, variables))
    if not has_terminal:
        with suppress(OSError):  # the child was faster
            os.setpgid(pid, pid)
    guardian = Guardian(command[0], pid, grace=grace, has_terminal=has_terminal)
    try:
        return guardian.watch(orders, ends)
    except BaseException:  # nobody else would end the command
        guardian.send(signal.SIGKILL)
        raise


def become(command: list[bytes], variables: dict[bytes, bytes | None]) -> int:
    """
    Replace this process by the command; return an exit status if that fails.

    ``variables`` are the environment variables to set, or to remove for ``None``.
    """
    for name, value in variables.items():
        if value is None:
            os.unsetenv(name)
        else:
            os.putenv(name, value)
    if any(b"\0" in argument for argument in command):  # C would end it there
        _print(f"{os.fsdecode(command[0])}: an argument has a null byte")
        return ShellStatus.CANNOT_START
    # os.execvp() does not run a script without a "#!" line by the shell; this one does.
    arguments = (ctypes.c_char_p * (len(command) + 1))(*command)
    ctypes.CDLL(None, use_errno=True).execvp(command[0], arguments)
    number = ctypes.get_errno()
    is_missing = number in {errno.ENOENT, errno.ENOTDIR}
    reason = "not found" if is_missing else os.strerror(number)
    _print(f"{os.fsdecode(command[0])}: {reason}")
    return ShellStatus.NOT_FOUND if is_missing else ShellStatus.CANNOT_START


def _descendants(folder: str = "/proc") -> dict[int, int]:
    """
    Return this process's descendants in its session, each with its group.

    Zombies are left out, because their parents may never wait for them. Raises
    ``OSError`` if the system does not show the descendants.
    """
    # Other systems have no subreapers. In a new PID namespace, /proc may still show the
    # processes of the outer one.
    shown = os.readlink(f"{folder}/self")  # noqa: PTH115
    if sys.platform != "linux" or shown != str(os.getpid()):
        raise OSError
    children: dict[int, list[int]] = {}
    groups = {}
    for name in filter(str.isdecimal, os.listdir(folder)):  # noqa: PTH208
        # The process may have ended, or it is another user's and hidden.
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            with open(f"{folder}/{name}/stat", "rb") as file:  # noqa: PTH123
                # See proc_pid_stat(5). The name before ")" may contain any byte.
                state, *ids = file.read().rpartition(b")")[2].split()[:4]
            parent, group, session = map(int, ids)
            children.setdefault(parent, []).append(int(name))
            if session == os.getsid(0) and state not in {b"Z", b"X"}:
                groups[int(name)] = group
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return {pid: groups[pid] for pid in found[1:] if pid in groups}


def _note_end(number: int, frame: object) -> None:
    """Handle SIGCHLD, whose arrival the wakeup descriptor reports."""


def _received(orders: int, size: int) -> bytes:
    with suppress(ConnectionResetError):
        return os.read(orders, size)
    return b""


def _print(message: str) -> None:
    os.write(2, os.fsencode(f"{message}\n"))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
