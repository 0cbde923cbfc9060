"""
The record of a lock in Redis, and the scripts that change and read it.

A lock is a hash: ``by``, ``at``, ``until``, ``least``, ``extended`` and ``token`` are
whole microseconds or numbers, ``released`` is 0 or 1, ``ticks`` a text, and ``rev`` is
the mark of the change that wrote it. A client that asks again after a lost reply has
the same mark, and is told that it is done. Each script is one step.
"""

import secrets
from datetime import timedelta
from itertools import chain
from typing import Any

from django_shedlock.locks.lock import Lock
from django_shedlock.providers.entries import Entry, Read
from django_shedlock.schedules.state import Trigger

MICROSECOND = timedelta(microseconds=1)
DIGITS = 16
"""Of a time in microseconds, until the year 2286, or of a token."""
NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
RECORD = f"""{NOW}
local by, ends, released, least, rev, token, ticks = unpack(redis.call('HMGET',
    KEYS[1], 'by', 'until', 'released', 'least', 'rev', 'token', 'ticks'))
"""
# A full server that evicts nothing refuses HSET as the first write of a script, but not
# after one that needs no room.
DESPITE_FULL = "redis.call('HDEL', KEYS[1], '')"
# WAIT counts only what its own connection has written. So it is written again, if a
# connection that broke had written it, or if the replicas have to confirm it later.
WRITTEN = f""" then
    {DESPITE_FULL}
    redis.call('HSET', KEYS[1], 'rev', ARGV[1])
    return 1
end
"""
EXPIRE = """
-- What is due must not be forgotten.
if ticks and ticks ~= '' then redis.call('PERSIST', KEYS[1])
else redis.call('PEXPIREAT', KEYS[1], math.floor(ends / 1000) + RETENTION) end
return 1
"""
# Arguments: identity, at most, at least; one more if an operator asks.
ACQUIRE = f"""{RECORD}
local is_right = by and string.match(ends or '', '^%d+$') and #ends <= {DIGITS}
if not is_right and redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('ERR its record lacks "by" or a time "until": ' ..
        'correct or delete it')
end
ends = tonumber(ends) or 0
if ends > now then
    if by == ARGV[1] and released == '0'{WRITTEN}
    if released == '0' or not ARGV[4] then return {{by, ends - now}} end
end
ends = now + ARGV[2]
redis.call('HSET', KEYS[1], 'by', ARGV[1], 'at', now, 'until', ends,
    'least', now + ARGV[3], 'released', '0', 'rev', ARGV[1],
    'token', math.max((tonumber(token) or 0) + 1, now))
{EXPIRE}"""
# Arguments: mark, identity, at most; at least if it changes.
EXTEND = f"""{RECORD}
ends = tonumber(ends) or 0
if by ~= ARGV[2] or released ~= '0' or ends <= now then return 0 end
ends = math.max(ends, now + ARGV[3])
{DESPITE_FULL}
redis.call('HSET', KEYS[1], 'until', ends, 'extended', now, 'rev', ARGV[1])
if ARGV[4] then redis.call('HSET', KEYS[1], 'least', now + ARGV[4]) end
{EXPIRE}"""
# Arguments: mark, identity, at least; one more if a release was tried before.
RELEASE = f"""{RECORD}
if by ~= ARGV[2] then return 0 end
if released ~= '0' then return (rev == ARGV[1] or ARGV[4]) and 1 or 0 end
-- If the clock was set back, keep the lock no longer than if acquired now.
local kept = math.max(now, math.min(tonumber(least), now + ARGV[3]))
{DESPITE_FULL}
redis.call('HSET', KEYS[1], 'until', kept, 'released', '1', 'rev', ARGV[1])
return 1
"""
READ = f"{NOW} return {{now, redis.pcall('HGETALL', KEYS[1])}}"
# Arguments: mark, former mark, token, until, ticks, fields and their values.
WRITE = f"""{RECORD}
if rev == ARGV[1]{WRITTEN}
if (rev or '') ~= ARGV[2] then return 0 end
local number = tonumber(ARGV[3])
-- An acquisition: also of a record that was forgotten, its number has to grow.
if number ~= (tonumber(token) or 0) then number = math.max(number, now)
elseif rev then {DESPITE_FULL} end
redis.call('HSET', KEYS[1], 'rev', ARGV[1], 'token', number, unpack(ARGV, 6))
ends, ticks = tonumber(ARGV[4]), ARGV[5]
{EXPIRE}"""
SCRIPTS = (ACQUIRE, EXTEND, RELEASE, READ, WRITE)


def acquiring(lock: Lock) -> tuple[Any, ...]:
    """Return the script that acquires the lock if it is free, and its arguments."""
    wanted = lock.configuration
    durations = wanted.lock_at_most_for, wanted.lock_at_least_for
    more = ["operator"] if wanted.start.trigger is Trigger.OPERATOR else []
    return ACQUIRE, lock.locked_by, *(each // MICROSECOND for each in durations), *more


def extending(lock: Lock, *durations: timedelta) -> tuple[Any, ...]:
    """Return the script that extends the lease, and its arguments."""
    marks = secrets.token_hex(8), lock.locked_by
    return EXTEND, *marks, *(each // MICROSECOND for each in durations)


def releasing(lock: Lock) -> tuple[Any, ...]:
    """Return the script that releases the lock, and its arguments."""
    marks, at_least = (secrets.token_hex(8), lock.locked_by), lock.lock_at_least_for
    more = ["tried"] if lock.was_release_tried else []
    return RELEASE, *marks, at_least // MICROSECOND, *more


def writing(entry: Entry, version: str) -> tuple[Any, ...]:
    """Return the script that writes the entry over that version, and its arguments."""
    beat, until = entry.extended_at, round(entry.lock_until * 1e6)
    fields = {
        "by": entry.locked_by,
        "at": round(entry.locked_at * 1e6),
        "until": until,
        "least": round(entry.lock_at_least_until * 1e6),
        "released": int(entry.is_released),
        "extended": "" if beat is None else round(beat * 1e6),
        "ticks": entry.ticks,
    }
    marks, flat = (secrets.token_hex(8), version), chain(*fields.items())
    return WRITE, *marks, entry.fencing_token, until, entry.ticks, *flat


def parse(found: Any, now: float, name: bytes = b"") -> Read:
    """Return what a hash tells; ``ValueError`` if it is no record of a lock."""
    name.decode()  # raises one if it is no UTF-8
    if isinstance(found, Exception):
        raise ValueError(str(found)) from found
    if not found:
        return None, "", now
    known = {key.decode(): value.decode() for key, value in found.items()}
    try:
        locked_by, locked_at = known["by"], _number(known["at"])
        # A former acquisition's stays in the record.
        beat = _number(known.get("extended") or "0")
        entry = Entry(
            locked_by=locked_by,
            locked_at=locked_at / 1e6,
            lock_until=_number(known["until"]) / 1e6,
            lock_at_least_until=_number(known["least"]) / 1e6,
            fencing_token=_number(known["token"]),
            is_released=known["released"] != "0",
            extended_at=beat / 1e6 if beat > locked_at else None,
            ticks=known.get("ticks", ""),
        )
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from error
    return entry, known.get("rev", ""), now


def _number(text: str) -> int:
    # As the scripts read it. Longer ones look alike to Lua.
    if not text.isdecimal() or len(text) > DIGITS:
        raise ValueError(f"{text[:40]!r} is no number of at most {DIGITS} digits")
    return int(text)
