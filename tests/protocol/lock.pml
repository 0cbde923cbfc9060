/*
 * The protocol of a lock without a schedule: one record of the table shedlock, and the
 * statements that workers, an operator and a network send to it.
 *
 * A statement is one atomic step, since it is one UPDATE of one row. Between any two
 * steps another process may take its own, time may pass, and a worker may stand still
 * or die. Each rule of the protocol has a switch (-DNO_...) that leaves it out. Then the
 * search has to find the property that the rule protects; see test_models.py.
 *
 * "Stands for" names the part of the package that a step is a model of.
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef STARTS
#define STARTS 1        /* of each worker; each one is an identity of its own */
#endif
#ifndef STEPS
#define STEPS 1         /* of each body: extend, refresh, fence, write elsewhere */
#endif
#ifndef ACTIONS
#define ACTIONS 0       /* of the operator */
#endif
#ifndef LATE
#define LATE 0          /* statements that lose their sender */
#endif
#ifndef LAST
#define LAST 3          /* nobody but the newcomer sees a later instant */
#endif
#define AT_MOST 2       /* lock_at_most_for */
#define AT_LEAST 1      /* lock_at_least_for */
#define END (LAST + AT_MOST + 1)
#define IDENTITIES (WORKERS * STARTS + 1)
#define NOBODY 0

/* ----- The rules, each with its switch ----- */

#ifdef NO_OWNER_IN_EXTEND
#define EXTENDS_OWN(who) true
#else
#define EXTENDS_OWN(who) (locked_by == who)
#endif

#ifdef NO_OWNER_IN_RELEASE
#define RELEASES_OWN(who) true
#else
#define RELEASES_OWN(who) (locked_by == who)
#endif

#ifdef NO_OWNER_IN_REFRESH
#define READS_OWN_LEASE(who) true
#else
#define READS_OWN_LEASE(who) (locked_by == who)
#endif

#ifdef NO_OWNER_IN_FENCE
#define FENCES_OWN(who) true
#else
#define FENCES_OWN(who) (locked_by == who)
#endif

#ifdef NO_OWNER_OF_TOKEN
#define READS_OWN_TOKEN(who) true
#else
#define READS_OWN_TOKEN(who) (locked_by == who)
#endif

#ifdef NO_LEASE_IN_ACQUIRE
#define LEASE_IS_OVER(at) true
#else
#ifdef NO_END_OF_LEASE
#define LEASE_IS_OVER(at) (is_released && lock_until <= at)
#else
#define LEASE_IS_OVER(at) (lock_until <= at)
#endif
#endif

#ifdef NO_STORES_CLOCK      /* the first worker's clock is ahead */
#define CLOCK_OF(who, at) (at + (who <= STARTS -> 1 : 0))
#else
#define CLOCK_OF(who, at) (at)
#endif

#ifdef NO_COUNT_FROM_ASKING /* the deadline counts from the answer */
#define COUNTED_FROM now
#else
#define COUNTED_FROM asked
#endif

#ifdef NO_RELEASED_IN_EXTEND
#define IS_NOT_RELEASED true
#else
#define IS_NOT_RELEASED (!is_released)
#endif

#ifdef NO_ROW_IN_FENCE      /* fence() reads the row, and does not write it */
#define TAKEN_BY(who) NOBODY
#else
#define TAKEN_BY(who) who
#endif

#ifdef NO_TOKEN_GROWTH
#define TOKEN_STEP 0
#else
#define TOKEN_STEP 1
#endif

#ifdef NO_TOKEN_CHECK       /* the other system takes any write */
#define IS_TOKEN_ACCEPTED true
#else
#define IS_TOKEN_ACCEPTED (token >= newest_token)
#endif

/* ----- The record. Stands for django_shedlock.models.records.LockRecord ----- */

byte now = 1;               /* the store's clock.
                             * Stands for django_shedlock.sql.fields.DatabaseNow */
