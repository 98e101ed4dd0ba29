-- De-duplication: within its window (5 minutes by default) a key is sent once a topic; a second send gives the first id.
CREATE TEMP TABLE sent(id TEXT);
INSERT INTO sent SELECT msg_enqueue('order.ship', 'order 17', '{"key":"order-17"}');
INSERT INTO sent SELECT msg_enqueue('order.ship', 'order 17, clicked twice', '{"key":"order-17"}');
SELECT count(*) AS sends, count(DISTINCT id) AS messages FROM sent;
SELECT value FROM msg_messages;

-- The key outlives the message.
SELECT msg_ack(id, token) AS acknowledged FROM msg_claim('order.ship');
INSERT INTO sent SELECT msg_enqueue('order.ship', 'order 17, after a crash', '{"key":"order-17"}');
SELECT count(*) AS sends, count(DISTINCT id) AS messages FROM sent;
SELECT count(*) AS waiting FROM msg_messages;

-- The window is a setting.
SELECT msg_config('key_window_ms', 3600000);
