/*
 * The protocol of a lock with a schedule: which tick a start is for, and that each tick
 * runs as often as its trigger promises.
 *
 * A start reads the record and the store's clock, decides, and sends the UPDATE that
 * holds only while the decision does. Between these steps other processes may take
 * theirs, time may pass, and the start may stand still or die. Ticks are the instants
 * that INTERVAL divides. Each rule has a switch (-DNO_...) that leaves it out. Then the
 * search has to find the property that the rule protects; see test_models.py.
 */

#ifndef STARTS
#define STARTS 2
#endif
#ifndef MESSAGES
#define MESSAGES 0      /* may a queue's message have asked for a start earlier? */
#endif
#ifndef LATE
#define LATE 0          /* may a start lose the answer, and be sent once more? */
#endif
#ifndef FIRST
#define FIRST 4         /* the instants that starts see */
#endif
#ifndef LAST
#define LAST 9
#endif
#define INTERVAL 4
#define EARLY 1         /* a quarter of the interval */
#define GRACE 1
#define AT_MOST 2       /* lock_at_most_for */
#define NO_TICK 0
#define DECISIONS 2     /* of a start, see acquisition.py */

#define PAST_TICK(at) ((at) - (at) % INTERVAL)
#define NEXT_TICK(at) (PAST_TICK(at) + INTERVAL)
#define IS_EARLY(at) ((at) >= NEXT_TICK(at) - EARLY)
#define TICKS (LAST + INTERVAL + 1)

/* ----- The rules, each with its switch ----- */

#ifdef NO_TOKEN_GUARD       /* somebody may have acquired the lock since it was read */
#define IS_AS_READ true
#else
#define IS_AS_READ (fencing_token == token)
#endif

#ifdef NO_HOLDS_UNTIL       /* the decision may be old */
#define STILL_HOLDS true
#else
#define STILL_HOLDS (now < holds_until)
#endif

#ifdef NO_GROWTH_OF_TICK
#define GROWN_TICK chosen
#else
#define GROWN_TICK (chosen > known -> chosen : known)
#endif

#ifdef NO_NEW_TICK          /* a scheduler may start what was begun */
#define IS_FOR_SCHEDULER true
#else
#define IS_FOR_SCHEDULER is_new
#endif

#ifdef NO_SUCCESS_IN_RETRY  /* a retry may start what has succeeded */
#define IS_FOR_RETRY true
#else
#define IS_FOR_RETRY (is_new || known_due == NO_TICK || known_due <= known)
#endif

#ifdef NO_NEW_TICK_TO_CATCH_UP  /* a catch-up may start what was begun */
#define IS_TO_CATCH_UP true
#else
#define IS_TO_CATCH_UP (known < overdue)
#endif

#ifdef NO_OWNER_IN_GIVE_BACK    /* a late release may give the tick of another run back */
#define IS_OURS true
#else
#define IS_OURS (locked_by == me && !is_released)
#endif

#ifdef NO_REPEATED_TICK     /* an interrupted body gives its tick back again and again */
#define WAS_REPEATED false
#else
#define WAS_REPEATED (tick == repeated_tick || tick == former_tick)
#endif

#ifdef NO_STORES_CLOCK      /* a worker's clock, which is ahead, decides */
#define CLOCK (now + 2)
#else
#define CLOCK now
#endif

/* ----- The record: models/records.py ----- */

byte now = FIRST;
byte locked_by;
byte lock_until;
bool is_released = true;
byte fencing_token;
byte tick = NO_TICK;
byte due_at = NO_TICK;
byte former_tick = NO_TICK;
byte repeated_tick = NO_TICK;

/* ----- What only the checker knows ----- */

mtype = { SCHEDULER, RETRY, CATCH_UP, OPERATOR };
bool was_begun[TICKS];      /* which ticks a scheduler or a catch-up has begun */
bool was_interrupted[TICKS];
bool was_begun_again[TICKS];
bool has_succeeded[TICKS];
byte running = STARTS;

bool each_tick_is_begun_once = true;
bool succeeded_tick_is_not_begun_again = true;
bool run_is_of_the_newest_tick = true;

#define CHECK(property, condition) property = (condition); assert(property); property = true

/* schedules/state.py: _of_scheduler(). */
inline choose_as_scheduler() {
    if
    :: IS_EARLY(at) -> chosen = NEXT_TICK(at); holds_until = NEXT_TICK(at)
    :: else -> chosen = PAST_TICK(at); holds_until = NEXT_TICK(at) - EARLY
    fi
}

/* schedules/state.py: _choose(). */
inline choose() {
    if
    :: asked_at != 0 ->
        at = (asked_at < CLOCK -> asked_at : CLOCK);
        choose_as_scheduler();
        holds_until = NEXT_TICK(CLOCK)
    :: asked_at == 0 && trigger == SCHEDULER -> choose_as_scheduler()
    :: asked_at == 0 && trigger == CATCH_UP ->
        chosen = PAST_TICK(at);
        holds_until = NEXT_TICK(at - GRACE) + GRACE;
        holds_until = (NEXT_TICK(at) < holds_until -> NEXT_TICK(at) : holds_until)
    :: else -> chosen = PAST_TICK(at); holds_until = NEXT_TICK(at)
    fi
}

