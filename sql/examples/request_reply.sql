-- Request and reply. msg_request waits for the answer, so the two sides are two processes:
--   one:    SELECT msg_request('price.of', 'tea', 5000);
--   other:  CREATE TEMP TABLE asked AS SELECT id, value FROM msg_await('price.of', 60000);
--           SELECT msg_reply(id, 3.5) FROM asked;
-- In one connection the two sides take turns: the request here does not wait, and its answer is awaited later.
SELECT msg_open('local', '{"sender_id":"shop"}');
SELECT msg_listen('price.of');
SELECT msg_open('local', '{"sender_id":"till"}');
SELECT msg_request('price.of', 'tea', 0) AS "no answer yet";

SELECT msg_open('local', '{"sender_id":"shop"}');
CREATE TEMP TABLE asked AS SELECT id, value, sender FROM msg_await('price.of', 1000);
SELECT value, sender FROM asked;
SELECT msg_reply(id, 3.5) IS NOT NULL AS replied FROM asked;

-- A late answer is a direct message to who asked.
SELECT msg_open('local', '{"sender_id":"till"}');
SELECT value, typeof(value), sender, in_answer_to = (SELECT id FROM asked) AS "to my request" FROM msg_await('price.of', 1000);