byte locked_by;
byte lock_until;
byte lock_at_least_until;
bool is_released = true;
byte fencing_token;
byte row_taken_by;          /* whose open transaction has written the row */
#define ROW_IS_FREE (row_taken_by == NOBODY)

/* ----- What each acquisition knows. Stands for django_shedlock.locks.lock.Lock ----- */

bool is_holding[IDENTITIES];    /* acquired, and not released by itself */
byte deadline[IDENTITIES];

/* ----- The other system, which compares fencing tokens ----- */

byte newest_token;

/* ----- A statement that is on its way while its sender hears nothing ----- */

mtype = { NOTHING, ACQUIRE, EXTEND, RELEASE };
mtype late = NOTHING;
byte late_by;
byte lates;
#define CAN_BE_LATE (lates < LATE && late == NOTHING)

/* ----- What only the checker knows ----- */

bool is_overruled[IDENTITIES];  /* an operator released its lock while it ran */
byte acquisitions;
byte number_of[IDENTITIES];     /* which acquisition of the lock it was last */
byte newest_writer;             /* the number whose write the other system took last */
bool is_kept_by_operator;
byte running = WORKERS;

bool at_most_one_valid_holder = true;
bool fenced_write_is_of_the_last_holder = true;
bool accepted_write_is_of_no_older_holder = true;
bool released_lock_is_acquirable = true;

#define CHECK(property, condition) property = (condition); assert(property); property = true

inline check_holders() {
    valid = 0;
    for (each : 1 .. IDENTITIES - 1) {
        if
        :: is_holding[each] && now < deadline[each] && !is_overruled[each] -> valid++
        :: else
        fi
    }
    CHECK(at_most_one_valid_holder, valid <= 1);
    valid = 0;
    each = 0
}

inline check_release() {
    CHECK(released_lock_is_acquirable,
        !is_released || is_kept_by_operator
        || lock_until <= now || lock_until <= lock_at_least_until)
}

/* ----- The statements; each runs inside an atomic step that found the row free ----- */

/* A statement that waited for the row may have read the clock before. On PostgreSQL it
 * keeps what it read, if the transaction that had the row is rolled back. */
inline read_clock() {
    at = asked;
    do
    :: at < now -> at++
    :: break
    od
}

/* Stands for django_shedlock.providers.database.statements.acquire
 * With by_operator a person starts the job.
 * Stands for django_shedlock.providers.database.statements.acquire_for_operator */
inline acquire(who, by_operator) {
    is_done = LEASE_IS_OVER(CLOCK_OF(who, at)) || (by_operator && is_released);
    if
    :: is_done ->
        locked_by = who;
        lock_until = CLOCK_OF(who, at) + AT_MOST;
        lock_at_least_until = CLOCK_OF(who, at) + AT_LEAST;
        is_released = false;
        fencing_token = fencing_token + TOKEN_STEP;
        acquisitions++;
        number_of[who] = acquisitions;
        is_overruled[who] = false;
        is_kept_by_operator = false
    :: else
    fi
}

/* Stands for django_shedlock.providers.database.statements.extend */
inline extend(who) {
    is_done = EXTENDS_OWN(who) && lock_until > at && IS_NOT_RELEASED;
    if
    :: is_done ->
        lock_until = (lock_until > at + AT_MOST -> lock_until : at + AT_MOST);
        check_release()
    :: else
    fi
}

/* Stands for django_shedlock.providers.database.statements.release_succeeded_kept
 * With is_again, after a lost answer, our first try may have released the lock.
 * Stands for django_shedlock.providers.database.provider.DatabaseLockProvider.release */
inline release(who, is_again) {
    is_done = RELEASES_OWN(who) && (is_again || !is_released);
    if
    :: is_done ->
        lock_until = (lock_at_least_until < at + AT_LEAST -> lock_at_least_until : at + AT_LEAST);
        lock_until = (lock_until > at -> lock_until : at);
        is_released = true;
        check_release()
    :: else
    fi
}