/* schedules/state.py: ScheduleState.decide(). */
inline decide() {
    at = CLOCK;
    choose();
    is_new = (known == NO_TICK || known < chosen);
    overdue = PAST_TICK(CLOCK - GRACE);
    is_allowed = ((trigger == OPERATOR)
        || (trigger == SCHEDULER && IS_FOR_SCHEDULER)
        || (trigger == RETRY && IS_FOR_RETRY)
        || (trigger == CATCH_UP && known_due != NO_TICK && known_due <= overdue
            && IS_TO_CATCH_UP));
    chosen = GROWN_TICK;
    overdue = 0;
    at = 0
}

/* What the trigger promises, when a run begins. An operator and a retry may begin again. */
inline check_begin() {
    if
    :: (trigger == SCHEDULER || trigger == CATCH_UP) && has_body ->
        CHECK(each_tick_is_begun_once, !was_begun[chosen]
            || was_interrupted[chosen] && !was_begun_again[chosen]);
        was_begun_again[chosen] = was_begun[chosen];
        was_begun[chosen] = true
    :: else
    fi;
    CHECK(succeeded_tick_is_not_begun_again, trigger == OPERATOR || !has_succeeded[chosen]);
    CHECK(run_is_of_the_newest_tick, asked_at != 0 || chosen == PAST_TICK(now)
        || chosen == NEXT_TICK(now) && (IS_EARLY(now) || chosen == known))
}

inline forget_decision() {
    token = 0; known = 0; known_due = 0; holds_until = 0; asked_at = 0; decisions = 0;
    is_new = false; is_allowed = false
}

proctype Start(byte me) {
    mtype trigger;
    byte asked_at, token, known, known_due, decisions;
    byte at, chosen, holds_until, overdue;
    byte deadline;
    bool is_new, is_allowed, is_again, has_body, has_success;

    atomic {
        if
        :: trigger = SCHEDULER
        :: trigger = RETRY
        :: trigger = CATCH_UP
        :: trigger = OPERATOR
        fi;
        if
        :: me < STARTS -> run Start(me + 1)
        :: else
        fi;
        if
        :: MESSAGES && (trigger == SCHEDULER || trigger == RETRY) -> asked_at = now
        :: goto reading
        fi
    };

reading:
    /* acquisition.py: read(), ScheduleState.decide(), LockStatus.refusal(). */
    atomic {
        if
        :: is_again && locked_by == me -> chosen = tick; goto begun
        :: else
        fi;
        decisions++;
        token = fencing_token;
        known = tick;
        known_due = due_at;
        decide();
        if
        :: (!is_allowed || (lock_until > now && !(trigger == OPERATOR && is_released))) ->
            goto ended
        :: else
        fi
    };

beginning:
    /* acquisition.py: BEGIN_TICK. */
    atomic {
        if
        :: ((lock_until <= now || (trigger == OPERATOR && is_released))
            && IS_AS_READ && STILL_HOLDS) ->
            locked_by = me;
            deadline = now + AT_MOST;
            lock_until = deadline;
            is_released = false;
            fencing_token++;
            due_at = (due_at == NO_TICK || (is_new && chosen < due_at) -> chosen : due_at);
            former_tick = tick;
            tick = chosen;
            if
            :: has_body = true
            :: has_body = false             /* an interrupt comes before it */
            fi;
            check_begin();
            if
            :: LATE && !is_again -> is_again = true; decisions = 0; goto reading
            :: true
            fi
        :: else -> goto deciding_again
        fi;
        goto begun
    };

deciding_again:
    if
    :: decisions < DECISIONS -> goto reading
    :: else -> goto ended                   /* CONTENDED */
    fi;

begun:
    atomic {
        trigger = 0; is_again = false;
        forget_decision()
    };


    /* The body ends, or the process dies. statements.py: RELEASE, and those of ticks. */
    if
    :: has_body -> goto interrupted         /* its job has rerun */
    :: has_body -> has_success = true
    :: has_body -> has_success = false
    :: !has_body -> goto giving_back
    :: goto ended
    fi;
    atomic {
        /* A lock whose lease has ended is lost, and its run no success. */
        has_success = (has_success && now < deadline);
        if
        :: (locked_by == me && !is_released) ->
            is_released = true;
            lock_until = now;
            due_at = (has_success -> NEXT_TICK(chosen) : due_at);
            has_succeeded[chosen] = (has_succeeded[chosen] || has_success)
        :: else
        fi;
        goto ended
    };

interrupted:
    atomic {
        if
        :: IS_OURS ->
            is_released = true;
            lock_until = now;
            if
            :: WAS_REPEATED
            :: !WAS_REPEATED ->
                was_interrupted[chosen] = true;
                repeated_tick = tick;
                tick = former_tick
            fi
        :: else
        fi;
        goto ended
    };

giving_back:
    atomic {
        if
        :: IS_OURS -> is_released = true; lock_until = now; tick = former_tick
        :: else
        fi
    };

ended:
    atomic {
        forget_decision();
        chosen = 0; deadline = 0; has_body = false; has_success = false; is_again = false; trigger = 0;
        running--
    }
}

active proctype Time() {
    do
    :: atomic { now < LAST -> now++ }
    :: atomic { now == LAST -> break }
    od;
    /* A lock that nobody has must be acquirable in the end, at the next tick. */
    running == 0 && lock_until <= LAST + AT_MOST && tick < LAST + INTERVAL
}

init {
    run Start(1)
}
