BEGIN;
--
-- Create model LockRecord
--
CREATE TABLE "shedlock" ("name" character varying(255) NOT NULL PRIMARY KEY, "lock_until" datetime NOT NULL, "locked_at" datetime NOT NULL, "locked_by" varchar(255) NOT NULL, "lock_at_least_until" datetime DEFAULT NULL NULL, "released_at" datetime DEFAULT NULL NULL, "extended_at" datetime DEFAULT NULL NULL, "fencing_token" bigint DEFAULT 0 NOT NULL, "schedule" varchar(255) DEFAULT NULL NULL, "tick" datetime DEFAULT NULL NULL, "due_at" datetime DEFAULT NULL NULL, "caught_up_tick" datetime DEFAULT NULL NULL);
--
-- Create model LockAction
--
CREATE TABLE "shedlock_action" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" character varying(255) NOT NULL, "provider" varchar(100) NOT NULL, "kind" varchar(20) NOT NULL, "operator" varchar(255) NOT NULL, "reason" text NOT NULL, "locked_by" varchar(255) NOT NULL, "began" datetime NOT NULL, "ended" datetime NULL, "result" varchar(20) NOT NULL, "detail" text NOT NULL, "facts" text NOT NULL, "until" datetime NULL);
--
-- Create model LockRun
--
CREATE TABLE "shedlock_run" ("id" integer NOT NULL PRIMARY KEY AUTOINCREMENT, "name" character varying(255) NOT NULL, "provider" varchar(100) NOT NULL, "locked_by" varchar(255) NOT NULL, "host" varchar(255) NOT NULL, "pid" bigint NULL, "fencing_token" bigint NULL, "started" datetime NOT NULL, "finished" datetime NULL, "duration" bigint NULL, "outcome" varchar(20) NOT NULL, "exception_type" varchar(255) NOT NULL, "exception_message" text NOT NULL, "exception_traceback" text NOT NULL, "lost_at" datetime NULL, "skips" integer unsigned NOT NULL CHECK ("skips" >= 0), "trigger" varchar(20) NOT NULL, "operator" varchar(255) NOT NULL, "reason" text NOT NULL);
--
-- Create model Notice
--
CREATE TABLE "shedlock_notice" ("provider" character varying(100) NOT NULL PRIMARY KEY, "told" text NOT NULL, "version" bigint NOT NULL, "claimed_at" datetime NULL);
CREATE INDEX "shedlock_action_name" ON "shedlock_action" ("name", "provider", "id");
CREATE INDEX "shedlock_action_result" ON "shedlock_action" ("result", "id");
CREATE INDEX "shedlock_run_name" ON "shedlock_run" ("name", "provider", "id");
CREATE INDEX "shedlock_run_outcome" ON "shedlock_run" ("outcome", "name", "provider", "id");
CREATE INDEX "shedlock_run_host" ON "shedlock_run" ("host", "id");
CREATE INDEX "shedlock_run_started" ON "shedlock_run" ("started");
COMMIT;
