"""Hosts with a cron daemon each, all on this machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import STARTUP_PATIENCE
from tests.support.warm import killed_after

SCRIPT = Path(__file__).with_name("cron_host.sh")
TOOLS = ("cron", "crontab", "runuser", "unshare")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
NAMESPACES = ["unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc"]
DONE = "The command has ended with"


class Host:
    """
    A host with crontabs of its own, whose daemon does not run yet.

    It ends with its standard input, so no process of it outlives this one.
    """

    def __init__(self, folder: Path, name: str):
        self.name = name
        self._mails = folder / "mail"
        self._shell = subprocess.Popen(
            [*as_root(), *NAMESPACES, "bash", str(SCRIPT), str(folder), name],
            env={**os.environ, "PATH": PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> str:
        """Run a command as the user who runs the tests; return what it prints."""
        user = pwd.getpwuid(os.getuid()).pw_name
        return self._run(shlex.join(["runuser", "-u", user, "--", *command]))

    def start_cron(self) -> None:
        """Start the daemon, which reads the crontabs that are there."""
        self._run("{ cron -f & }")

    @property
    def mails(self) -> list[str]:
        """The mails that cron has sent, without their heads."""
        mails = [file.read_text() for file in self._mails.iterdir()]
        return [mail.partition("\n\n")[2] for mail in mails]

    def end(self) -> None:
        """End every process of the host."""
        self._shell.communicate()

    def _run(self, command: str) -> str:
        assert self._shell.stdin
        assert self._shell.stdout
        self._shell.stdin.write(f"{command} </dev/null; echo {DONE} $?\n")
        self._shell.stdin.flush()
        output = ""
        with killed_after(STARTUP_PATIENCE, self._shell):
            for line in self._shell.stdout:
                if line.startswith(DONE):
                    assert line == f"{DONE} 0\n", output
                    return output
                output += line
        raise AssertionError(f"The host has ended: {output}")


@contextmanager
def hosts(folder: Path, *names: str) -> Iterator[list[Host]]:
    """Run a host of each name, and leave none behind."""
    with contextlib.ExitStack() as stack:
        running = []
        for name in names:
            Path(folder, name).mkdir()
            running.append(Host(folder / name, name))
            stack.callback(running[-1].end)
        yield running


def as_root() -> list[str]:
    """Return what a command of root begins with."""
    return [] if os.getuid() == 0 else ["sudo", "--non-interactive"]


def missing_reason() -> str | None:
    """Return why there can be no hosts here, or ``None`` if there can."""
    for tool in (*as_root()[:1], *TOOLS):
        if shutil.which(tool, path=PATH) is None:
            return f"{tool} is not installed"
    attempt = subprocess.run(
        [*as_root(), *NAMESPACES, "true"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if attempt.returncode == 0:
        return None
    return f"root may not make namespaces here: {attempt.stderr.strip()}"
