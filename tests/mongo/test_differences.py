"""What README says is otherwise on MongoDB than on the local store, where no other test shows it."""
import json

from harness import Case, main, oid, until


class Differences(Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.db("a"), self.db("b")

    def test_an_await_inside_begin_counts_as_seen(self):
        self.b.one("SELECT msg_listen('news')")
        self.a.send("news", 1)
        self.b.rows("BEGIN")
        self.assertEqual(self.b.wait("news", 5000)["value"], 1)
        self.b.rows("ROLLBACK")
        self.assertIsNone(self.b.wait("news", 500))

    def test_what_was_sent_is_seen_at_commit_by_this_connection_too(self):
        self.a.rows("BEGIN")
        id = self.a.enqueue("work", 1)
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages"), 0)
        self.assertIsNone(self.a.claim("work"))
        self.a.rows("COMMIT")
        self.assertEqual(self.a.claim("work")["id"], id)

    def test_other_changes_are_made_at_once(self):
        for sql in ("DELETE FROM msg_messages", "SELECT msg_purge('work')"):
            self.a.enqueue("work", 1)
            self.a.rows("BEGIN")
            self.a.rows(sql)
            self.assertEqual(self.b.one("SELECT count(*) FROM msg_messages"), 0)
            self.a.rows("ROLLBACK")
            self.assertEqual(self.b.one("SELECT count(*) FROM msg_messages"), 0)

    def test_a_key_sent_before_adds_nothing_at_commit(self):
        first = self.a.enqueue("work", 1, key="k")
        self.assertEqual(self.a.enqueue("work", 2, key="k"), first)
        self.a.rows("BEGIN")
        self.a.enqueue("work", 3, key="k")
        self.a.rows("COMMIT")
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages"), 1)

    def test_what_a_transaction_frees_is_claimed_again_after_commit(self):
        id = self.a.enqueue("work", 1)
        for free in ("SELECT msg_release('%s')" % id, "DELETE FROM msg_locks"):
            self.a.rows("BEGIN")
            self.assertEqual(self.a.claim("work")["id"], id)
            self.a.rows(free)
            self.assertIsNone(self.a.claim("work"))
            self.a.rows("COMMIT")
            self.assertEqual(self.b.claim("work")["id"], id)
            self.b.one("SELECT msg_release(?)", id)

    def test_a_key_sent_before_adds_nothing_in_a_writing_statement_either(self):
        self.a.rows("CREATE TABLE sent(id)")
        for _ in range(2):
            self.a.rows("INSERT INTO sent SELECT msg_enqueue('work', 1, ?)", json.dumps({"key": "k"}))
        self.assertEqual(self.a.one("SELECT count(DISTINCT id) FROM sent"), 2)
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages"), 1)

    def test_a_killed_workers_claim_comes_back_when_its_lease_ends(self):
        id = self.a.enqueue("work", 1)
        worker = self.worker("w")
        worker.rows("SELECT * FROM msg_claim('work', 1, 3000)")
        worker.kill()
        self.assertIsNone(self.b.claim("work"))
        self.assertEqual(self.b.claim("work", wait_ms=20000)["id"], id)

    def done_after_its_lease(self, **how):
        """What was acknowledged just before its lease ended."""
        id = self.a.enqueue("work", 1, **how)
        token = self.a.claim("work", 1000)["token"]
        self.assertEqual(self.a.one("SELECT msg_ack(?, ?)", id, token), 1)
        until(lambda: self.find({"_id": oid(id), "$expr": {
            "$lt": [{"$add": ["$sq.since", 1000]}, "$$NOW"]}}))
        return id

    def test_what_is_done_stays_for_ten_seconds(self):
        """So that an ack that is tried again counts the same, however short the lease was."""
        ids = [self.done_after_its_lease(), self.done_after_its_lease(group="g")]
        self.assertIsNone(self.a.claim("work"))  # it sweeps
        for id in ids:
            self.assertEqual(self.document(id, exact=False)["sq"]["state"], "done")
            self.update(id, [{"$set": {"sq.at": {"$subtract": ["$sq.at", 10000]},
                                       "sq.until": "$$NOW"}}])
        until(lambda: [self.a.claim("work"), not self.find({"topic": "work"})][1])

    def test_a_participant_leaves_with_its_process(self):
        worker = self.worker("w")
        worker.rows("SELECT msg_send('t', 1)")
        alive = "SELECT alive FROM msg_participants WHERE node = 'w'"
        self.assertEqual(self.a.one(alive), 1)
        worker.kill()
        until(lambda: self.a.one(alive) == 0)


if __name__ == "__main__":
    main()
