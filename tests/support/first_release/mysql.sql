--
-- Create model LockRecord
--
CREATE TABLE `shedlock` (`name` character varying(255) COLLATE `utf8mb4_bin` NOT NULL PRIMARY KEY, `lock_until` datetime(6) NOT NULL, `locked_at` datetime(6) NOT NULL, `locked_by` varchar(255) NOT NULL, `lock_at_least_until` datetime(6) DEFAULT NULL NULL, `released_at` datetime(6) DEFAULT NULL NULL, `extended_at` datetime(6) DEFAULT NULL NULL, `fencing_token` bigint DEFAULT 0 NOT NULL, `schedule` varchar(255) DEFAULT NULL NULL, `tick` datetime(6) DEFAULT NULL NULL, `due_at` datetime(6) DEFAULT NULL NULL, `caught_up_tick` datetime(6) DEFAULT NULL NULL);
--
-- Create model LockAction
--
CREATE TABLE `shedlock_action` (`id` bigint AUTO_INCREMENT NOT NULL PRIMARY KEY, `name` character varying(255) COLLATE `utf8mb4_bin` NOT NULL, `provider` varchar(100) NOT NULL, `kind` varchar(20) NOT NULL, `operator` varchar(255) NOT NULL, `reason` longtext NOT NULL, `locked_by` varchar(255) NOT NULL, `began` datetime(6) NOT NULL, `ended` datetime(6) NULL, `result` varchar(20) NOT NULL, `detail` longtext NOT NULL, `facts` longtext NOT NULL, `until` datetime(6) NULL);
--
-- Create model LockRun
--
CREATE TABLE `shedlock_run` (`id` bigint AUTO_INCREMENT NOT NULL PRIMARY KEY, `name` character varying(255) COLLATE `utf8mb4_bin` NOT NULL, `provider` varchar(100) NOT NULL, `locked_by` varchar(255) NOT NULL, `host` varchar(255) NOT NULL, `pid` bigint NULL, `fencing_token` bigint NULL, `started` datetime(6) NOT NULL, `finished` datetime(6) NULL, `duration` bigint NULL, `outcome` varchar(20) NOT NULL, `exception_type` varchar(255) NOT NULL, `exception_message` longtext NOT NULL, `exception_traceback` longtext NOT NULL, `lost_at` datetime(6) NULL, `skips` integer UNSIGNED NOT NULL CHECK (`skips` >= 0), `trigger` varchar(20) NOT NULL, `operator` varchar(255) NOT NULL, `reason` longtext NOT NULL);
--
-- Create model Notice
--
CREATE TABLE `shedlock_notice` (`provider` character varying(100) COLLATE `utf8mb4_bin` NOT NULL PRIMARY KEY, `told` longtext NOT NULL, `version` bigint NOT NULL, `claimed_at` datetime(6) NULL);
CREATE INDEX `shedlock_action_name` ON `shedlock_action` (`name`, `provider`, `id`);
CREATE INDEX `shedlock_action_result` ON `shedlock_action` (`result`, `id`);
CREATE INDEX `shedlock_run_name` ON `shedlock_run` (`name`, `provider`, `id`);
CREATE INDEX `shedlock_run_outcome` ON `shedlock_run` (`outcome`, `name`, `provider`, `id`);
CREATE INDEX `shedlock_run_host` ON `shedlock_run` (`host`, `id`);
CREATE INDEX `shedlock_run_started` ON `shedlock_run` (`started`);
