"""The host's transaction with the messages in MongoDB: they go at COMMIT, with it or not at all,
within write_timeout_ms. Refusals are made by the server's own fail points.
"""
import json

from harness import OwnServer, main, until


class Commit(OwnServer):
    how = {"cache_gb": 1}  # large transactions

    def setUp(self):
        super().setUp()
        self.n = self.db("c-node", {"write_timeout_ms": 2000})
        self.n.rows("CREATE TABLE t(x)")
        self.n.enqueue("warm", "up")

    def sent(self, topic="work"):
        return self.find({"topic": topic})

    def begin(self):
        self.n.rows("BEGIN")
        self.n.rows("INSERT INTO t VALUES (1)")

    def commit_fails(self, text=""):
        self.assertFails(text, self.n.rows, "COMMIT")
        if self.n.con.in_transaction:
            self.n.rows("ROLLBACK")
        self.assertEqual(self.n.rows("SELECT * FROM t"), [])
        self.fail_point("off")

    def test_a_refused_insert_fails_the_commit_and_the_hosts_writes_are_undone(self):
        self.begin()
        self.n.enqueue("work", "x")
        self.fail_point("alwaysOn", failCommands=["insert", "commitTransaction"], errorCode=2)
        self.commit_fails()
        self.assertEqual(self.sent(), [])

    def test_a_server_that_hangs_fails_the_commit_within_the_time(self):
        self.begin()
        self.n.enqueue("work", "x")
        self.fail_point("alwaysOn", failCommands=["insert", "commitTransaction"],
                        blockConnection=True, blockTimeMS=6000)
        self.commit_fails()
        # the insert that hung may still arrive: then it was taken back
        until(lambda: not self.sent())

    def test_a_retryable_error_is_tried_again(self):
        self.begin()
        self.n.enqueue("work", "x")
        self.fail_point({"times": 1}, failCommands=["insert"], errorCode=89,
                        errorLabels=["RetryableWriteError"])
        self.n.rows("COMMIT")
        self.assertEqual(len(self.sent()), 1)

    def test_a_commit_whose_answer_is_lost_adds_once(self):
        self.begin()
        self.n.enqueue("work", "x")
        self.fail_point({"times": 1}, failCommands=["insert"], closeConnection=True)
        self.n.rows("COMMIT")
        self.assertEqual(len(self.sent()), 1)

    def test_sends_and_acks_together(self):
        id = self.n.enqueue("in", "x")
        self.begin()
        self.assertEqual(self.n.claim("in")["id"], id)
        self.n.enqueue("work", "next")
        self.assertEqual(self.n.one("SELECT msg_ack(?)", id), 1)
        self.assertEqual(self.sent(), [])
        self.n.rows("COMMIT")
        self.assertEqual(len(self.sent()), 1)
        self.assertIsNone(self.n.claim("in"))

    def test_an_ack_whose_lease_ended_fails_the_commit_and_nothing_is_sent(self):
        id = self.n.enqueue("in", "x")
        claimed = self.n.claim("in")
        self.begin()
        self.n.enqueue("work", "next")
        self.n.one("SELECT msg_ack(?, ?)", id, claimed["token"])
        self.update(id, {"$set": {"sq.token": "anothers"}})
        self.commit_fails()
        self.assertEqual(self.sent(), [])

    def test_an_unknown_commit_result_is_tried_again(self):
        id = self.n.enqueue("in", "x")
        self.begin()
        self.n.claim("in")
        self.n.one("SELECT msg_ack(?)", id)
        self.n.enqueue("work", "next")
        self.fail_point({"times": 1}, failCommands=["commitTransaction"], closeConnection=True)
        self.n.rows("COMMIT")
        self.assertEqual(len(self.sent()), 1)
        self.assertIsNone(self.n.claim("in"))

    def test_a_rollback_gives_claims_back(self):
        self.n.enqueue("in", "x")
        self.n.rows("BEGIN")
        self.assertIsNotNone(self.n.claim("in"))
        self.n.rows("ROLLBACK")
        self.assertEqual(self.db("other").claim("in", wait_ms=5000)["value"], "x")

    def test_thousands_at_once_or_none(self):
        many = """WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3000)
                  INSERT INTO msg_messages(topic, value, exclusive)
                  SELECT 'work', hex(zeroblob(10000)), 1 FROM s"""  # more than one command may hold
        self.n = self.db("slow-node", {"write_timeout_ms": 60000})
        self.begin()
        self.n.rows(many)
        self.fail_point({"skip": 1}, failCommands=["insert"], errorCode=2)
        self.commit_fails()
        self.assertEqual(len(self.sent()), 0)
        self.begin()
        self.n.rows(many)
        self.n.rows("COMMIT")
        self.assertEqual(len(self.sent()), 3000)

    def test_a_body_beyond_the_servers_limit_is_refused_at_once(self):
        self.begin()
        self.assertFails("16", self.n.enqueue, "work", "x" * (16 << 20))
        self.n.rows("ROLLBACK")

    def test_the_error_names_the_hosts_and_no_options(self):
        self.begin()
        self.n.enqueue("work", "x")
        self.fail_point("alwaysOn", failCommands=["insert"], errorCode=2)
        text = self.assertFails("127.0.0.1", self.n.rows, "COMMIT")
        self.assertNotIn("mongodb://", json.dumps(text))


if __name__ == "__main__":
    main()
