-- One topic as a table: the keys of its JSON payload are columns with their own affinity.
CREATE VIRTUAL TABLE orders USING msg_queue(topic='orders', customer TEXT, total REAL);
INSERT INTO orders(customer, total) VALUES ('Ada', '20.5'), ('Grace', 7);
SELECT customer, total, typeof(total) FROM orders ORDER BY total;

-- It is the same message as seen elsewhere.
SELECT topic, value, exclusive FROM msg_messages WHERE topic = 'orders' ORDER BY seq;
SELECT customer FROM orders WHERE msg_id = (SELECT id FROM msg_messages WHERE topic = 'orders' AND value ->> 'total' = 7);

DELETE FROM orders WHERE customer = 'Ada';
SELECT customer, total FROM orders;
