-- msg_views.sql: the troubleshooting checklist as views. Load msg, then .read this file.
--
-- They are TEMP views, made anew by each connection that wants them: a view kept in the file would break ALTER TABLE in
-- programs that do not load msg. All times are milliseconds since the epoch, all ages are in milliseconds.
--
--   msg_check              every trouble found now, one row a kind: start here
--   msg_check_unclaimed    ready for more than a minute, and nobody takes it
--   msg_check_long_claims  claimed for more than a minute
--   msg_check_retries      delivered at least three times, and not done
--   msg_check_dead         dead letters, by topic and reason
--   msg_check_blocked      groups whose head keeps others waiting
--   msg_check_deaf         topics with broadcasts that nobody listens to
--   msg_check_participants participants that are not alive
--   msg_check_lanes        direct messages for a node that is not alive
--   msg_dashboard          one row a topic
--   msg_dashboard_ages     how old what waits is, by topic

CREATE TEMP VIEW IF NOT EXISTS msg_now AS
  SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now;

CREATE TEMP VIEW IF NOT EXISTS msg_check_unclaimed AS
  SELECT topic, id, now - deliver_at AS age_ms, priority, sender, attempts
  FROM msg_messages, msg_now
  WHERE state = 'ready' AND exclusive AND deliver_at < now - 60000
  ORDER BY age_ms DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check_long_claims AS
  SELECT m.topic, m.id, m.owner, now - m.since AS age_ms, m.until - now AS left_ms, m.attempts,
         coalesce(p.alive, 0) AS owner_alive
  FROM msg_now, msg_messages AS m LEFT JOIN msg_participants AS p ON p.node = m.owner
  WHERE m.state = 'claimed' AND m.since < now - 60000
  ORDER BY age_ms DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check_retries AS
  SELECT topic, id, state, attempts, owner
  FROM msg_messages
  WHERE attempts >= 3 AND state IN ('ready', 'delayed', 'claimed', 'blocked')
  ORDER BY attempts DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check_dead AS
  SELECT topic, reason, count(*) AS messages, max(attempts) AS attempts, min(id) AS example
  FROM msg_messages
  WHERE state = 'dead'
  GROUP BY topic, reason
  ORDER BY messages DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check_blocked AS
  SELECT head.topic, head."group", head.state AS head_state, head.id AS head, head.owner,
         count(*) AS waiting
  FROM msg_messages AS head
  JOIN msg_messages AS follower
    ON follower.topic = head.topic AND follower."group" = head."group" AND follower.state = 'blocked'
  WHERE head."group" IS NOT NULL AND head.state IN ('delayed', 'claimed')
  GROUP BY head.id
  ORDER BY waiting DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check_deaf AS
  SELECT m.topic, count(*) AS messages, max(now - m.timestamp) AS oldest_age_ms
  FROM msg_now, msg_messages AS m LEFT JOIN msg_topics AS t ON t.topic = m.topic
  WHERE m.state = 'ready' AND NOT m.exclusive AND m.recipients IS NULL AND m.processed_by = '[]'
    AND coalesce(t.listeners, 0) = 0
  GROUP BY m.topic
  ORDER BY messages DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check_participants AS
  SELECT node, host, pid, heartbeat_age_ms
  FROM msg_participants
  WHERE NOT alive
  ORDER BY heartbeat_age_ms;

CREATE TEMP VIEW IF NOT EXISTS msg_check_lanes AS
  SELECT lane, owner, depth
  FROM msg_lanes
  WHERE orphan AND depth > 0
  ORDER BY depth DESC;

CREATE TEMP VIEW IF NOT EXISTS msg_check AS
  SELECT 'unclaimed' AS trouble, count(*) AS found, 'start a worker that claims the topic' AS "what to do",
         'msg_check_unclaimed' AS "more in"
  FROM msg_check_unclaimed HAVING count(*)
  UNION ALL
  SELECT 'claimed for long', count(*), 'a worker is slow or hangs; DELETE FROM msg_locks frees a claim',
         'msg_check_long_claims' FROM msg_check_long_claims HAVING count(*)
  UNION ALL
  SELECT 'retried', count(*), 'look at the worker''s errors; msg_reject(id, reason) ends it',
         'msg_check_retries' FROM msg_check_retries HAVING count(*)
  UNION ALL
  SELECT 'dead letters', sum(messages), 'mend the reason, then msg_redrive(topic), or msg_purge(topic)',
         'msg_check_dead' FROM msg_check_dead HAVING count(*)
  UNION ALL
  SELECT 'groups held up', count(*), 'the head of the group must be settled first',
         'msg_check_blocked' FROM msg_check_blocked HAVING count(*)
  UNION ALL
  SELECT 'nobody listens', count(*), 'listen before sending, or msg_enqueue what must not be missed',
         'msg_check_deaf' FROM msg_check_deaf HAVING count(*)
  UNION ALL
  SELECT 'participants gone', count(*), 'DELETE FROM msg_participants WHERE NOT alive',
         'msg_check_participants' FROM msg_check_participants HAVING count(*)
  UNION ALL
  SELECT 'orphaned lanes', count(*), 'start the node again, or purge its messages',
         'msg_check_lanes' FROM msg_check_lanes HAVING count(*);

CREATE TEMP VIEW IF NOT EXISTS msg_dashboard AS
  SELECT t.topic, t.depth, t.ready, t.claimed, t.delayed, t.dead, t.listeners, t.paused,
         round(t.oldest_age_ms / 1000.0, 1) AS oldest_s
  FROM msg_topics AS t
  ORDER BY t.depth DESC, t.topic;

CREATE TEMP VIEW IF NOT EXISTS msg_dashboard_ages AS
  SELECT topic, count(*) AS waiting,
         sum(age < 1000) AS "under 1 s", sum(age >= 1000 AND age < 60000) AS "under 1 min",
         sum(age >= 60000 AND age < 3600000) AS "under 1 h", sum(age >= 3600000) AS "older"
  FROM (SELECT topic, now - timestamp AS age FROM msg_messages, msg_now
        WHERE state IN ('ready', 'delayed', 'claimed', 'blocked'))
  GROUP BY topic
  ORDER BY waiting DESC;
