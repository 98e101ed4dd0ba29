-- Outbox: a trigger sends a message with every change of a table, in the same transaction. No relay process is needed.
-- Newer sqlite3 shells do not trust triggers that a file brings along; then msg_enqueue in one is "unsafe use". This is your own file:
PRAGMA trusted_schema = ON;
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT UNIQUE);
CREATE TRIGGER customer_added AFTER INSERT ON customer BEGIN
  SELECT msg_enqueue('customer.added', json_object('id', new.id, 'name', new.name));
END;
CREATE TRIGGER customer_renamed AFTER UPDATE OF name ON customer WHEN old.name <> new.name BEGIN
  SELECT msg_enqueue('customer.renamed', json_object('id', new.id, 'from', old.name, 'to', new.name),
                     json_object('group', new.id || ''));
END;

INSERT INTO customer(name, email) VALUES ('Ada', 'ada@example.org'), ('Grace', 'grace@example.org');
UPDATE customer SET name = 'Ada Lovelace' WHERE id = 1;

-- What is rolled back was never sent.
BEGIN;
INSERT INTO customer(name, email) VALUES ('Nobody', 'nobody@example.org');
ROLLBACK;

SELECT topic, value FROM msg_messages ORDER BY seq;
