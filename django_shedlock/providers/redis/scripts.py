"""
The scripts that the server runs, each as one step.

A lock is a hash: ``by``, ``at``, ``until``, ``least``, ``extended`` and ``token`` are
whole microseconds or numbers, ``released`` is 0 or 1, ``ticks`` a text, and ``rev`` is
the mark of the change that wrote it. A client that asks again after a lost reply has
the same mark, and is told that it is done.
"""

from __future__ import annotations

from hashlib import sha1

HEAD = """
local key, mark, retention = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function whole(number) return string.format('%.0f', number) end
local function expire(lease_end, ticks)
    -- What is due must not be forgotten.
    if ticks and ticks ~= '' then redis.call('PERSIST', key)
    else redis.call('PEXPIREAT', key, whole(lease_end / 1000 + retention)) end
end
"""
TAKE = f"""{HEAD}
local by, ends, released, token, ticks =
    unpack(redis.call('HMGET', key, 'by', 'until', 'released', 'token', 'ticks'))
ends = tonumber(ends) or 0
if ends > now then
    if by == mark and released == '0' then return 1 end
    if released == '0' or ARGV[5] == '0' then return {{by, ends - now}} end
end
ends = now + ARGV[3]
redis.call('HSET', key, 'by', mark, 'at', whole(now), 'until', whole(ends),
    'least', whole(now + ARGV[4]), 'released', '0', 'extended', '', 'rev', mark,
    'token', whole(math.max((tonumber(token) or 0) + 1, now)))
expire(ends, ticks)
return 1
"""
"""Arguments: identity, retention, at most, at least, 1 if an operator asks."""
EXTEND = f"""{HEAD}
local by, ends, released, least, ticks =
    unpack(redis.call('HMGET', key, 'by', 'until', 'released', 'least', 'ticks'))
ends = tonumber(ends) or 0
if by ~= ARGV[3] or released ~= '0' or ends <= now then return 0 end
ends = math.max(ends, now + ARGV[4])
if ARGV[5] ~= '' then least = whole(now + ARGV[5]) end
redis.call('HSET', key, 'until', whole(ends), 'least', least,
    'extended', whole(now), 'rev', mark)
expire(ends, ticks)
return 1
"""
"""Arguments: mark, retention, identity, at most, at least or nothing."""
RELEASE = f"""{HEAD}
local by, released, least, rev =
    unpack(redis.call('HMGET', key, 'by', 'released', 'least', 'rev'))
if by ~= ARGV[3] then return 0 end
if released ~= '0' then return (rev == mark or ARGV[5] == '1') and 1 or 0 end
-- If the clock was set back, keep the lock no longer than if acquired now.
local kept = math.max(now, math.min(tonumber(least), now + ARGV[4]))
redis.call('HSET', key, 'until', whole(kept), 'released', '1', 'rev', mark)
return 1
"""
"""Arguments: mark, retention, identity, at least, 1 if a release was tried before."""
READ = """
local time = redis.call('TIME')
return {time[1], time[2], redis.call('HGETALL', KEYS[1])}
"""
WRITE = f"""{HEAD}
local rev, token = unpack(redis.call('HMGET', key, 'rev', 'token'))
if rev == mark then return 1 end
if (rev or '') ~= ARGV[3] then return 0 end
local number = tonumber(ARGV[4])
-- An acquisition: also of a record that was forgotten, its number has to grow.
if number ~= (tonumber(token) or 0) then number = math.max(number, now) end
redis.call('HSET', key, 'rev', mark, 'token', whole(number), unpack(ARGV, 7))
expire(tonumber(ARGV[5]), ARGV[6])
return 1
"""
"""Arguments: mark, retention, former mark, token, until, ticks, fields and values."""


class Script:
    """One script, and the name by which a server that has seen it knows it."""

    def __init__(self, text: str):
        self.text = text
        self.sha = sha1(text.encode()).hexdigest()  # noqa: S324


take, extend, release, read, write = map(Script, (TAKE, EXTEND, RELEASE, READ, WRITE))
