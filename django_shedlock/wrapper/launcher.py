"""
Runs a command, and outlives the process that asked for it.

``python launcher.py SOCKET SIZE`` first reads so many bytes from the socket, a
marshalled ``order()``. Then each byte is a signal to send. At the end of the socket the
process that asked has died, so the command has to end, too.

It is run by its path, and imports nothing of the package, nor what loads slowly. Its
exit status is the command's; a shell's if a signal ended the command, or if it could
not be started.
"""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import sys
import time
from contextlib import suppress

END = 0
"""Instead of a signal's number: end the command, with all that it has started."""
CANNOT_START = 126
NOT_FOUND = 127
SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a program."""
ABANDONED = SIGNALLED + signal.SIGTERM
"""The process that asked died before the command was started."""
CHANGED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ")
FOLLOWING_TERM = {signal.SIGCONT, signal.SIGKILL}
"""That these can't be sent either is no news."""
PAUSE = 50
"""Milliseconds between two looks for processes that an ended command left behind."""
PR_SET_CHILD_SUBREAPER = 36
PROC = "/proc"
SI_KERNEL = 0x80
"""The code of a signal that no process has sent."""
SHELL = b"/bin/sh"
NOT_THERE = {errno.ENOENT, errno.ENOTDIR}
LONGEST_READ = 4096


class Guardian:
    """
    Sends a running command its signals, and ends it with all that it has started.

    That are those in this session that descend from this process, whatever groups they
    make. Without a terminal the command leads a group of its own, too. In a terminal it
    shares the group of the process that asked, and so do others, as the rest of a pipe.
    Without /proc a signal goes to the command's group, in a terminal to the command.
    """

    def __init__(self, command: bytes, pid: int, *, grace: float, has_terminal: bool):
        self._command = command
        self._pid = pid
        self._grace = grace
        self._has_terminal = has_terminal
        self._started = pid if has_terminal else -pid
        self._status: int | None = None
        self._killing_at: float | None = None

    def kill(self) -> None:
        """Kill the command at once, and what it has started if that can be seen."""
        with suppress(Exception):
            self._send(signal.SIGKILL)
        with suppress(OSError):
            os.kill(self._started, signal.SIGKILL)

    def watch(self, orders: int, ends: int) -> int:
        """Obey until the command has ended; return its exit status as a shell does."""
        sources = select.poll()  # select() refuses descriptors above 1023
        sources.register(ends, select.POLLIN)
        sources.register(orders, select.POLLIN)
        while self._status is None or self._is_anybody_left():
            pause = None if self._killing_at is None else PAUSE
            ready = [source for source, _ in sources.poll(pause)]
            if ends in ready:
                os.read(ends, LONGEST_READ)
            self._reap()
            if orders in ready and not self._obey(_received(orders)):
                sources.unregister(orders)
            if self._killing_at is not None and time.monotonic() >= self._killing_at:
                self._send(signal.SIGKILL)
        return self._status

    def _obey(self, orders: bytes) -> bool:
        for number in orders or [END]:
            if number == END:
                self._end()
            elif not self._was_sent_to_all(number):
                self._send(number)
        return bool(orders)

    def _was_sent_to_all(self, number: int) -> bool:
        # What a terminal sends, as for Ctrl-C, goes to the whole group, and so to this
        # process, where it is blocked. Then the command has got it already. What a
        # process sends may be for the wrapper and this one alone, as by `killall`.
        if not self._has_terminal or number not in signal.sigpending():
            return False
        if sys.platform != "linux":  # which does not tell who sent it
            signal.sigwait([number])
            return True
        sent = signal.sigtimedwait([number], 0)
        return sent is not None and sent.si_code == SI_KERNEL

    def _end(self) -> None:
        if self._killing_at is None:
            self._killing_at = time.monotonic() + self._grace
            self._send(signal.SIGTERM)
            self._send(signal.SIGCONT)  # a stopped process could not tidy up

    def _send(self, number: int) -> None:
        refusal = None
        for target in self._targets():
            try:
                os.kill(target, number)
            except ProcessLookupError:
                pass
            except PermissionError as error:  # it runs as another user, as sudo does
                refusal = error
        if refusal is not None and number not in FOLLOWING_TERM:
            self._complain(number, refusal)

    def _complain(self, number: int, error: OSError) -> None:
        name = signal.Signals(number).name
        _print(
            f"Command {os.fsdecode(self._command)!r}, process {self._pid}, can't be "
            f"sent {name}, so it goes on: {error.strerror}"
        )

    def _reap(self) -> None:
        # On Linux it inherits what the command's children leave behind.
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == self._pid:
                    status = os.waitstatus_to_exitcode(ended[1])
                    self._status = status if status >= 0 else SIGNALLED - status

    def _is_anybody_left(self) -> bool:
        return self._killing_at is not None and any(map(_is_ours, self._members()))

    def _targets(self) -> list[int]:
        members = self._members()
        if self._has_terminal:
            return list(members)
        # The group at once, since its processes may start others meanwhile.
        others = [pid for pid, group in members.items() if group != self._pid]
        return [-self._pid, *others]

    def _members(self) -> dict[int, int]:
        # Each with its group; no zombies, as their parents may never wait for them.
        if _shows_processes():
            return _descendants()
        if self._has_terminal and self._status is not None:
            return {}
        return {self._started: self._pid}


