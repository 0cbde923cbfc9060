"""
The record of a lock in Redis, and the scripts that change and read it.

A lock is a hash. ``by`` is the holder. ``at``, ``until``, ``least`` and ``extended``
are whole microseconds since 1970, ``token`` is a whole number, ``released`` is 0 or 1,
and ``ticks`` is a text. ``rev`` is the mark of the change that wrote the record. If a
client repeats a request after a lost reply, it sends the same mark, and the script
answers that the change is done. The other fields have the names of ``JobAccount``:
instants are whole microseconds, ``usual`` is in seconds, and an empty or missing field
is unknown. Fields of a newer version stay. ``min_format`` is that of
``entries.check_format()``. Each script is one step.
"""

import secrets
from datetime import timedelta
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from django_shedlock.clocks import aware
from django_shedlock.locks.lock import Lock
from django_shedlock.locks.status import (
    CONTENDED,
    JOB_INSTANT_FIELDS,
    JOB_TEXT_FIELDS,
    AbandonedRun,
    LockHolder,
    RunOutcome,
)
from django_shedlock.providers.entries import (
    RECORD_FORMAT,
    Entry,
    Read,
    check_format,
    instant_of,
    optional_instant_of,
    readable_duration,
)
from django_shedlock.schedules.state import Trigger

# Until the year 2286, a time in microseconds has 16 digits. A token has fewer.
NUMBER_MAX_DIGITS = 16

# The following constants are parts of several scripts.
READ_CLOCK = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""
READ_RECORD = f"""{READ_CLOCK}
local by, at, ends, released, least, rev, token, ticks, run, failures, format =
    unpack(redis.call('HMGET', KEYS[1], 'by', 'at', 'until', 'released', 'least',
        'rev', 'token', 'ticks', 'open_run', 'failures', 'min_format'))
if format and not (string.match(format, '^%d+$')
        and tonumber(format) <= {RECORD_FORMAT}) then
    return redis.error_reply('ERR a newer version of django-shedlock wrote its ' ..
        'record, in format ' .. format .. '. Leave it as it is, and upgrade')
end
token, failures = tonumber(token) or 0, tonumber(failures) or 0
"""
# A full server that evicts nothing refuses HSET as the first write of a script. It does
# not refuse HSET after a write that needs no memory.
WRITE_DESPITE_FULL = "redis.call('HDEL', KEYS[1], '')"
# WAIT counts only the writes of its own connection. So the mark is written again if a
# connection that broke had written it, or if replicas have to confirm it later.
WRITE_MARK = f"""
    {WRITE_DESPITE_FULL}
    redis.call('HSET', KEYS[1], 'rev', ARGV[1])
"""
SET_EXPIRY = """
-- Keep the record for what is due, and for a run that nobody has accounted for.
if (ticks and ticks ~= '') or (run and run ~= '') then
    redis.call('PERSIST', KEYS[1])
else
    local over = math.floor(math.max(ends, now) / 1000)
    redis.call('PEXPIREAT', KEYS[1], over + RETENTION)
end
"""


