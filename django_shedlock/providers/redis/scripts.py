"""
The scripts that the server runs, each as one step.

A lock is a hash: ``by``, ``at``, ``until``, ``least``, ``extended`` and ``token`` are
whole microseconds or numbers, ``released`` is 0 or 1, ``ticks`` a text, and ``rev`` is
the mark of the change that wrote it. A client that asks again after a lost reply has
the same mark, and is told that it is done.
"""

from __future__ import annotations

from hashlib import sha1

NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
EXPIRE = """
-- What is due must not be forgotten.
if ticks and ticks ~= '' then redis.call('PERSIST', KEYS[1])
else redis.call('PEXPIREAT', KEYS[1], math.floor(ends / 1000) + {retention}) end
return 1
"""
TAKE = f"""{NOW}
local by, ends, released, token, ticks =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'until', 'released', 'token', 'ticks'))
if by and not tonumber(ends) then
    return redis.error_reply('ERR its field "until" is no number: correct or delete it')
end
ends = tonumber(ends) or 0
if ends > now then
    if by == ARGV[1] and released == '0' then return 1 end
    if released == '0' or not ARGV[4] then return {{{{by, ends - now}}}} end
end
ends = now + ARGV[2]
redis.call('HSET', KEYS[1], 'by', ARGV[1], 'at', now, 'until', ends,
    'least', now + ARGV[3], 'released', '0', 'rev', ARGV[1],
    'token', math.max((tonumber(token) or 0) + 1, now))
{EXPIRE}"""
"""Arguments: identity, at most, at least; one more if an operator asks."""
EXTEND = f"""{NOW}
local by, ends, released, ticks =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'until', 'released', 'ticks'))
ends = tonumber(ends) or 0
if by ~= ARGV[2] or released ~= '0' or ends <= now then return 0 end
ends = math.max(ends, now + ARGV[3])
redis.call('HSET', KEYS[1], 'until', ends, 'extended', now, 'rev', ARGV[1])
if ARGV[4] then redis.call('HSET', KEYS[1], 'least', now + ARGV[4]) end
{EXPIRE}"""
"""Arguments: mark, identity, at most; at least if it changes."""
RELEASE = f"""{NOW}
local by, released, least, rev =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'released', 'least', 'rev'))
if by ~= ARGV[2] then return 0 end
if released ~= '0' then return (rev == ARGV[1] or ARGV[4]) and 1 or 0 end
-- If the clock was set back, keep the lock no longer than if acquired now.
local kept = math.max(now, math.min(tonumber(least), now + ARGV[3]))
redis.call('HSET', KEYS[1], 'until', kept, 'released', '1', 'rev', ARGV[1])
return 1
"""
"""Arguments: mark, identity, at least; one more if a release was tried before."""
READ = """
local time = redis.call('TIME')
return {time[1], time[2], redis.call('HGETALL', KEYS[1])}
"""
WRITE = f"""{NOW}
local rev, token = unpack(redis.call('HMGET', KEYS[1], 'rev', 'token'))
if rev == ARGV[1] then return 1 end
if (rev or '') ~= ARGV[2] then return 0 end
local number = tonumber(ARGV[3])
-- An acquisition: also of a record that was forgotten, its number has to grow.
if number ~= (tonumber(token) or 0) then number = math.max(number, now) end
redis.call('HSET', KEYS[1], 'rev', ARGV[1], 'token', number, unpack(ARGV, 6))
local ends, ticks = tonumber(ARGV[4]), ARGV[5]
{EXPIRE}"""
"""Arguments: mark, former mark, token, until, ticks, fields and their values."""


class Script:
    """One script, and the name by which a server that has seen it knows it."""

    def __init__(self, text: str):
        self.text = text
        self.sha = sha1(text.encode()).hexdigest()  # noqa: S324


class Scripts:
    """The scripts of a provider whose records stay for ``retention`` milliseconds."""

    def __init__(self, retention: int):
        self.take = Script(TAKE.format(retention=retention))
        self.extend = Script(EXTEND.format(retention=retention))
        self.release = Script(RELEASE)
        self.read = Script(READ)
        self.write = Script(WRITE.format(retention=retention))