inline forget_late() {
    late = NOTHING;
    late_by = NOBODY;
    at = 0;
    is_done = false
}

/* ----- The processes ----- */

proctype Worker(byte me) {
    byte asked, at, left, token, number, steps, starts;
    bool is_done, is_again;
    byte valid, each;

start:
    /* The deadline counts from here.
     * Stands for django_shedlock.locks.lock.Lock.__init__ */
    atomic {
        asked = now;
        if
        :: starts == 0 && me + STARTS < IDENTITIES -> run Worker(me + STARTS)
        :: else
        fi
    };

asking:
    /* It is sent once more if the connection was lost. The worker counts as a holder from
     * the UPDATE on, though the answer may take long.
     * Stands for django_shedlock.providers.database.provider.DatabaseLockProvider.acquire */
    if
    :: atomic { ROW_IS_FREE -> read_clock(); acquire(me, false);
        if
        :: !is_done && is_again && locked_by == me -> is_done = true /* by its own first try */
        :: else
        fi;
        goto answered }
    :: atomic { ROW_IS_FREE && is_released -> at = now; acquire(me, true); goto answered }
    :: atomic { CAN_BE_LATE && !is_again ->
        late = ACQUIRE; late_by = me; lates++; is_again = true; goto asking }
    :: atomic { goto end_of_start }         /* no answer, or CONTENDED */
    fi;

answered:
    atomic {
        at = 0;
        is_again = false;
        if
        :: is_done ->
            is_done = false;
            is_holding[me] = true;
            deadline[me] = COUNTED_FROM + AT_MOST;
            asked = 0;
            check_holders()
        :: else -> goto end_of_start
        fi
    };

body:
    if
    :: atomic { steps < STEPS -> steps++; asked = now; goto extending }
    :: atomic { steps < STEPS && ACTIONS > 0 -> steps++; asked = now; goto refreshing }
    :: atomic { steps < STEPS && ROW_IS_FREE -> steps++; goto fencing }
    :: atomic { steps < STEPS -> steps++; goto writing }
    :: atomic { goto releasing }
    :: atomic { goto dying }
    fi;

extending:
    /* By the body or by the heartbeat.
     * Stands for django_shedlock.locks.lock.Lock._extend */
    if
    :: atomic { ROW_IS_FREE -> read_clock(); extend(me); at = 0;
        if
        :: is_done && deadline[me] < COUNTED_FROM + AT_MOST ->
            deadline[me] = COUNTED_FROM + AT_MOST; check_holders()
        :: else
        fi;
        asked = 0;
        if
        :: is_done -> is_done = false; goto body
        :: else -> goto releasing           /* LockLost */
        fi }
    :: atomic { CAN_BE_LATE -> late = EXTEND; late_by = me; lates++; asked = 0; goto body }
    fi;

refreshing:
    /* An operator may have extended the lease.
     * Stands for django_shedlock.locks.lock.Lock.refresh */
    atomic {
        read_clock();
        left = (READS_OWN_LEASE(me) && lock_until > at && !is_released -> lock_until - at : 0);
        if
        :: deadline[me] < COUNTED_FROM + left ->
            deadline[me] = COUNTED_FROM + left; check_holders()
        :: else
        fi;
        at = 0;
        asked = 0;
        left = 0;
        goto body };

fencing:
    /* In a transaction of the caller.
     * Stands for django_shedlock.locks.lock.Lock.fence */
    atomic {
        if
        :: FENCES_OWN(me) && lock_until > now && !is_released -> row_taken_by = TAKEN_BY(me)
        :: else -> goto releasing           /* LockLost */
        fi };
    if
    :: atomic {                             /* COMMIT of what the body wrote */
        CHECK(fenced_write_is_of_the_last_holder, locked_by == me);
        row_taken_by = NOBODY;
        goto body }
    :: atomic { row_taken_by = NOBODY; goto body }  /* ROLLBACK, also of the killed */
    fi;

writing:
    /* The token is read at first use; the write arrives some time later.
     * Stands for django_shedlock.locks.lock.Lock.fencing_token */
    atomic {
        if
        :: token == 0 && READS_OWN_TOKEN(me) -> token = fencing_token; number = number_of[me]
        :: token == 0 && !READS_OWN_TOKEN(me) -> goto releasing     /* LockLost */
        :: token != 0
        fi };
    atomic {
        if
        :: IS_TOKEN_ACCEPTED ->
            CHECK(accepted_write_is_of_no_older_holder, number >= newest_writer);
            newest_token = token;
            newest_writer = number
        :: else                             /* refused */
        fi;
        goto body };

releasing:
    /* The lock counts as released here before the store is asked.
     * Stands for django_shedlock.locks.lock.Lock.release */
    atomic { is_holding[me] = false; deadline[me] = 0; token = 0; number = 0; asked = 0 };
    if
    :: atomic { ROW_IS_FREE -> at = now; release(me, is_again); goto end_of_start }
    :: atomic { CAN_BE_LATE -> late = RELEASE; late_by = me; lates++; is_again = true };
        if
        :: atomic { ROW_IS_FREE -> at = now; release(me, is_again); goto end_of_start }
        :: atomic { goto end_of_start }     /* LockProviderError: the lease ends by itself */
        fi
    fi;

dying:
    atomic { is_holding[me] = false; deadline[me] = 0; token = 0; number = 0 };

end_of_start:
    atomic {
        asked = 0;
        at = 0;
        steps = 0;
        is_done = false;
        is_again = false;
        starts++;
        if
        :: starts < STARTS -> me++; goto start
        :: else -> running--
        fi }
}

