"""PgBouncer, between the tests and the PostgreSQL under test."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connections

from tests.support.bridges import bridge
from tests.support.guardian import guarded_folder, remove
from tests.support.ports import free_port
from tests.support.servers import answers, use
from tests.support.waiting import STARTUP_PATIENCE, wait_for

CONFIGURATION = """
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = {size}
ignore_startup_parameters = extra_float_digits, options
{user}
"""


@contextmanager
def pgbouncer(mode: str, size: int) -> Iterator[None]:
    """Let this process's ``default`` go through a pooler with room for ``size``."""
    program = shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")
    if program is None:
        pytest.skip("PgBouncer is not installed on this host")
    folder = guarded_folder("shedlock_pooler_")
    folder.chmod(0o755)
    before = connections["default"].settings_dict.copy()
    port = free_port()
    file = folder / "pgbouncer.ini"
    # Over a bridge, since another user's process may not reach the server's socket.
    with bridge() as to_server:
        server = {**before, **to_server.address}
        file.write_text(_configuration(server, mode=mode, size=size, listen_port=port))
        pooler = subprocess.Popen([program, "-q", str(file)], stderr=subprocess.DEVNULL)
        try:
            use({"HOST": "127.0.0.1", "PORT": str(port)})
            wait_for(answers, pause=0.05, timeout=STARTUP_PATIENCE)
            connections["default"].close()  # in a session it takes a place
            yield
        finally:
            use(before)
            pooler.kill()
            pooler.wait(STARTUP_PATIENCE)
            remove(folder)


def _configuration(server: dict[str, Any], **values: Any) -> str:
    # As root it refuses to run.
    user = "user = nobody" if os.getuid() == 0 else ""
    # It takes an empty value for a mistake.
    given = " ".join(
        f"{key.lower()}='{server[key]}'"
        for key in ("HOST", "PORT", "USER", "PASSWORD")
        if server[key]
    )
    return CONFIGURATION.format(server=given, **values, user=user)
