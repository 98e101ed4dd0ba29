"""Claim owns: one owner at a time, a lease that ends returns the message, dead letters with a reason."""
import json
import time

import support


class Ownership(support.Case):
    def test_one_owner_at_a_time(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", "job")
        got = a.claim("work")
        self.assertEqual((got["id"], got["value"], got["attempts"]), (id, "job", 1))
        self.assertRegex(got["token"], "^[0-9a-f]{24}$")
        self.assertIsNone(b.claim("work"))
        self.assertIsNone(a.claim("work"))

    def test_ones_own_message_may_be_claimed_and_ack_removes_it(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        a.claim("work")
        self.assertEqual(a.state(id), "claimed")
        self.assertEqual(a.one("SELECT msg_ack(?)", id), 1)
        self.assertIsNone(a.state(id))
        self.assertEqual(a.one("SELECT msg_ack(?)", id), 0)

    def test_send_with_exclusive_is_enqueue(self):
        a = self.db("a")
        id = a.send("work", 1, exclusive=True, timing_out=False)
        self.assertEqual(a.claim("work")["id"], id)

    def test_enqueued_messages_do_not_expire(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        self.assertEqual(a.rows("SELECT delete_at, ttl, timing_out FROM msg_messages WHERE id = ?", id),
                         [(None, 0, 0)])

    def test_processes_claim_each_message_exactly_once(self):
        a = self.db("a")
        a.rows("PRAGMA journal_mode = WAL")
        a.rows("""INSERT INTO msg_messages(topic, value, exclusive)
                  WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 399)
                  SELECT 'work', i, 1 FROM n""")
        workers = [self.worker() for _ in range(3)]
        got = []
        while True:
            for worker in workers:
                worker.start("""SELECT value, msg_ack(id, token) FROM
                                (SELECT * FROM msg_claim('work', 10))""")
            batch = [row for worker in workers for row in worker.result()]
            if not batch:
                break
            got += batch
        self.assertEqual(sorted(got), [[i, 1] for i in range(400)])
        self.assertEqual(a.one("SELECT count(*) FROM msg_messages"), 0)

    def test_threads_claim_each_message_exactly_once(self):
        a = self.db("a")
        a.rows("PRAGMA journal_mode = WAL")
        for i in range(60):
            a.enqueue("work", i)

        def work():
            db = self.db()
            got = []
            while message := db.claim("work"):
                got.append(message["value"])
                if db.one("SELECT msg_ack(?, ?)", message["id"], message["token"]) != 1:
                    raise AssertionError("not acknowledged")
            return got

        threads = [support.Background(work) for _ in range(4)]
        got = [value for thread in threads for value in thread.result(60)]
        self.assertEqual(sorted(got), list(range(60)))

    def test_count_and_limit(self):
        a = self.db("a")
        for i in range(10):
            a.enqueue("work", i)
        self.assertEqual([m["value"] for m in a.claims("work", 3)], [0, 1, 2])
        self.assertEqual(a.column("SELECT value FROM msg_claim('work', 100) LIMIT 2"), [3, 4])
        self.assertEqual(a.one("SELECT count(*) FROM msg_messages WHERE state = 'claimed'"), 5)

    def test_locks_show_owner_since_until_and_delete_frees(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        before = time.time() * 1000
        got = a.claim("work", 60000)
        lock = b.dicts("SELECT * FROM msg_locks")[0]
        self.assertEqual((lock["id"], lock["topic"], lock["owner"]), (id, "work", "a"))
        self.assertAlmostEqual(lock["since"], before, delta=2000)
        self.assertEqual(lock["until"] - lock["since"], 60000)
        b.rows("DELETE FROM msg_locks WHERE id = ?", id)
        self.assertEqual(b.rows("SELECT * FROM msg_locks"), [])
        self.assertEqual(b.claim("work")["id"], id)
        self.assertEqual(a.one("SELECT msg_ack(?, ?)", id, got["token"]), 0)


class Leases(support.Case):
    def test_a_lease_that_ends_returns_the_message(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        a.claim("work", support.SHORT_MS)
        again = support.until(lambda: b.claim("work"))
        self.assertEqual((again["id"], again["attempts"]), (id, 2))

    def test_a_late_ack_gives_0_and_changes_nothing(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        first = a.claim("work", support.SHORT_MS)
        second = support.until(lambda: b.claim("work"))
        before = a.dump()
        for verb in ("msg_ack(?1)", "msg_ack(?1, ?2)", "msg_release(?1)", "msg_release(?1, ?2)",
                     "msg_extend(?1, 1000)", "msg_extend(?1, 1000, ?2)", "msg_reject(?1, 'bad')",
                     "msg_reject(?1, 'bad', ?2)"):
            args = (id, first["token"]) if "?2" in verb else (id,)
            self.assertEqual(a.one("SELECT " + verb, *args), 0, verb)
        self.assertEqual(a.dump(), before)
        self.assertEqual(b.one("SELECT msg_ack(?, ?)", id, second["token"]), 1)

    def test_an_ack_after_the_lease_gives_0_also_when_nobody_else_came(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        got = a.claim("work", support.SHORT_MS)
        time.sleep(support.SHORT_MS / 1000 + 0.02)
        self.assertEqual(a.one("SELECT msg_ack(?, ?)", id, got["token"]), 0)
        self.assertEqual(a.one("SELECT msg_ack(?)", id), 0)
        self.assertEqual(a.claim("work")["id"], id)

    def test_the_token_of_an_earlier_claim_of_the_same_node_does_not_settle(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        first = a.claim("work", support.SHORT_MS)
        second = support.until(lambda: a.claim("work"))
        self.assertNotEqual(first["token"], second["token"])
        self.assertEqual(a.one("SELECT msg_ack(?, ?)", id, first["token"]), 0)
        self.assertEqual(a.one("SELECT msg_ack(?, ?)", id, second["token"]), 1)

    def test_without_token_only_the_owner_settles_with_token_anybody_who_has_it(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        got = a.claim("work")
        self.assertEqual(b.one("SELECT msg_ack(?)", id), 0)
        self.assertEqual(b.one("SELECT msg_ack(?, ?)", id, got["token"]), 1)

    def test_extend_moves_the_end(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        a.claim("work", 1000)
        self.assertEqual(a.one("SELECT msg_extend(?, 60000)", id), 1)
        time.sleep(1.05)
        self.assertIsNone(b.claim("work"))
        self.assertEqual(a.one("SELECT msg_ack(?)", id), 1)

    def test_the_default_lease_is_30_s_and_a_setting(self):
        a = self.db("a")
        a.enqueue("work", 1)
        a.one("SELECT msg_claim('work')")
        self.assertEqual(a.column("SELECT until - since FROM msg_locks"), [30000])
        a.one("SELECT msg_config('lease_ms', 5000)")
        a.enqueue("work", 2)
        a.one("SELECT msg_claim('work')")
        self.assertEqual(a.column("SELECT until - since FROM msg_locks ORDER BY 1"), [5000, 30000])


class Settling(support.Case):
    def test_release_makes_it_ready_and_keeps_attempts(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        a.claim("work")
        self.assertEqual(a.one("SELECT msg_release(?)", id), 1)
        self.assertEqual(a.state(id), "ready")
        self.assertEqual(b.claim("work")["attempts"], 2)

    def test_release_with_a_delay(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        got = a.claim("work")
        self.assertEqual(a.one("SELECT msg_release(?, ?, 60000)", id, got["token"]), 1)
        self.assertEqual(a.state(id), "delayed")
        self.assertIsNone(a.claim("work"))
        a.rows("UPDATE msg_messages SET deliver_at = ?", int(time.time() * 1000) + 100)
        again = support.until(lambda: a.claim("work"))
        self.assertEqual(again["attempts"], 2)
        self.assertGreaterEqual(time.time() * 1000, again["deliver_at"])

    def test_a_null_token_is_no_token(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        a.claim("work")
        self.assertEqual(a.one("SELECT msg_release(?, NULL, 60000)", id), 1)
        self.assertEqual(a.state(id), "delayed")

    def test_json_arrays_of_ids_and_of_ids_with_tokens(self):
        a, b = self.db("a"), self.db("b")
        ids = [a.enqueue("work", i) for i in range(6)]
        got = a.claims("work", 4)
        foreign = b.claim("work")
        batch = [got[0]["id"], foreign["id"], ids[5], got[1]["id"]]
        self.assertEqual(a.one("SELECT msg_ack(?)", json.dumps(batch)), 2)
        self.assertEqual([a.state(id) for id in ids],
                         [None, None, "claimed", "claimed", "claimed", "ready"])
        pairs = [{"id": m["id"], "token": m["token"]} for m in got[2:3]] + [
            {"id": got[3]["id"], "token": foreign["token"]}]
        self.assertEqual(b.one("SELECT msg_ack(?)", json.dumps(pairs)), 1)
        self.assertEqual([a.state(id) for id in ids[2:4]], [None, "claimed"])
        self.assertEqual(a.one("SELECT msg_ack('[]')"), 0)

    def test_an_array_may_be_written_in_any_way(self):
        a = self.db("a")
        for shape in (' \n[ "{0}" ,\t"{1}"\r\n] ', '["{0}","{1}"]', '["{0}", {{"id": "{1}"}}]',
                      '[{{"id": "{0}"}}, "{1}"]', '["\\u0030{2}", "{1}"]', '["{1}","{0}","{1}"]'):
            ids = [a.send("work", i, exclusive=True) for i in range(2)]
            while not ids[0].startswith("0"):  # its first digit is written as an escape
                ids[0] = "0" + ids[0][1:]
                a.rows("DELETE FROM msg_messages WHERE value = 0")
                a.rows("INSERT INTO msg_messages(id, topic, value, exclusive) VALUES(?, 'work', 0, 1)", ids[0])
            self.assertEqual(len(a.claims("work", 2)), 2)
            text = shape.format(ids[0], ids[1], ids[0][1:])
            with self.subTest(text):
                self.assertEqual(a.one("SELECT msg_ack(?)", text), 2)
        ids = [a.enqueue("work", i) for i in range(2)]
        a.claims("work", 2)
        for shape in ('["{0}","{1}"', '["{0}""{1}"]', '["{0}","{1}"]]', '["{0}","{1}x"]',
                      '["{0}","{1}"] x', '["{0}",5]', '["{0}",,"{1}"]'):
            with self.subTest(shape), self.assertRaisesRegex(Exception, "msg: INVALID"):
                a.one("SELECT msg_ack(?)", shape.format(*ids))
        self.assertEqual(a.one("SELECT msg_ack(?)", json.dumps([id.upper() for id in ids])), 2)

    def test_each_settling_verb_takes_a_batch(self):
        a = self.db("a")
        for i in range(4):
            a.enqueue("work", i)
        ids = json.dumps([m["id"] for m in a.claims("work", 4)])
        self.assertEqual(a.one("SELECT msg_extend(?, 90000)", ids), 4)
        self.assertEqual(a.one("SELECT count(*) FROM msg_locks WHERE until - since > 80000"), 4)
        self.assertEqual(a.one("SELECT msg_release(?)", ids), 4)
        a.claims("work", 4)
        self.assertEqual(a.one("SELECT msg_reject(?, 'all bad')", ids), 4)
        self.assertEqual(a.column("SELECT DISTINCT reason FROM msg_messages"), ["all bad"])

    def test_a_claimed_batch_is_settled_with_its_own_rows(self):
        a = self.db("a")
        for i in range(5):
            a.enqueue("work", i)
        a.rows("CREATE TEMP TABLE batch AS SELECT id, token, value FROM msg_claim('work', 10)")
        self.assertEqual(a.one("""SELECT msg_ack((SELECT json_group_array(
                                  json_object('id', id, 'token', token)) FROM batch))"""), 5)
        self.assertEqual(a.one("SELECT count(*) FROM msg_messages"), 0)

    def test_a_batch_leaves_what_another_has_in_between(self):
        a, b = self.db("a"), self.db("b")
        ids = [a.enqueue("work", i, priority=p) for i, p in enumerate([1, 2, 1, 1])]
        self.assertEqual([m["id"] for m in a.claims("work", 3)], [ids[0], ids[2], ids[3]])
        self.assertEqual(b.claim("work")["id"], ids[1])
        self.assertEqual(a.one("SELECT msg_ack(?)", json.dumps(ids)), 3)
        self.assertEqual([a.state(id) for id in ids], [None, "claimed", None, None])
        self.assertEqual(a.one("SELECT msg_ack(?)", json.dumps(ids)), 0)
        self.assertEqual(b.one("SELECT msg_ack(?)", json.dumps(ids)), 1)

    def test_the_columns_of_a_claim_are_those_of_the_message(self):
        a = self.db("a")
        columns = ("id, topic, value, msg, map, additional, sender, sender_host, in_answer_to, priority,"
                   " timestamp, deliver_at, delete_at, key, \"group\"").split(", ")
        for i in range(len(columns)):
            a.rows("SELECT msg_enqueue('work', ?, ?)", i,
                   json.dumps({"priority": 7, "msg": "m", "map": {"a": i}, "additional": ["b"], "key": str(i)}))
        rows = a.rows("SELECT %s FROM msg_messages" % ", ".join(columns))
        for i, column in enumerate(columns):
            with self.subTest(column):  # what is not asked for may not be read
                self.assertEqual(a.rows("SELECT value, %s FROM msg_claim('work')" % column), [(i, rows[i][i])])


class DeadLetters(support.Case):
    def test_reject_keeps_it_with_a_reason_and_redrive_brings_it_back(self):
        a, b = self.db("a"), self.db("b")
        id = a.enqueue("work", 1)
        a.claim("work")
        self.assertEqual(a.one("SELECT msg_reject(?, 'no such customer')", id), 1)
        self.assertEqual(b.rows("SELECT state, reason FROM msg_messages WHERE id = ?", id),
                         [("dead", "no such customer")])
        self.assertEqual(b.one("SELECT dead FROM msg_topics WHERE topic = 'work'"), 1)
        self.assertIsNone(b.claim("work"))
        self.assertEqual(b.one("SELECT msg_redrive('work')"), 1)
        self.assertEqual(b.one("SELECT msg_redrive('work')"), 0)
        again = b.claim("work")
        self.assertEqual((again["id"], again["attempts"]), (id, 1))
        self.assertIsNone(b.one("SELECT reason FROM msg_messages WHERE id = ?", id))

    def test_redrive_takes_patterns(self):
        a = self.db("a")
        for topic in ("x.a", "x.b", "y"):
            a.enqueue(topic, 1)
            a.one("SELECT msg_reject(?, 'bad')", a.claim(topic)["id"])
        self.assertEqual(a.one("SELECT msg_redrive('x.*')"), 2)
        self.assertEqual(a.column("SELECT topic FROM msg_messages WHERE state = 'dead'"), ["y"])

    def test_after_20_deliveries_it_is_dead(self):
        a = self.db("a")
        id = a.enqueue("work", "poison")
        for attempt in range(1, 21):
            self.assertEqual(a.claim("work")["attempts"], attempt)
            a.one("SELECT msg_release(?)", id)
        self.assertIsNone(a.claim("work"))
        self.assertEqual(a.rows("SELECT state, reason, attempts FROM msg_messages"),
                         [("dead", "max_attempts", 20)])

    def test_max_attempts_by_leases_that_end(self):
        a = self.db("a", {"max_attempts": 2})
        a.enqueue("work", "poison")
        for attempt in (1, 2):
            got = support.until(lambda: a.claim("work", support.SHORT_MS))
            self.assertEqual(got["attempts"], attempt)
        time.sleep(support.SHORT_MS / 1000 + 0.02)
        self.assertIsNone(a.claim("work"))
        self.assertEqual(a.rows("SELECT state, reason FROM msg_messages"), [("dead", "max_attempts")])

    def test_deliveries_rolled_back_count(self):
        a = self.db("a")
        a.enqueue("work", 1)
        for _ in range(3):
            a.rows("BEGIN")
            self.assertIsNotNone(a.claim("work"))
            a.rows("ROLLBACK")
            self.assertEqual(a.one("SELECT state FROM msg_messages"), "ready")
        self.assertEqual(a.claim("work")["attempts"], 4)

    def test_deliveries_rolled_back_to_a_savepoint_count(self):
        a = self.db("a")
        a.enqueue("work", 1)
        a.rows("BEGIN")
        a.rows("SAVEPOINT s")
        self.assertEqual(a.claim("work")["attempts"], 1)
        a.rows("ROLLBACK TO s")
        a.rows("COMMIT")
        self.assertEqual(a.claim("work")["attempts"], 2)

    def test_poison_that_always_rolls_back_dies(self):
        a = self.db("a", {"max_attempts": 3})
        a.enqueue("work", "poison")
        for _ in range(3):
            a.rows("BEGIN")
            self.assertIsNotNone(a.claim("work"))
            a.rows("ROLLBACK")
        self.assertIsNone(a.claim("work"))
        self.assertEqual(a.rows("SELECT state, reason FROM msg_messages"), [("dead", "max_attempts")])

    def test_dead_letters_do_not_expire(self):
        a = self.db("a")
        id = a.enqueue("work", 1, ttl_ms=1000)
        a.claim("work")
        a.one("SELECT msg_reject(?, 'bad')", id)
        time.sleep(1.05)
        a.claim("work")
        self.assertEqual(a.state(id), "dead")
        self.assertEqual(a.one("SELECT msg_redrive('work')"), 1)
        self.assertEqual(a.claim("work")["id"], id)  # with a new life


class Administration(support.Case):
    def test_purge_removes_all_but_the_claimed(self):
        a = self.db("a")
        for i in range(4):
            a.enqueue("work", i)
        a.enqueue("work", "later", delay_ms=60000)
        a.send("work", "broadcast")
        a.enqueue("other", 1)
        kept = a.claim("work")
        self.assertEqual(a.one("SELECT msg_purge('work')"), 5)
        self.assertEqual(sorted(a.rows("SELECT topic, state FROM msg_messages")),
                         [("other", "ready"), ("work", "claimed")])
        self.assertEqual(a.one("SELECT msg_ack(?)", kept["id"]), 1)

    def test_a_claim_where_only_broadcasts_wait_is_noted(self):
        a = self.db("a")
        self.db("b").send("news", 1)
        self.assertIsNone(a.claim("news"))
        note = a.one("SELECT note FROM msg_topics WHERE topic = 'news'")
        self.assertIn("broadcast", note)
        self.assertIn("news", a.one("SELECT msg_doctor()"))
        # and not where exclusive messages are the matter
        a.enqueue("work", 1)
        a.claim("work")
        a.claim("work")
        self.assertIsNone(a.one("SELECT note FROM msg_topics WHERE topic = 'work'"))

    def test_counts_of_topics_and_queues(self):
        a = self.db("a")
        for i in range(5):
            a.enqueue("work", i)
        a.enqueue("work", 9, delay_ms=60000)
        a.one("SELECT msg_reject(?, 'bad')", a.claim("work")["id"])
        a.claim("work")
        self.assertEqual(
            a.dicts("SELECT topic, depth, ready, claimed, delayed, dead FROM msg_topics"),
            [{"topic": "work", "depth": 5, "ready": 3, "claimed": 1, "delayed": 1, "dead": 1}])
        self.assertEqual(
            a.dicts("SELECT queue, depth, ready, claimed, delayed, dead FROM msg_queues"),
            [{"queue": "msg", "depth": 5, "ready": 3, "claimed": 1, "delayed": 1, "dead": 1}])

    def test_queues_are_apart(self):
        a, b = self.db("a"), self.db("a2", {"queue": "other"})
        a.enqueue("work", "in msg")
        b.enqueue("work", "in other")
        self.assertEqual(b.claim("work")["value"], "in other")
        self.assertIsNone(b.claim("work"))
        self.assertEqual(a.column("SELECT value FROM msg_messages"), ["in msg"])
        self.assertEqual(a.column("SELECT queue FROM msg_queues ORDER BY 1"), ["msg", "other"])


if __name__ == "__main__":
    support.main()
