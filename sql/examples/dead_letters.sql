-- Dead letters: rejected, or delivered max_attempts times without an acknowledgement.
SELECT msg_open('local', '{"sender_id":"worker","max_attempts":2}');
SELECT msg_enqueue('import', 'broken line') IS NOT NULL AS sent;
SELECT msg_enqueue('import', 'poison') IS NOT NULL AS sent;

SELECT value, msg_reject(id, 'not a CSV line', token) AS rejected FROM msg_claim('import');
SELECT value, attempts, msg_release(id, token) AS released FROM msg_claim('import');
SELECT value, attempts, msg_release(id, token) AS released FROM msg_claim('import');
SELECT count(*) AS "left to claim" FROM msg_claim('import', 10);
SELECT value, state, attempts, reason FROM msg_messages ORDER BY seq;

-- After the reason is mended: back to their topic, with fresh attempts.
SELECT msg_redrive('import') AS redriven;
SELECT value, attempts, msg_ack(id, token) AS acknowledged FROM msg_claim('import', 10);
