-- Fan-out: every node that listens gets each broadcast once; a sender never gets its own.
-- Here the nodes share one connection; as a rule each is a process of its own.
SELECT msg_open('local', '{"sender_id":"cache-1"}');
SELECT msg_listen('cache.*');
SELECT msg_open('local', '{"sender_id":"cache-2"}');
SELECT msg_listen('cache.*');

SELECT msg_open('local', '{"sender_id":"shop"}');
SELECT msg_send('cache.clear', 'product 7') IS NOT NULL AS sent;
SELECT msg_send('cache.clear', 'product 9', '{"ttl_ms":60000}') IS NOT NULL AS sent;
-- To one node alone:
SELECT msg_send('cache.warm', 'product 7', '{"recipient":"cache-2"}') IS NOT NULL AS sent;

SELECT msg_open('local', '{"sender_id":"cache-1"}');
SELECT topic, value, sender FROM msg_await('cache.*', 1000, 10);
SELECT msg_open('local', '{"sender_id":"cache-2"}');
SELECT topic, value, sender FROM msg_await('cache.*', 1000, 10);

-- Who has seen what:
SELECT topic, value, processed_by FROM msg_messages ORDER BY seq;
