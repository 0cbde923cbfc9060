"""
Remove a temporary folder, and the servers in it, once the process that made it is gone.

However that process ends, its end of the pipe closes. A guardian has a session of its
own, so neither Ctrl-C nor the end of a terminal ends it first.
"""

from __future__ import annotations

import atexit
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

SERVERS = {"postgres", "mariadbd", "redis-server", "etcd", "java"}
TIME_TO_END = 20
"""Seconds after which a server that was told to end is killed."""


def guarded_folder(prefix: str) -> Path:
    """Return a new folder that is there as long as this process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    guardian = subprocess.Popen(
        [sys.executable, __file__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    atexit.register(guardian.communicate)
    return folder


def remove(folder: Path) -> None:
    """End the servers whose data is in the folder, and delete it."""
    servers = [process for process in psutil.process_iter() if _serves(process, folder)]
    for server in servers:
        # PostgreSQL's word for "at once"; its data is not needed any more.
        server.send_signal(signal.SIGQUIT)
    for server in psutil.wait_procs(servers, timeout=TIME_TO_END)[1]:
        server.kill()
    shutil.rmtree(folder, ignore_errors=True)


def _serves(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.name() in SERVERS and str(folder) in " ".join(process.cmdline())
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.stdin.read()
    remove(Path(sys.argv[1]))
