"""
A lock as Redis keeps it, and the scripts that change it, each as one step.

It is a hash: ``by``, ``at``, ``until``, ``least``, ``extended`` and ``token`` are whole
microseconds or numbers, ``released`` is 0 or 1, ``ticks`` a text, and ``rev`` is the
mark of the change that wrote it. A client that asks again after a lost reply has the
same mark, and is told that it is done.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha1
from typing import Any

from django_shedlock.providers.entries import Entry

NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
EXPIRE = """
-- What is due must not be forgotten.
if ticks and ticks ~= '' then redis.call('PERSIST', KEYS[1])
else redis.call('PEXPIREAT', KEYS[1], math.floor(ends / 1000) + RETENTION) end
return 1
"""
# Arguments: identity, at most, at least; one more if an operator asks.
ACQUIRE = (
    NOW
    + """
local by, ends, released, token, ticks =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'until', 'released', 'token', 'ticks'))
if by and not tonumber(ends) then
    return redis.error_reply('ERR its field "until" is no number: correct or delete it')
end
ends = tonumber(ends) or 0
if ends > now then
    if by == ARGV[1] and released == '0' then return 1 end
    if released == '0' or not ARGV[4] then return {by, ends - now} end
end
ends = now + ARGV[2]
redis.call('HSET', KEYS[1], 'by', ARGV[1], 'at', now, 'until', ends,
    'least', now + ARGV[3], 'released', '0', 'rev', ARGV[1],
    'token', math.max((tonumber(token) or 0) + 1, now))
"""
    + EXPIRE
)
# Arguments: mark, identity, at most; at least if it changes.
EXTEND = (
    NOW
    + """
local by, ends, released, ticks =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'until', 'released', 'ticks'))
ends = tonumber(ends) or 0
if by ~= ARGV[2] or released ~= '0' or ends <= now then return 0 end
ends = math.max(ends, now + ARGV[3])
redis.call('HSET', KEYS[1], 'until', ends, 'extended', now, 'rev', ARGV[1])
if ARGV[4] then redis.call('HSET', KEYS[1], 'least', now + ARGV[4]) end
"""
    + EXPIRE
)
# Arguments: mark, identity, at least; one more if a release was tried before.
RELEASE = (
    NOW
    + """
local by, released, least, rev =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'released', 'least', 'rev'))
if by ~= ARGV[2] then return 0 end
if released ~= '0' then return (rev == ARGV[1] or ARGV[4]) and 1 or 0 end
-- If the clock was set back, keep the lock no longer than if acquired now.
local kept = math.max(now, math.min(tonumber(least), now + ARGV[3]))
redis.call('HSET', KEYS[1], 'until', kept, 'released', '1', 'rev', ARGV[1])
return 1
"""
)
READ = """
local time = redis.call('TIME')
return {time[1], time[2], redis.call('HGETALL', KEYS[1])}
"""
# Arguments: mark, former mark, token, until, ticks, fields and their values.
WRITE = (
    NOW
    + """
local rev, token = unpack(redis.call('HMGET', KEYS[1], 'rev', 'token'))
if rev == ARGV[1] then return 1 end
if (rev or '') ~= ARGV[2] then return 0 end
local number = tonumber(ARGV[3])
-- An acquisition: also of a record that was forgotten, its number has to grow.
if number ~= (tonumber(token) or 0) then number = math.max(number, now) end
redis.call('HSET', KEYS[1], 'rev', ARGV[1], 'token', number, unpack(ARGV, 6))
local ends, ticks = tonumber(ARGV[4]), ARGV[5]
"""
    + EXPIRE
)


class Script:
    """One script, and the name by which a server that has seen it knows it."""

    def __init__(self, text: str, retention: timedelta):
        milliseconds = retention // timedelta(milliseconds=1)
        self.text = text.replace("RETENTION", str(milliseconds))
        self.sha = sha1(self.text.encode()).hexdigest()  # noqa: S324


def microseconds(seconds: float) -> int:
    """Return an instant as the record has it."""
    return round(seconds * 1e6)


def to_fields(entry: Entry) -> dict[str, Any]:
    """Return the fields of an entry, but for its mark and its token."""
    beat = entry.extended_at
    return {
        "by": entry.locked_by,
        "at": microseconds(entry.locked_at),
        "until": microseconds(entry.lock_until),
        "least": microseconds(entry.lock_at_least_until),
        "released": int(entry.is_released),
        "extended": "" if beat is None else microseconds(beat),
        "ticks": entry.ticks,
    }


def to_entry(fields: dict[bytes, bytes]) -> Entry | None:
    """Return the entry of a hash, if there is one; ``ValueError`` for another hash."""
    if not fields:
        return None
    known = {key.decode(): value.decode() for key, value in fields.items()}
    try:
        # A former acquisition's stays in the record.
        beat = int(known.get("extended") or 0)
        return Entry(
            locked_by=known["by"],
            locked_at=int(known["at"]) / 1e6,
            lock_until=int(known["until"]) / 1e6,
            lock_at_least_until=int(known["least"]) / 1e6,
            fencing_token=int(known["token"]),
            is_released=known["released"] != "0",
            extended_at=beat / 1e6 if beat > int(known["at"]) else None,
            ticks=known.get("ticks", ""),
        )
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from error
