"""Batches: what is claimed together is settled together or one by one, with the same result."""
import json
import random
import time

import support

N = 40


class Batches(support.Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.db("a"), self.db("b")
        self.a.rows("PRAGMA journal_mode = WAL")
        self.fill()

    def fill(self, n=N):
        self.a.rows("""INSERT INTO msg_messages(topic, value, exclusive)
                       WITH RECURSIVE s(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM s WHERE i < ?)
                       SELECT 'work', i, 1 FROM s""", n)

    def batch(self, db=None, lease_ms=30000):
        got = (db or self.a).claims("work", N, lease_ms)
        self.assertEqual(len(got), N)
        return got

    def settle(self, verb, rows, *args, db=None, tokens=True):
        items = [{"id": r["id"], "token": r["token"]} if tokens else r["id"] for r in rows]
        marks = "".join(", ?" for _ in args)
        return (db or self.a).one("SELECT msg_%s(?%s)" % (verb, marks), json.dumps(items), *args)

    def counts(self):
        """Ready, claimed, depth of the topic; and rows shown by state."""
        topic = self.b.rows("SELECT ready, claimed, depth FROM msg_topics WHERE topic = 'work'")
        shown = self.b.rows("SELECT state, count(*) FROM msg_messages GROUP BY 1 ORDER BY 1")
        self.assertEqual(self.b.one("SELECT total(depth) FROM msg_queues"),
                         self.b.one("SELECT total(depth) FROM msg_topics"))
        return (topic[0] if topic else (0, 0, 0)), dict(shown)

    def test_all_at_once(self):
        for tokens in (True, False):
            rows = self.batch()
            self.assertEqual(self.counts(), ((0, N, N), {"claimed": N}))
            self.assertEqual(self.settle("ack", rows, tokens=tokens), N)
            self.assertEqual(self.counts(), ((0, 0, 0), {}))
            self.assertEqual(self.b.rows("SELECT * FROM msg_locks"), [])
            self.assertIsNone(self.a.state(rows[3]["id"]))
            self.assertEqual(self.settle("ack", rows, tokens=tokens), 0)
            self.assertEqual(self.settle("extend", rows, 60000, tokens=tokens), 0)
            self.assertEqual(self.settle("release", rows, tokens=tokens), 0)
            self.assertIsNone(self.b.claim("work"))
            self.a.rows("DELETE FROM msg_messages WHERE id = ?", rows[0]["id"])
            self.a.rows("UPDATE msg_messages SET priority = 1 WHERE id = ?", rows[0]["id"])
            self.assertEqual(self.counts(), ((0, 0, 0), {}))
            self.fill()

    def test_one_by_one(self):
        rows = self.batch()
        for i, row in enumerate(rows):
            self.assertEqual(self.a.one("SELECT msg_ack(?, ?)", row["id"], row["token"]), 1)
            if i in (0, 20):
                self.assertEqual(self.counts()[0], (0, N - 1 - i, N - 1 - i))
        self.assertEqual(self.counts(), ((0, 0, 0), {}))

    def test_a_part_then_all(self):
        rows = self.batch()
        self.assertEqual(self.settle("ack", rows[:5], db=self.b), 5)
        self.assertEqual(self.settle("ack", rows), N - 5)
        self.assertEqual(self.counts(), ((0, 0, 0), {}))

    def test_ids_given_twice_and_strangers_count_once(self):
        rows = self.batch()
        stranger = dict(rows[0], id="0" * 23 + "1")
        self.assertEqual(self.settle("ack", rows + rows[:3] + [stranger]), N)
        self.assertEqual(self.counts(), ((0, 0, 0), {}))

    def test_with_the_token_of_another_claim_nothing_is_done(self):
        rows = self.batch()
        self.assertEqual(self.settle("ack", [dict(r, token="f" * 24) for r in rows]), 0)
        self.assertEqual(self.settle("ack", rows, db=self.b, tokens=False), 0)  # not b's
        self.assertEqual(self.counts()[0], (0, N, N))
        self.assertEqual(self.settle("ack", rows, db=self.b), N)

    def test_two_batches_by_one_ack(self):
        self.fill()
        rows = self.batch() + self.batch()
        random.shuffle(rows)
        self.assertEqual(self.settle("ack", rows, tokens=False), 2 * N)
        self.assertEqual(self.counts(), ((0, 0, 0), {}))

    def test_other_verbs(self):
        rows = self.batch()
        self.assertEqual(self.settle("extend", rows, 60000), N)
        self.assertEqual(self.settle("reject", rows[:2], "bad"), 2)
        self.assertEqual(self.settle("release", rows[2:12]), 10)
        self.assertEqual(self.settle("ack", rows), N - 12)
        self.assertEqual(self.counts(), ((10, 0, 10), {"ready": 10, "dead": 2}))
        self.assertEqual({r["attempts"] for r in self.a.claims("work", N)}, {2})

    def test_one_that_is_deleted_or_freed_is_not_acked(self):
        rows = self.batch()
        self.b.rows("DELETE FROM msg_messages WHERE id = ?", rows[0]["id"])
        self.b.rows("DELETE FROM msg_locks WHERE id = ?", rows[1]["id"])
        self.assertEqual(self.settle("ack", rows), N - 2)
        self.assertEqual(self.counts(), ((1, 0, 1), {"ready": 1}))

    def test_a_lease_that_ends(self):
        rows = self.batch(lease_ms=support.SHORT_MS)
        again = []
        support.until(lambda: again.extend(self.b.claims("work", N)) or len(again) == N)
        self.assertEqual(sorted(r["id"] for r in again), sorted(r["id"] for r in rows))
        self.assertEqual({r["attempts"] for r in again}, {2})
        self.assertEqual(self.settle("ack", rows), 0)
        self.assertEqual(self.settle("ack", rows, tokens=False), 0)
        self.assertEqual(self.settle("ack", again, db=self.b), N)
        self.assertEqual(self.counts(), ((0, 0, 0), {}))

    def test_what_was_acked_does_not_come_back_when_its_lease_ends(self):
        self.assertEqual(self.settle("ack", self.batch(lease_ms=4000)), N)
        end = time.monotonic() + 4.2
        while time.monotonic() < end:
            self.assertIsNone(self.b.claim("work"))
            time.sleep(0.1)
        self.assertEqual(self.counts(), ((0, 0, 0), {}))
        self.assertEqual(self.a.one("SELECT msg_purge('work')"), 0)

    def test_in_a_transaction(self):
        rows = self.batch()
        self.a.rows("BEGIN")
        self.assertEqual(self.settle("ack", rows), N)
        self.a.rows("ROLLBACK")
        self.assertEqual(self.counts()[0], (0, N, N))
        self.a.rows("BEGIN")
        self.assertEqual(self.settle("ack", rows[:7]), 7)
        self.a.enqueue("next", 1)
        self.a.rows("COMMIT")
        self.assertEqual(self.counts()[0], (0, N - 7, N - 7))
        self.a.rows("BEGIN")
        self.assertEqual(self.settle("ack", rows[7:]), N - 7)
        self.a.rows("COMMIT")
        self.assertEqual(self.counts()[0], (0, 0, 0))
        self.fill()
        self.a.rows("BEGIN")
        rows = self.batch()
        self.assertEqual(self.settle("ack", rows), N)
        self.a.rows("COMMIT")
        self.assertEqual(self.counts()[0], (0, 0, 0))

    def test_a_rollback_gives_them_back(self):
        self.a.rows("BEGIN")
        self.batch()
        self.a.rows("ROLLBACK")
        self.assertEqual(self.counts()[0], (N, 0, N))
        self.assertEqual(len(self.b.claims("work", N)), N)

    def test_a_consumer_that_is_killed_gives_them_back(self):
        worker = self.worker("w")
        worker.rows("SELECT id FROM msg_claim('work', %d, 500)" % N)
        worker.kill()
        got = []
        support.until(lambda: got.extend(self.b.claims("work", N)) or len(got) == N)
        self.assertEqual(self.settle("ack", got, db=self.b), N)

    def test_acks_that_race_count_each_message_once(self):
        """All of it by its owner, parts of it by two others who have its token."""
        others = [self.worker("w-%d" % i) for i in range(2)]
        for round in range(10):
            rows = self.batch()
            parts = [random.sample(rows, random.randrange(1, N)) for _ in others]
            for w, part in zip(others, parts):
                w.start("SELECT msg_ack(?)", json.dumps(
                    [{"id": r["id"], "token": r["token"]} for r in part]))
            done = self.settle("ack", rows, tokens=bool(round % 2))
            done += sum(w.result()[0][0] for w in others)
            self.assertEqual(done, N)
            self.assertEqual(self.counts(), ((0, 0, 0), {}))
            self.fill()


if __name__ == "__main__":
    support.main()