class Script(StrEnum):
    """The scripts, each of which is one step."""

    # Arguments: identity, at most, at least, the run to open, whether an operator
    # starts it, and the request to carry out. The last three may be empty. The answer
    # is one of these: 1, the token, and what is known about the run that this
    # acquisition accounted for; 0, the holder, the rest of its lease, and "0" if it was
    # not released; 0 alone if the request is gone.
    ACQUIRE = f"""{READ_RECORD}
local is_right = by and string.match(ends or '', '^%d+$')
    and #ends <= {NUMBER_MAX_DIGITS}
if not is_right and redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('ERR its record lacks "by" or a time "until": ' ..
        'correct or delete it')
end
if by == ARGV[1] and released == '0' then
    {WRITE_MARK}
    local outcome, last, began, ended = unpack(redis.call('HMGET', KEYS[1],
        'outcome', 'last_run', 'started_at', 'ended_at'))
    if outcome ~= 'abandoned' then return {{1, token}} end
    return {{1, token, last, began or '', ended}}
end
ends = tonumber(ends) or 0
if ends > now and (released == '0' or ARGV[5] == '') then
    return {{0, by, ends - now, released or '0'}}
end
if ARGV[6] ~= '' and redis.call('HGET', KEYS[1], 'asked_at') ~= ARGV[6] then
    return {{0}}
end
token = math.max(token + 1, math.floor(now / 1000))
local answer = {{1, token}}
if run and run ~= '' then
    local began = string.match(at or '', '^%d+$') or ''
    answer = {{1, token, run, began, string.format('%.0f', ends)}}
    redis.call('HSET', KEYS[1], 'last_run', run, 'outcome', 'abandoned',
        'started_at', began, 'ended_at', ends, 'failures', failures + 1)
end
run, ends = ARGV[4], now + ARGV[2]
redis.call('HSET', KEYS[1], 'by', ARGV[1], 'at', now, 'until', ends,
    'least', now + ARGV[3], 'released', '0', 'rev', ARGV[1], 'token', token,
    'open_run', run)
if ARGV[6] ~= '' then
    redis.call('HDEL', KEYS[1], 'asked_at', 'asked_by', 'asked_why')
end
{SET_EXPIRY}
return answer
"""
    # Arguments: mark, identity, at most, and at least if it changes.
    EXTEND = f"""{READ_RECORD}
ends = tonumber(ends) or 0
if by ~= ARGV[2] or released ~= '0' or ends <= now then return 0 end
ends = math.max(ends, now + ARGV[3])
{WRITE_DESPITE_FULL}
redis.call('HSET', KEYS[1], 'until', ends, 'extended', now, 'rev', ARGV[1])
if ARGV[4] then redis.call('HSET', KEYS[1], 'least', now + ARGV[4]) end
{SET_EXPIRY}
return 1
"""
    # Arguments: mark, identity, at least, outcome, seconds that the run took, and any
    # text if a release was tried before.
    RELEASE = f"""{READ_RECORD}
if rev == ARGV[1] then return 1 end
local outcome, usual, last = unpack(redis.call('HMGET', KEYS[1],
    'outcome', 'usual', 'last_run'))
if by ~= ARGV[2] or run ~= ARGV[2] then
    local has_ended = outcome == 'succeeded' or outcome == 'failed'
        or outcome == 'timed out'
    return (ARGV[6] and has_ended and last == ARGV[2]) and 1 or 0
end
-- If the clock was set back, keep the lock no longer than after an acquisition now.
ends = math.max(now, math.min(tonumber(least), now + ARGV[3]))
run = ''
{WRITE_DESPITE_FULL}
redis.call('HSET', KEYS[1], 'until', ends, 'released', '1', 'rev', ARGV[1],
    'last_run', ARGV[2], 'started_at', at or '', 'ended_at', now, 'open_run', run,
    'outcome', ARGV[4], 'failures', failures + 1)
if ARGV[4] == 'succeeded' then
    local took, counted = tonumber(ARGV[5]), nil
    usual = tonumber(usual)
    if usual then
        counted = math.min(usual * 2 + 15, math.max(usual * 0.75, took))
        took = usual * 0.75 + counted * 0.25
    end
    redis.call('HSET', KEYS[1], 'failures', 0, 'succeeded_at', now, 'usual', took)
end
{SET_EXPIRY}
return 1
"""
    READ = f"{READ_CLOCK} return {{now, redis.pcall('HGETALL', KEYS[1])}}"
    # Arguments: mark, former mark, token, until, ticks, open run, fields and values.
    WRITE = f"""{READ_RECORD}
if rev == ARGV[1] then
    {WRITE_MARK}
    return 1
end
if (rev or '') ~= ARGV[2] then return 0 end
-- On a full server no new record is written, so nobody gets the lock.
if rev and token == tonumber(ARGV[3]) then {WRITE_DESPITE_FULL} end
redis.call('HSET', KEYS[1], 'rev', ARGV[1], 'token', ARGV[3], unpack(ARGV, 7))
ends, ticks, run = tonumber(ARGV[4]), ARGV[5], ARGV[6]
{SET_EXPIRY}
return 1
"""
    # Argument: the mark that was read.
    DELETE = f"""{READ_RECORD}
if rev ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


class ScriptCall(NamedTuple):
    """A script and its arguments, without the lock's key."""

    script: Script
    arguments: tuple[int | str, ...] = ()


def acquiring(lock: Lock) -> ScriptCall:
    """Return the call that acquires the lock if it is free."""
    wanted = lock.configuration
    durations = wanted.lock_at_most_for, wanted.lock_at_least_for
    request = wanted.start.request
    arguments = (
        lock.locked_by,
        *map(_whole_microseconds, durations),
        lock.locked_by if lock.opens_run else "",
        "operator" if wanted.start.trigger is Trigger.OPERATOR else "",
        "" if request is None else round(aware(request).timestamp() * 1e6),
    )
    return ScriptCall(Script.ACQUIRE, arguments)


def answered(lock: Lock, answer: list[Any]) -> LockHolder | None:
    """
    Note on the lock what ``ACQUIRE`` answered.

    Return ``None`` if the lock was acquired, or else the holder.
    """
    is_acquired, *known = answer
    if not is_acquired:
        return _holder(*known) if known else CONTENDED
    lock.known_token = int(known[0])
    if known[1:]:
        run, began, ended = (each.decode() for each in known[1:])
        started_at = optional_instant_of(_seconds(began))
        ended_at = instant_of(_number(ended) / 1e6)
        lock.abandoned = AbandonedRun(run, started_at, ended_at)
    return None


