--
-- Create model Notice
--
CREATE TABLE `shedlock_notice` (`key` character varying(64) COLLATE `utf8mb4_bin` NOT NULL PRIMARY KEY, `reader` varchar(100) NOT NULL, `provider` varchar(100) NOT NULL, `lock` character varying(255) COLLATE `utf8mb4_bin` NOT NULL, `kind` varchar(20) NOT NULL, `fact` longtext NOT NULL, `told_at` datetime(6) NULL, `claimed_at` datetime(6) NULL, `gone_at` datetime(6) NULL, `is_acknowledged` bool NOT NULL, `version` bigint NOT NULL);
--
-- Create model LockAction
--
CREATE TABLE `shedlock_action` (`id` bigint AUTO_INCREMENT NOT NULL PRIMARY KEY, `name` character varying(255) COLLATE `utf8mb4_bin` NOT NULL, `provider` varchar(100) NOT NULL, `kind` varchar(20) NOT NULL, `operator` varchar(255) NOT NULL, `reason` longtext NOT NULL, `locked_by` varchar(255) NOT NULL, `began` datetime(6) NOT NULL, `ended` datetime(6) NOT NULL, `result` varchar(20) NOT NULL, `detail` longtext NOT NULL, `facts` longtext NOT NULL, `process_is_gone` bool NOT NULL, `until` datetime(6) NULL);
CREATE INDEX `shedlock_action_name` ON `shedlock_action` (`name`, `provider`, `id`);
CREATE INDEX `shedlock_action_ended` ON `shedlock_action` (`ended`);
--
-- Create model LockRecord
--
CREATE TABLE `shedlock` (`name` character varying(255) COLLATE `utf8mb4_bin` NOT NULL PRIMARY KEY, `lock_until` datetime(6) NOT NULL, `locked_at` datetime(6) NOT NULL, `locked_by` varchar(255) NOT NULL, `lock_at_least_until` datetime(6) DEFAULT NULL NULL, `released_at` datetime(6) DEFAULT NULL NULL, `extended_at` datetime(6) DEFAULT NULL NULL, `fencing_token` bigint DEFAULT 0 NOT NULL, `schedule` varchar(255) DEFAULT NULL NULL, `tick` datetime(6) DEFAULT NULL NULL, `due_at` datetime(6) DEFAULT NULL NULL, `former_tick` datetime(6) DEFAULT NULL NULL, `repeated_tick` datetime(6) DEFAULT NULL NULL, `open_run` varchar(255) DEFAULT NULL NULL, `last_run` varchar(255) DEFAULT NULL NULL, `outcome` varchar(20) DEFAULT NULL NULL, `started_at` datetime(6) DEFAULT NULL NULL, `ended_at` datetime(6) DEFAULT NULL NULL, `succeeded_at` datetime(6) DEFAULT NULL NULL, `failures` integer DEFAULT 0 NOT NULL, `usual` double precision DEFAULT NULL NULL, `lost_at` datetime(6) DEFAULT NULL NULL, `lost_run` varchar(255) DEFAULT NULL NULL, `unrecorded_at` datetime(6) DEFAULT NULL NULL, `asked_at` datetime(6) DEFAULT NULL NULL, `asked_by` varchar(255) DEFAULT NULL NULL, `asked_why` varchar(2000) DEFAULT NULL NULL);
--
-- Create model LockRun
--
CREATE TABLE `shedlock_run` (`id` bigint AUTO_INCREMENT NOT NULL PRIMARY KEY, `name` character varying(255) COLLATE `utf8mb4_bin` NOT NULL, `provider` varchar(100) NOT NULL, `locked_by` character varying(255) COLLATE `utf8mb4_bin` NOT NULL UNIQUE, `host` varchar(255) NOT NULL, `pid` bigint NULL, `fencing_token` bigint NULL, `started` datetime(6) NULL, `ended` datetime(6) NOT NULL, `duration` bigint NULL, `outcome` varchar(20) NOT NULL, `exception_type` varchar(255) NOT NULL, `exception_message` longtext NOT NULL, `exception_traceback` longtext NOT NULL, `lost_at` datetime(6) NULL, `trigger` varchar(20) NOT NULL, `operator` varchar(255) NOT NULL, `reason` longtext NOT NULL);
ALTER TABLE `shedlock` ADD CONSTRAINT `shedlock_readable` CHECK ((`lock_until` >= '0001-01-02 00:00:00' AND `locked_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `lock_at_least_until` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `released_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `extended_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `tick` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `due_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `former_tick` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `repeated_tick` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `started_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `ended_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `succeeded_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `lost_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `unrecorded_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00' AND `asked_at` BETWEEN '0001-01-02 00:00:00' AND '9999-12-30 00:00:00') = b'1');
CREATE INDEX `shedlock_run_name` ON `shedlock_run` (`name`, `provider`, `id`);
CREATE INDEX `shedlock_run_outcome` ON `shedlock_run` (`outcome`, `id`);
CREATE INDEX `shedlock_run_host` ON `shedlock_run` (`host`, `id`);
CREATE INDEX `shedlock_run_ended` ON `shedlock_run` (`ended`);
