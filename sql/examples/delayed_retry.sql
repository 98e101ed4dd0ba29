-- Delays, retries with growing pauses, and leases that end.
SELECT msg_enqueue('mail', 'in a day', '{"delay_ms":86400000}') IS NOT NULL AS sent;
SELECT msg_enqueue('mail', 'now') IS NOT NULL AS sent;
SELECT value, state FROM msg_messages ORDER BY seq;

-- The mail server is down: back with it, for a minute, then 2, 4 ... `attempts` counts deliveries.
SELECT value, attempts, msg_release(id, token, 60000 << (attempts - 1)) AS released FROM msg_claim('mail');
SELECT value, state, attempts, deliver_at - timestamp >= 60000 AS "later" FROM msg_messages WHERE value = 'now';

-- Bring it forward, and claim it for 30 ms only: a worker that is too slow loses it ...
UPDATE msg_messages SET deliver_at = 0 WHERE value = 'now';
CREATE TEMP TABLE slow AS SELECT id, token FROM msg_claim('mail', 1, 30);
-- ... to whoever waits for it: this claim waits up to 5 s, and wakes when the lease ends.
SELECT value, attempts FROM msg_claim('mail', 1, 30000, 5000);
SELECT msg_ack(id, token) AS "too late" FROM slow;