def extending(lock: Lock, *durations: timedelta) -> ScriptCall:
    """Return the call that extends the lease."""
    lengths = map(_whole_microseconds, durations)
    return ScriptCall(Script.EXTEND, (secrets.token_hex(8), lock.locked_by, *lengths))


def releasing(lock: Lock, *, succeeded: bool) -> ScriptCall:
    """Return the call that releases the lock of a run, and accounts for the run."""
    marks, at_least = (secrets.token_hex(8), lock.locked_by), lock.lock_at_least_for
    outcome = RunOutcome.SUCCEEDED if succeeded else lock.failed_outcome
    took = repr(lock.took)
    more = ["tried"] if lock.was_release_tried else []
    kept = _whole_microseconds(at_least)
    return ScriptCall(Script.RELEASE, (*marks, kept, outcome.value, took, *more))


def writing(entry: Entry, version: str) -> ScriptCall:
    """Return the call that writes the entry over that version."""
    until = round(entry.lock_until * 1e6)
    fields: dict[str, int | str] = {
        "by": entry.locked_by,
        "at": round(entry.locked_at * 1e6),
        "until": until,
        "least": round(entry.lock_at_least_until * 1e6),
        "released": int(entry.is_released),
        "extended": _microseconds(entry.extended_at),
        "ticks": entry.ticks,
        "failures": entry.failures,
        "usual": "" if entry.usual is None else repr(float(entry.usual)),
    }
    fields |= {name: getattr(entry, name) or "" for name in JOB_TEXT_FIELDS}
    fields |= {name: _microseconds(getattr(entry, name)) for name in JOB_INSTANT_FIELDS}
    marks, run = (secrets.token_hex(8), version), entry.open_run or ""
    decisive = entry.fencing_token, until, entry.ticks, run
    return ScriptCall(Script.WRITE, (*marks, *decisive, *chain(*fields.items())))


def parse(found: dict[bytes, bytes] | Exception, now: float) -> Read[str]:
    """
    Return the entry of a hash, its version and the clock.

    ``found`` may be the server's error about the key. Raises ``ValueError`` if it is no
    record of a lock.
    """
    if isinstance(found, Exception):
        raise ValueError(str(found)) from found
    if not found:
        return None, "", now
    known = {key.decode(): value.decode() for key, value in found.items()}
    least = known.get("min_format")
    check_format(int(least) if least and least.isdecimal() else least)
    usual = known.get("usual")
    job: dict[str, Any] = {name: known.get(name) or None for name in JOB_TEXT_FIELDS}
    job |= {name: _seconds(known.get(name)) for name in JOB_INSTANT_FIELDS}
    try:
        locked_by, locked_at = known["by"], _number(known["at"])
        # The heartbeat of a former acquisition stays in the record.
        heartbeat = _number(known.get("extended") or "0")
        entry = Entry(
            locked_by=locked_by,
            locked_at=locked_at / 1e6,
            lock_until=_number(known["until"]) / 1e6,
            lock_at_least_until=_number(known["least"]) / 1e6,
            fencing_token=_number(known["token"]),
            is_released=known["released"] != "0",
            extended_at=heartbeat / 1e6 if heartbeat > locked_at else None,
            ticks=known.get("ticks", ""),
            failures=_number(known.get("failures") or "0"),
            usual=readable_duration(float(usual)) if usual else None,
            **job,
        )
    except KeyError as error:
        raise ValueError(f"the field {error} is missing") from error
    return entry, known.get("rev", ""), now


def _holder(locked_by: bytes, left: int, released: bytes) -> LockHolder:
    by = locked_by.decode(errors="backslashreplace")
    has_ended = released != b"0"
    return LockHolder(by, timedelta(microseconds=left), has_ended=has_ended)


def _whole_microseconds(duration: timedelta) -> int:
    return duration // timedelta(microseconds=1)


def _seconds(text: str | None) -> float | None:
    return _number(text) / 1e6 if text else None


def _microseconds(seconds: float | None) -> int | str:
    return "" if seconds is None else round(seconds * 1e6)


def _number(text: str) -> int:
    # The scripts read numbers in the same way. Lua can't distinguish longer ones.
    if not text.isdecimal() or len(text) > NUMBER_MAX_DIGITS:
        raise ValueError(
            f"{text[:40]!r} is no number of at most {NUMBER_MAX_DIGITS} digits"
        )
    return int(text)