/* A statement whose sender has given it up still arrives, at any time or never. */
active proctype Network() {
    byte asked, at;
    bool is_done;
end:
    do
    :: atomic { late == ACQUIRE && ROW_IS_FREE -> at = now; acquire(late_by, false); forget_late() }
    :: atomic { late == EXTEND && ROW_IS_FREE -> at = now; extend(late_by); forget_late() }
    :: atomic { late == RELEASE && ROW_IS_FREE -> at = now; release(late_by, false); forget_late() }
    :: atomic { late != NOTHING -> forget_late() }
    od
}

#define CAN_ACT (actions < ACTIONS && running > 0 && ROW_IS_FREE)

/* It changes only a lock that is held.
 * Stands for django_shedlock.models.records.held */
active proctype Operator() {
    byte actions;
end:
    do
    :: atomic { CAN_ACT && lock_until > now && !is_released ->
        /* The holder goes on.
         * Stands for django_shedlock.execution.operators.force_release */
        is_overruled[locked_by] = true;
        lock_until = now;
        lock_at_least_until = now;
        is_released = true;
        actions++ }
    :: atomic { CAN_ACT && lock_until > now && is_released ->
        /* Only lock_at_least_for keeps it.
         * Stands for django_shedlock.execution.operators.force_release */
        lock_until = now;
        lock_at_least_until = now;
        actions++ }
    :: atomic { CAN_ACT && lock_until > now ->
        /* Stands for django_shedlock.execution.operators.force_extend */
        lock_until = (lock_until > now + AT_MOST -> lock_until : now + AT_MOST);
        is_kept_by_operator = true;
        actions++ }
    od
}

active proctype Time() {
    do
    :: atomic { now < LAST -> now++ }
    :: atomic { now == LAST -> break }
    od;
    /* All have ended or died. A lock that nobody has must be acquirable in the end. */
    atomic { running == 0 && late == NOTHING -> now = END };
    ROW_IS_FREE && LEASE_IS_OVER(now)
}

init {
    run Worker(1)
}
