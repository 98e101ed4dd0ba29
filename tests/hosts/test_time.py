"""Time: how long messages live, that expired ones are never handed out, and waits that end without a commit."""
import time

import support


class Life(support.Case):
    def life(self, db, id):
        return db.one("SELECT delete_at - timestamp FROM msg_messages WHERE id = ?", id)

    def test_broadcasts_live_30_s_by_default(self):
        a = self.db("a")
        self.assertEqual(self.life(a, a.send("news", 1)), 30000)

    def test_the_default_is_a_setting(self):
        a = self.db("a", {"default_ttl_ms": 1234})
        self.assertEqual(self.life(a, a.send("news", 1)), 1234)

    def test_ttl_of_one_message(self):
        a = self.db("a")
        self.assertEqual(self.life(a, a.send("news", 1, ttl_ms=77)), 77)
        self.assertEqual(self.life(a, a.enqueue("work", 1, ttl_ms=78)), 78)

    def test_exclusive_messages_live_until_done(self):
        a = self.db("a")
        self.assertIsNone(self.life(a, a.enqueue("work", 1)))

    def test_a_broadcast_without_time_limit(self):
        a = self.db("a")
        id = a.send("news", 1, timing_out=False)
        self.assertEqual(a.rows("SELECT ttl, timing_out, delete_at FROM msg_messages WHERE id = ?", id),
                         [(0, 0, None)])

    def test_ttl_can_be_changed(self):
        a = self.db("a")
        id = a.send("news", 1)
        a.rows("UPDATE msg_messages SET ttl = 60000 WHERE id = ?", id)
        left = a.one("SELECT delete_at FROM msg_messages WHERE id = ?", id) - time.time() * 1000
        self.assertTrue(50000 < left <= 60000, left)


class Expiry(support.Case):
    def test_an_expired_broadcast_is_never_handed_out(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        id = b.send("news", 1, ttl_ms=40)
        time.sleep(0.06)
        self.assertEqual(a.values("news"), [])
        self.assertIn(a.state(id), (None, "expired"))

    def test_an_expired_direct_message_is_never_handed_out(self):
        a, b = self.db("a"), self.db("b")
        b.send("private", 1, recipient="a", ttl_ms=40)
        time.sleep(0.06)
        self.assertEqual(a.values(), [])

    def test_an_expired_exclusive_message_is_never_claimed(self):
        a = self.db("a")
        a.enqueue("work", 1, ttl_ms=40)
        a.enqueue("work", 2, ttl_ms=60000)
        time.sleep(0.06)
        self.assertEqual([m["value"] for m in a.claims("work")], [2])

    def test_more_expired_ones_than_one_sweep_takes_are_not_handed_out_either(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('*')")
        b.rows("""INSERT INTO msg_messages(topic, value, exclusive, ttl)
                  WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 999)
                  SELECT 't', i, i % 2, 50 FROM n""")
        b.enqueue("t", "claim me", ttl_ms=60000)
        b.send("t", "await me", ttl_ms=60000)
        time.sleep(0.07)
        self.assertEqual(a.values(), ["await me"])
        self.assertEqual([m["value"] for m in a.claims("t")], ["claim me"])

        def swept():
            a.claim("t")
            return a.one("SELECT count(*) FROM msg_messages") == 2
        support.until(swept)

    def test_a_claimed_message_does_not_expire_under_its_owner(self):
        a = self.db("a")
        id = a.enqueue("work", 1, ttl_ms=1000)
        got = a.claim("work")
        time.sleep(1.05)
        self.db("b").claim("work")
        self.assertEqual(a.state(id), "claimed")
        self.assertEqual(a.one("SELECT msg_ack(?, ?)", id, got["token"]), 1)

    def test_what_is_past_its_delay_shows_as_ready_before_it_is_swept(self):
        a = self.db("a")
        for options in ({}, {"recipients": ["x", "y"]}):
            a.send("t", 1, delay_ms=200, **options)
            a.enqueue("t", 1, delay_ms=200, **options)
        a.enqueue("t", 1, delay_ms=200, group="g")
        a.enqueue("t", 1, group="g")
        a.enqueue("t", 1, delay_ms=100000)
        time.sleep(.3)
        self.assertEqual(a.rows("SELECT state, count(*) FROM msg_messages GROUP BY state"),
                         [("blocked", 1), ("delayed", 1), ("ready", 5)])
        for state, n in (("ready", 5), ("delayed", 1), ("blocked", 1)):
            for where in ("", " AND topic = 't'", " AND seq > 0", " AND id > '0'", " AND priority = 1000"):
                self.assertEqual(a.one("SELECT count(*) FROM msg_messages WHERE state = ?" + where, state), n, where)
        self.assertEqual(a.rows("SELECT ready, delayed, blocked FROM msg_topics"), [(5, 1, 1)])
        self.assertEqual(a.rows("SELECT ready, delayed, blocked FROM msg_queues"), [(5, 1, 1)])

    def test_expired_shows_as_state(self):
        a = self.db("a")
        id = a.enqueue("work", 1, ttl_ms=20)
        time.sleep(0.03)
        self.assertIn(a.state(id), ("expired", None))
        self.assertEqual(a.rows("SELECT id FROM msg_messages WHERE state = 'ready'"), [])


class Sleepers(support.Case):
    """A waiter wakes for what no commit tells of. Each test waits up to 15 s for what is due after 0.2 s."""

    def test_for_a_delay_that_ends(self):
        a = self.db("a")
        a.enqueue("work", 1, delay_ms=200)
        begin = time.monotonic()
        self.assertEqual(a.claim("work", 1000, 15000)["value"], 1)
        self.assertLess(time.monotonic() - begin, 3)

    def test_for_a_delayed_broadcast(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        b.send("news", 1, delay_ms=200)
        begin = time.monotonic()
        self.assertEqual(a.wait("news", 15000)["value"], 1)
        self.assertLess(time.monotonic() - begin, 3)

    def test_for_a_lease_that_ends(self):
        a, b = self.db("a"), self.db("b")
        a.enqueue("work", 1)
        b.claim("work", 200)
        begin = time.monotonic()
        self.assertEqual(a.claim("work", 1000, 15000)["attempts"], 2)
        self.assertLess(time.monotonic() - begin, 3)

    def test_for_a_delay_that_another_process_commits_during_the_wait(self):
        a, w = self.db("a"), self.worker("w")
        waiting = support.Background(a.claim, "work", 1000, 15000)
        time.sleep(0.1)
        w.rows("""SELECT msg_enqueue('work', 1, '{"delay_ms":200}')""")
        self.assertEqual(waiting.result()["value"], 1)
        self.assertLess(waiting.seconds, 3)

    def test_for_the_end_of_a_group_head(self):
        a, b = self.db("a"), self.db("b")
        a.enqueue("work", 0, group="g", ttl_ms=1000)
        a.enqueue("work", 1, group="g")
        a.enqueue("work", 2, recipient="nobody")
        self.assertEqual(b.claim("work", 1200)["value"], 0)
        begin = time.monotonic()
        self.assertEqual(a.claim("work", 1000, 15000)["value"], 1)  # the head expires with its lease
        self.assertLess(time.monotonic() - begin, 4)


if __name__ == "__main__":
    support.main()
