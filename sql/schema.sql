-- schema.sql: the tables of the local store, version 1, as msg.so creates them. For reading only:
-- msg makes and migrates them itself, and their inside may change with the version.
CREATE TABLE msg_store(version INTEGER NOT NULL, store_id TEXT NOT NULL);
CREATE TABLE msg_store_message( seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, queue TEXT NOT NULL, topic TEXT NOT NULL, state INTEGER NOT NULL, priority INTEGER NOT NULL, deliver_at INTEGER NOT NULL, due INTEGER, delete_at INTEGER, attempts INTEGER NOT NULL DEFAULT 0, grp TEXT, in_answer_to TEXT, moved INTEGER, sender TEXT NOT NULL, sender_host TEXT, exclusive INTEGER NOT NULL, timestamp INTEGER NOT NULL, ttl INTEGER NOT NULL, timing_out INTEGER NOT NULL, delete_after INTEGER, recipients TEXT, msg TEXT, value, json INTEGER, map TEXT, additional TEXT, key TEXT, reason TEXT, redriven INTEGER);
CREATE UNIQUE INDEX msg_store_message_id ON msg_store_message(id);
CREATE INDEX msg_store_message_mortal ON msg_store_message(queue, topic, priority, deliver_at, seq, delete_at) WHERE state = 2;
CREATE INDEX msg_store_message_mortal_end ON msg_store_message(queue, topic, delete_at, priority, deliver_at) WHERE state = 2;
CREATE INDEX msg_store_message_delayed ON msg_store_message(due) WHERE state = 4;
CREATE INDEX msg_store_message_dead ON msg_store_message(queue, topic) WHERE state = 7;
CREATE INDEX msg_store_message_live ON msg_store_message(queue, topic, priority) WHERE state = 8;
CREATE INDEX msg_store_message_moved ON msg_store_message(queue, topic, priority, deliver_at) WHERE moved IS NOT NULL;
CREATE INDEX msg_store_message_expiry ON msg_store_message(delete_at) WHERE delete_at IS NOT NULL AND state <> 6;
CREATE INDEX msg_store_message_grp ON msg_store_message(queue, topic, grp, state) WHERE grp IS NOT NULL AND state <> 7;
CREATE INDEX msg_store_message_other ON msg_store_message(queue, topic, state) WHERE state > 2 AND state <> 6 AND state <> 7 AND state <> 8;
CREATE INDEX msg_store_message_answer ON msg_store_message(in_answer_to) WHERE in_answer_to IS NOT NULL;
CREATE TABLE msg_store_ready( queue TEXT NOT NULL, topic TEXT NOT NULL, priority INTEGER NOT NULL, deliver_at INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(queue, topic, priority, deliver_at, seq)) WITHOUT ROWID;
CREATE TABLE msg_store_claim( seq INTEGER PRIMARY KEY, lease INTEGER, attempts INTEGER, owner TEXT, token TEXT, holder TEXT, since INTEGER, messages INTEGER, first INTEGER, last INTEGER);
CREATE TABLE msg_store_holder(process TEXT NOT NULL PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE msg_store_lane( queue TEXT NOT NULL, node TEXT NOT NULL, exclusive INTEGER NOT NULL, priority INTEGER NOT NULL, deliver_at INTEGER NOT NULL, seq INTEGER NOT NULL, topic TEXT NOT NULL, PRIMARY KEY(queue, node, exclusive, priority, deliver_at, seq)) WITHOUT ROWID;
CREATE INDEX msg_store_lane_topic ON msg_store_lane(queue, node, exclusive, topic, priority, deliver_at, seq);
CREATE INDEX msg_store_lane_seq ON msg_store_lane(seq);
CREATE TABLE msg_store_listener( queue TEXT NOT NULL, node TEXT NOT NULL, pattern TEXT NOT NULL, start INTEGER NOT NULL, PRIMARY KEY(queue, node, pattern)) WITHOUT ROWID;
CREATE TABLE msg_store_floor( queue TEXT NOT NULL, node TEXT NOT NULL, topic TEXT NOT NULL, priority INTEGER NOT NULL, pattern TEXT NOT NULL, floor INTEGER NOT NULL, PRIMARY KEY(queue, node, topic, priority, pattern)) WITHOUT ROWID;
CREATE TABLE msg_store_seen( queue TEXT NOT NULL, node TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(queue, node, seq)) WITHOUT ROWID;
CREATE TABLE msg_store_key( queue TEXT NOT NULL, topic TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL, until INTEGER NOT NULL, PRIMARY KEY(queue, topic, key)) WITHOUT ROWID;
CREATE INDEX msg_store_key_until ON msg_store_key(until);
CREATE TABLE msg_store_node( queue TEXT NOT NULL, node TEXT NOT NULL, host TEXT, pid INTEGER, process TEXT, implementation TEXT, layout TEXT, automatic INTEGER NOT NULL, started_at INTEGER NOT NULL, last_seen INTEGER NOT NULL, PRIMARY KEY(queue, node)) WITHOUT ROWID;