def order(
    command: list[bytes],
    environment: dict[bytes, bytes],
    *,
    grace: float,
    has_terminal: bool,
) -> bytes:
    """Return what this program reads first."""
    return marshal.dumps((command, environment, grace, has_terminal))


def main(orders: int, size: int) -> int:
    """Run a command; return its exit status."""
    text = b""
    while len(text) < size:
        if not (part := _received(orders, size - len(text))):
            return ABANDONED
        text += part
    command, environment, grace, has_terminal = marshal.loads(text)  # noqa: S302
    os.set_inheritable(orders, False)
    ends = _ends_of_children()
    if sys.platform == "linux":
        _adopt_orphans()
    if _has_ended(orders):
        return ABANDONED
    pid = _start(command, environment, orders, has_terminal=has_terminal)
    guardian = Guardian(command[0], pid, grace=grace, has_terminal=has_terminal)
    try:
        return guardian.watch(orders, ends)
    except BaseException:  # nobody else would end the command
        guardian.kill()
        raise


def _start(
    command: list[bytes],
    environment: dict[bytes, bytes],
    orders: int,
    *,
    has_terminal: bool,
) -> int:
    # A signal to a whole group is none for this process: see Guardian.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    blocked = signal.valid_signals() - {signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    pid = os.fork()
    if not pid:
        if not has_terminal:
            os.setpgid(0, 0)
        # Here, so that nothing runs of which the process that asked does not know.
        if not _has_told(orders, os.getpid() if has_terminal else -os.getpid()):
            os._exit(ABANDONED)
        for name in CHANGED_BY_PYTHON:
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os._exit(_become(command, environment))
    if not has_terminal:
        with suppress(OSError):  # it was faster
            os.setpgid(pid, pid)
    return pid


def _has_told(orders: int, started: int) -> bool:
    """Tell the process that asked what to kill if the launcher is killed."""
    try:
        os.write(orders, b"%d" % started)
    except OSError:  # it has died
        return False
    return True


def _become(command: list[bytes], environment: dict[bytes, bytes]) -> int:
    try:
        _execute(command, environment)
    except FileNotFoundError:
        problem, status = "not found", NOT_FOUND
    except OSError as error:
        problem, status = str(error.strerror), CANNOT_START
    except ValueError as error:  # an argument has a null byte
        problem, status = str(error), CANNOT_START
    _print(f"{os.fsdecode(command[0])}: {problem}")
    return status


def _execute(command: list[bytes], environment: dict[bytes, bytes]) -> None:
    # As execvp(3) does: os.execvpe() looks for another program after ENOEXEC.
    refusal: OSError = FileNotFoundError()
    for path in _candidates(command[0], environment):
        try:
            os.execve(path, command, environment)  # noqa: S606
        except OSError as error:
            if error.errno == errno.ENOEXEC:  # a script that names no interpreter
                script = [SHELL, path, *command[1:]]
                os.execve(SHELL, script, environment)  # noqa: S606
            if error.errno not in NOT_THERE:
                refusal = error
    raise refusal


def _candidates(name: bytes, environment: dict[bytes, bytes]) -> list[bytes]:
    if b"/" in name:
        return [name]
    folders = environment.get(b"PATH", os.fsencode(os.defpath))
    return [os.path.join(folder, name) for folder in folders.split(b":")]  # noqa: PTH118


def _ends_of_children() -> int:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    return reader


def _adopt_orphans() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def _received(orders: int, size: int = LONGEST_READ) -> bytes:
    try:
        return os.read(orders, size)
    except ConnectionResetError:
        return b""


def _has_ended(orders: int) -> bool:
    ended = select.poll()
    ended.register(orders, 0)
    return bool(ended.poll(0))


def _is_ours(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _shows_processes() -> bool:
    # It may be that of another PID namespace.
    try:
        return os.readlink(f"{PROC}/self") == str(os.getpid())  # noqa: PTH115
    except OSError:
        return False


def _descendants() -> dict[int, int]:
    children: dict[int, list[int]] = {}
    groups = {}
    for pid, parent, group, session in _processes():
        children.setdefault(parent, []).append(pid)
        if session == os.getsid(0):
            groups[pid] = group
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return {pid: groups[pid] for pid in found[1:] if pid in groups}


def _processes() -> list[tuple[int, int, int, int]]:
    # Of each that runs: its id, that of its parent, its group and its session. See
    # proc_pid_stat(5); a program's name may have any byte.
    found = []
    for name in filter(str.isdecimal, os.listdir(PROC)):  # noqa: PTH208
        try:
            with open(f"{PROC}/{name}/stat", "rb") as file:  # noqa: PTH123
                state, *ids = file.read().rpartition(b")")[2].split()[:4]
        except OSError:  # it has ended
            continue
        if state not in {b"Z", b"X"}:
            parent, group, session = map(int, ids)
            found.append((int(name), parent, group, session))
    return found


def _print(message: str) -> None:
    os.write(2, os.fsencode(f"{message}\n"))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
