BEGIN;
--
-- Create model Notice
--
CREATE TABLE "shedlock_notice" ("key" character varying(64) NOT NULL PRIMARY KEY, "reader" varchar(100) NOT NULL, "provider" varchar(100) NOT NULL, "lock" character varying(255) NOT NULL, "kind" varchar(20) NOT NULL, "fact" text NOT NULL, "told_at" datetime NULL, "claimed_at" datetime NULL, "gone_at" datetime NULL, "is_acknowledged" bool NOT NULL, "version" bigint NOT NULL);
--
-- Create model LockAction
--
CREATE TABLE "shedlock_action" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" character varying(255) NOT NULL, "provider" varchar(100) NOT NULL, "kind" varchar(20) NOT NULL, "operator" varchar(255) NOT NULL, "reason" text NOT NULL, "locked_by" varchar(255) NOT NULL, "began" datetime NOT NULL, "ended" datetime NOT NULL, "result" varchar(20) NOT NULL, "detail" text NOT NULL, "facts" text NOT NULL, "process_is_gone" bool NOT NULL, "until" datetime NULL);
CREATE INDEX "shedlock_action_name" ON "shedlock_action" ("name", "provider", "id");
CREATE INDEX "shedlock_action_ended" ON "shedlock_action" ("ended");
COMMIT;
BEGIN;
--
-- Create model LockRecord
--
CREATE TABLE "shedlock" ("name" character varying(255) NOT NULL PRIMARY KEY, "lock_until" datetime NOT NULL, "locked_at" datetime NOT NULL, "locked_by" varchar(255) NOT NULL, "lock_at_least_until" datetime DEFAULT NULL NULL, "released_at" datetime DEFAULT NULL NULL, "extended_at" datetime DEFAULT NULL NULL, "fencing_token" bigint DEFAULT 0 NOT NULL, "schedule" varchar(255) DEFAULT NULL NULL, "tick" datetime DEFAULT NULL NULL, "due_at" datetime DEFAULT NULL NULL, "former_tick" datetime DEFAULT NULL NULL, "repeated_tick" datetime DEFAULT NULL NULL, "open_run" varchar(255) DEFAULT NULL NULL, "last_run" varchar(255) DEFAULT NULL NULL, "outcome" varchar(20) DEFAULT NULL NULL, "started_at" datetime DEFAULT NULL NULL, "ended_at" datetime DEFAULT NULL NULL, "succeeded_at" datetime DEFAULT NULL NULL, "failures" integer DEFAULT 0 NOT NULL, "usual" real DEFAULT NULL NULL, "lost_at" datetime DEFAULT NULL NULL, "lost_run" varchar(255) DEFAULT NULL NULL, "unrecorded_at" datetime DEFAULT NULL NULL, "asked_at" datetime DEFAULT NULL NULL, "asked_by" varchar(255) DEFAULT NULL NULL, "asked_why" varchar(2000) DEFAULT NULL NULL, CONSTRAINT "shedlock_readable" CHECK (("lock_until" >= '0001-01-02 00:00:00.000000' AND "locked_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "lock_at_least_until" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "released_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "extended_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "tick" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "due_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "former_tick" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "repeated_tick" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "started_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "ended_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "succeeded_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "lost_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "unrecorded_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000' AND "asked_at" BETWEEN '0001-01-02 00:00:00.000000' AND '9999-12-30 00:00:00.000000')));
--
-- Create model LockRun
--
CREATE TABLE "shedlock_run" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" character varying(255) NOT NULL, "provider" varchar(100) NOT NULL, "locked_by" character varying(255) NOT NULL UNIQUE, "host" varchar(255) NOT NULL, "pid" bigint NULL, "fencing_token" bigint NULL, "started" datetime NULL, "ended" datetime NOT NULL, "duration" bigint NULL, "outcome" varchar(20) NOT NULL, "exception_type" varchar(255) NOT NULL, "exception_message" text NOT NULL, "exception_traceback" text NOT NULL, "lost_at" datetime NULL, "trigger" varchar(20) NOT NULL, "operator" varchar(255) NOT NULL, "reason" text NOT NULL);
CREATE INDEX "shedlock_run_name" ON "shedlock_run" ("name", "provider", "id");
CREATE INDEX "shedlock_run_outcome" ON "shedlock_run" ("outcome", "id");
CREATE INDEX "shedlock_run_host" ON "shedlock_run" ("host", "id");
CREATE INDEX "shedlock_run_ended" ON "shedlock_run" ("ended");
COMMIT;
