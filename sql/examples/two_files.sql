-- Messages in a file of their own, beside the application's: one transaction still spans both.
ATTACH 'messages.db' AS bus;
SELECT msg_open('local:bus', '{"sender_id":"app"}');
CREATE TABLE note(text TEXT);
BEGIN;
INSERT INTO note VALUES ('written');
SELECT msg_enqueue('note.written', 'written') IS NOT NULL AS sent;
COMMIT;
SELECT count(*) AS "message tables in main" FROM main.sqlite_schema WHERE name GLOB 'msg_*';
SELECT count(*) > 0 AS "message tables in bus" FROM bus.sqlite_schema WHERE name GLOB 'msg_*';
SELECT topic, value FROM msg_messages;
