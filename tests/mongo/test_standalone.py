"""One mongod that is no replica set: no change streams, no transactions; waits poll."""
import json

from harness import Background, JavaNode, OwnServer, main


class Standalone(OwnServer):
    how = {"standalone": True}

    def test_send_and_await(self):
        a, b = self.db("a"), self.db("b")
        b.one("SELECT msg_listen('t')")
        waiting = Background(b.wait, "t", 15000)
        a.send("t", "x")
        self.assertEqual(waiting.result()["value"], "x")

    def test_a_claim_that_waits(self):
        a, b = self.db("a"), self.worker("b")
        b.start("SELECT value FROM msg_claim('t', 1, 30000, 15000)")
        a.enqueue("t", "work")
        self.assertEqual(b.result(), [["work"]])

    def test_claim_ack_reject_redrive(self):
        n = self.db("a")
        n.enqueue("t", "work")
        self.assertEqual(n.one("SELECT msg_reject(?, 'no')", n.claim("t")["id"]), 1)
        self.assertEqual(n.one("SELECT msg_redrive('t')"), 1)
        self.assertEqual(n.one("SELECT msg_ack(?)", n.claim("t")["id"]), 1)
        self.assertIsNone(n.claim("t"))

    def test_a_request(self):
        node = JavaNode(self.database, "Java_1", topics=["ask"], answer=lambda m: "a").start()
        self.addCleanup(node.stop)
        self.assertEqual(self.db("a").one("SELECT msg_request('ask', 'q', 15000)"), "a")

    def test_sends_at_commit(self):
        n = self.db("a")
        n.rows("CREATE TABLE t(x)")
        n.rows("BEGIN")
        n.rows("INSERT INTO t VALUES (1)")
        n.enqueue("t", "work")
        self.assertEqual(self.find(), [])
        n.rows("COMMIT")
        self.assertEqual(len(self.find()), 1)
        n.rows("BEGIN")
        n.enqueue("t", "never")
        n.rows("ROLLBACK")
        self.assertEqual(len(self.find()), 1)

    def test_that_it_polls_is_said(self):
        n = self.db("a")
        Background(n.wait, "t", 500).result()
        self.assertIn("poll", json.dumps(n.rows("SELECT * FROM msg_cursors")))
        said = json.dumps(n.rows("SELECT * FROM msg_doctor")).lower()
        self.assertRegex(said, "standalone|replica set")


if __name__ == "__main__":
    main()
