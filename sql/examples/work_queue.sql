-- A work queue: each message has exactly one owner, until it is acknowledged.
-- Run: sqlite3 -cmd ".load build/msg" work.db < sql/examples/work_queue.sql
CREATE TABLE invoice(id INTEGER PRIMARY KEY, customer TEXT, total REAL);

-- The job and the row it is about commit together.
BEGIN;
INSERT INTO invoice VALUES (1, 'Ada', 20.5), (2, 'Grace', 7), (3, 'Edsger', 99.9);
SELECT msg_enqueue('invoice.print', json_object('invoice', id)) FROM invoice;
COMMIT;

-- A worker leases up to two jobs for a minute. Nobody else gets them meanwhile.
CREATE TEMP TABLE job AS SELECT id, token, value ->> 'invoice' AS invoice, attempts FROM msg_claim('invoice.print', 2, 60000);
SELECT invoice, attempts FROM job;
SELECT topic, ready, claimed FROM msg_topics;

-- The work's result and the acknowledgement commit together.
CREATE TABLE printed(invoice INTEGER PRIMARY KEY);
BEGIN;
INSERT INTO printed SELECT invoice FROM job;
SELECT msg_ack(json_group_array(json_object('id', id, 'token', token))) AS acknowledged FROM job;
COMMIT;

-- A worker that cannot finish gives the job back, here for a retry in 10 s.
SELECT msg_release(id, token, 10000) AS released FROM msg_claim('invoice.print');
SELECT topic, ready, claimed, delayed FROM msg_topics;
