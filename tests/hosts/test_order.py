"""Order (priority, delivery time, sequence), delay, FIFO groups, de-duplication keys."""
import time

import support


class Order(support.Case):
    def values_of(self, rows):
        return [m["value"] for m in rows]

    def test_claims_by_priority_then_sequence(self):
        a = self.db("a")
        for value, priority in (("c1", 1000), ("a1", -5), ("b1", 10), ("a2", -5), ("c2", 1000), ("b2", 10)):
            a.enqueue("work", value, priority=priority)
        self.assertEqual(self.values_of(a.claims("work")), ["a1", "a2", "b1", "b2", "c1", "c2"])

    def test_claims_one_by_one_in_the_same_order(self):
        a = self.db("a")
        for value, priority in (("c", 1000), ("a", 1), ("b", 2)):
            a.enqueue("work", value, priority=priority)
        self.assertEqual([a.claim("work")["value"] for _ in range(3)], ["a", "b", "c"])

    def test_broadcasts_and_directs_come_in_one_order(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('t')")
        b.send("t", 1)
        b.send("t", 2, recipient="a")
        b.send("t", 0, priority=1)
        b.send("t", 3)
        self.assertEqual(a.values("t"), [0, 1, 2, 3])

    def test_delivery_time_goes_before_sequence(self):
        a = self.db("a")
        now = int(time.time() * 1000)
        for value, at in ((3, now - 1000), (1, now - 3000), (2, now - 2000)):
            a.enqueue("work", value, deliver_at=at)
        self.assertEqual(self.values_of(a.claims("work")), [1, 2, 3])

    def test_mortal_and_immortal_messages_share_one_order(self):
        a = self.db("a")
        a.enqueue("work", 1, ttl_ms=60000)
        a.enqueue("work", 2)
        a.enqueue("work", 3, ttl_ms=60000)
        a.enqueue("work", 0, priority=1)
        a.enqueue("work", 4, recipient="a")
        self.assertEqual(self.values_of(a.claims("work", 2)), [0, 1])
        self.assertEqual(self.values_of(a.claims("work")), [2, 3, 4])

    def test_patterns_merge_topics_in_order(self):
        a = self.db("a")
        for i in range(9):
            a.enqueue("work.%d" % (i % 3), i)
        self.assertEqual(self.values_of(a.claims("work.*", 4)), [0, 1, 2, 3])
        self.assertEqual(self.values_of(a.claims("work.*")), [4, 5, 6, 7, 8])

    def test_a_released_message_takes_its_old_place(self):
        a = self.db("a")
        for i in range(3):
            a.enqueue("work", i)
        a.one("SELECT msg_release(?)", a.claim("work")["id"])
        self.assertEqual(self.values_of(a.claims("work")), [0, 1, 2])


class Delay(support.Case):
    def test_a_delayed_message_is_not_claimed_before_its_time(self):
        a = self.db("a")
        later = a.enqueue("work", 2, delay_ms=60000)
        self.assertEqual(a.state(later), "delayed")
        self.assertIsNone(a.claim("work"))
        id = a.enqueue("work", 1, delay_ms=150)
        got = support.until(lambda: a.claim("work"))
        self.assertEqual(got["id"], id)
        self.assertGreaterEqual(time.time() * 1000, got["deliver_at"])
        self.assertEqual(got["deliver_at"] - got["timestamp"], 150)

    def test_deliver_at(self):
        a = self.db("a")
        at = int(time.time() * 1000) + 60000
        id = a.enqueue("work", 2, deliver_at=at)
        self.assertEqual(a.rows("SELECT state, deliver_at FROM msg_messages WHERE id = ?", id),
                         [("delayed", at)])
        at = int(time.time() * 1000) + 150
        a.enqueue("work", 1, deliver_at=at)
        self.assertEqual(support.until(lambda: a.claim("work"))["deliver_at"], at)
        self.assertGreaterEqual(time.time() * 1000, at)

    def test_a_delayed_broadcast_reaches_those_who_listen_when_it_is_due(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        b.send("news", "late", delay_ms=60000)
        b.send("news", "now")
        self.assertEqual(a.values("news"), ["now"])
        b.rows("UPDATE msg_messages SET deliver_at = 0 WHERE value = 'late'")
        self.assertEqual(a.values("news"), ["late"])
        self.assertEqual(a.values("news"), [])

    def test_a_delayed_broadcast_is_not_lost_behind_many_newer_ones(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        b.rows("BEGIN")
        b.send("news", "late", delay_ms=60000)
        for i in range(100):
            b.send("news", i)
        b.rows("COMMIT")
        self.assertEqual(a.values("news"), list(range(100)))
        b.rows("UPDATE msg_messages SET deliver_at = ? WHERE value = 'late'", int(time.time() * 1000) + 100)
        self.assertEqual(support.until(lambda: a.values("news")), ["late"])

    def test_a_delayed_direct_message(self):
        a, b = self.db("a"), self.db("b")
        b.send("private", 2, recipient="a", delay_ms=60000)
        b.send("private", 1, recipient="a", delay_ms=100)
        self.assertEqual(support.until(a.values), [1])
        self.assertEqual(a.values(), [])

    def test_life_counts_from_delivery(self):
        a = self.db("a")
        id = a.send("news", 1, delay_ms=5000, ttl_ms=1000)
        self.assertEqual(
            a.one("SELECT delete_at - deliver_at FROM msg_messages WHERE id = ?", id), 1000)

    def test_the_delivery_time_can_be_changed(self):
        a = self.db("a")
        id = a.enqueue("work", 1, delay_ms=60000)
        a.rows("UPDATE msg_messages SET deliver_at = 0 WHERE id = ?", id)
        self.assertEqual(a.claim("work")["id"], id)

    def test_the_priority_can_be_changed(self):
        a = self.db("a")
        ids = [a.enqueue("work", i) for i in range(3)]
        a.rows("UPDATE msg_messages SET priority = 1 WHERE id = ?", ids[2])
        self.assertEqual([m["value"] for m in a.claims("work")], [2, 0, 1])


class Groups(support.Case):
    def test_within_a_group_one_at_a_time_in_order_others_go_on(self):
        a, b = self.db("a"), self.db("b")
        for i in range(3):
            for group in ("x", "y"):
                a.enqueue("work", "%s%d" % (group, i), group=group)
        a.enqueue("work", "free")
        first = a.claims("work")
        self.assertEqual([m["value"] for m in first], ["x0", "y0", "free"])
        self.assertEqual(b.claims("work"), [])
        self.assertEqual(a.one("SELECT count(*) FROM msg_messages WHERE state = 'blocked'"), 4)
        a.one("SELECT msg_ack(?)", first[0]["id"])
        self.assertEqual([m["value"] for m in b.claims("work")], ["x1"])
        self.assertEqual(b.claims("work"), [])
        a.one("SELECT msg_ack(?)", first[1]["id"])
        self.assertEqual([m["value"] for m in b.claims("work")], ["y1"])

    def test_priority_does_not_overtake_within_a_group(self):
        a = self.db("a")
        a.enqueue("work", 1, group="g")
        a.enqueue("work", 2, group="g", priority=1)
        got = []
        while message := a.claim("work"):
            got.append(message["value"])
            a.one("SELECT msg_ack(?)", message["id"])
        self.assertEqual(got, [1, 2])

    def test_a_released_head_comes_again_before_its_followers(self):
        a = self.db("a")
        for i in range(2):
            a.enqueue("work", i, group="g")
        a.one("SELECT msg_release(?)", a.claim("work")["id"])
        self.assertEqual(a.claim("work")["value"], 0)
        self.assertIsNone(a.claim("work"))

    def test_a_lease_that_ends_keeps_the_order(self):
        a = self.db("a")
        for i in range(2):
            a.enqueue("work", i, group="g")
        a.claim("work", support.SHORT_MS)
        self.assertEqual(support.until(lambda: a.claim("work"))["value"], 0)

    def test_a_delayed_head_blocks_its_group(self):
        a = self.db("a")
        a.enqueue("work", 0, group="g", delay_ms=60000)
        a.enqueue("work", 1, group="g")
        a.enqueue("work", 2, group="h")
        self.assertEqual([m["value"] for m in a.claims("work")], [2])
        a.rows("UPDATE msg_messages SET deliver_at = 0 WHERE value = 0")
        self.assertEqual([m["value"] for m in a.claims("work")], [0])

    def test_a_dead_head_lets_the_group_go_on(self):
        a = self.db("a")
        for i in range(2):
            a.enqueue("work", i, group="g")
        a.one("SELECT msg_reject(?, 'bad')", a.claim("work")["id"])
        self.assertEqual(a.claim("work")["value"], 1)

    def test_a_redriven_head_waits_for_the_one_claimed_meanwhile(self):
        a = self.db("a")
        for i in range(3):
            a.enqueue("work", i, group="g")
        a.one("SELECT msg_reject(?, 'bad')", a.claim("work")["id"])
        one = a.claim("work")
        self.assertEqual(one["value"], 1)
        a.one("SELECT msg_redrive('work')")
        self.assertIsNone(a.claim("work"))
        a.one("SELECT msg_ack(?)", one["id"])
        got = []
        while message := a.claim("work"):
            got.append(message["value"])
            a.one("SELECT msg_ack(?)", message["id"])
        self.assertEqual(got, [0, 2])

    def test_an_expired_head_lets_the_group_go_on(self):
        a = self.db("a")
        a.enqueue("work", 0, group="g", ttl_ms=60)
        a.enqueue("work", 1, group="g")
        time.sleep(0.08)
        self.assertEqual(a.claim("work")["value"], 1)

    def test_a_removed_head_lets_the_group_go_on(self):
        a = self.db("a")
        head = a.enqueue("work", 0, group="g")
        a.enqueue("work", 1, group="g")
        a.rows("DELETE FROM msg_messages WHERE id = ?", head)
        self.assertEqual(a.claim("work")["value"], 1)

    def test_groups_of_two_topics_are_two(self):
        a = self.db("a")
        a.enqueue("t1", 1, group="g")
        a.enqueue("t2", 2, group="g")
        self.assertEqual(a.claim("t1")["value"], 1)
        self.assertEqual(a.claim("t2")["value"], 2)

    def test_processes_keep_the_order_of_every_group(self):
        a = self.db("a")
        a.rows("PRAGMA journal_mode = WAL")
        a.rows("BEGIN")
        for i in range(20):
            for group in "abc":
                a.enqueue("work", i, group=group)
        a.rows("COMMIT")
        workers = [self.worker() for _ in range(3)]
        seen = {group: [] for group in "abc"}
        while True:
            for worker in workers:
                worker.start("""SELECT id, token, "group", value FROM msg_claim('work', 2)""")
            batches = [worker.result() for worker in workers]
            if not any(batches):
                break
            groups = [row[2] for batch in batches for row in batch]
            self.assertEqual(len(groups), len(set(groups)), "two of one group claimed at a time")
            for worker, batch in zip(workers, batches):
                for id, token, group, value in batch:
                    seen[group].append(value)
                    self.assertEqual(worker.one("SELECT msg_ack(?, ?)", id, token), 1)
        self.assertEqual(seen, {group: list(range(20)) for group in "abc"})


class Keys(support.Case):
    def test_a_second_send_gives_the_first_id_and_adds_nothing(self):
        a, b = self.db("a"), self.db("b")
        first = a.enqueue("work", 1, key="order-1")
        self.assertEqual(b.enqueue("work", 2, key="order-1"), first)
        self.assertEqual(a.column("SELECT value FROM msg_messages"), [1])

    def test_broadcasts_too(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        first = b.send("news", 1, key="k")
        self.assertEqual(b.send("news", 2, key="k"), first)
        self.assertEqual(a.values("news"), [1])

    def test_the_key_outlives_the_message(self):
        a = self.db("a")
        first = a.enqueue("work", 1, key="k")
        a.one("SELECT msg_ack(?)", a.claim("work")["id"])
        self.assertEqual(a.enqueue("work", 2, key="k"), first)
        self.assertIsNone(a.claim("work"))

    def test_after_the_window_it_is_new(self):
        a = self.db("a", {"key_window_ms": 1000})
        first = a.enqueue("work", 1, key="k")
        time.sleep(1.05)
        second = a.enqueue("work", 2, key="k")
        self.assertNotEqual(second, first)
        self.assertEqual(a.enqueue("work", 3, key="k"), second)
        self.assertEqual([m["value"] for m in a.claims("work")], [1, 2])

    def test_the_window_is_5_minutes_by_default(self):
        a = self.db("a")
        self.assertEqual(a.one("SELECT msg_config('key_window_ms')"), 300000)

    def test_a_key_belongs_to_its_topic_and_queue(self):
        a, b = self.db("a"), self.db("b", {"queue": "other"})
        ids = {a.enqueue("t1", 1, key="k"), a.enqueue("t2", 1, key="k"), b.enqueue("t1", 1, key="k")}
        self.assertEqual(len(ids), 3)

    @support.local_only("on MongoDB a send is not seen before COMMIT, by nobody")
    def test_a_rolled_back_key_was_never_seen(self):
        a = self.db("a")
        a.rows("BEGIN")
        first = a.enqueue("work", 1, key="k")
        self.assertEqual(a.enqueue("work", 2, key="k"), first)
        a.rows("ROLLBACK")
        self.assertNotEqual(a.enqueue("work", 3, key="k"), first)
        self.assertEqual([m["value"] for m in a.claims("work")], [3])

    def test_two_of_one_key_in_one_insert(self):
        a = self.db("a")
        a.rows("""INSERT INTO msg_messages(topic, value, exclusive, key)
                  VALUES ('work', 1, 1, 'k'), ('work', 2, 1, 'k'), ('work', 3, 1, 'l')""")
        self.assertEqual([m["value"] for m in a.claims("work")], [1, 3])

    def test_a_chosen_id_may_be_taken_once(self):
        a = self.db("a")
        id = "0123456789abcdef01234567"
        self.assertEqual(a.enqueue("work", 1, id=id), id)
        with self.assertRaises(support.sqlite3.Error) as caught:
            a.enqueue("work", 2, id=id)
        self.assertIn(id, str(caught.exception))
        self.assertEqual([m["value"] for m in a.claims("work")], [1])


if __name__ == "__main__":
    support.main()
