"""Writes whose outcome the client does not learn: done, but answered with an error. The server's own
fail points make them. Nothing is lost by them, nothing is owned or handed out twice.
"""
from harness import OwnServer, main

import support


class Ambiguous(OwnServer):
    def setUp(self):
        super().setUp()
        self.n = self.db("c-node")
        self.sender = self.db("sender")
        self.n.one("SELECT msg_listen('news')")
        self.addCleanup(self.fail_point, "off")

    def fail_point(self, mode, **data):
        command = {"configureFailPoint": "failCommand", "mode": mode}
        if data:
            command["data"] = data
        self.admin.run("admin", command)

    def unknown(self, *commands, times=1):
        """The next ones are carried out, and answered as if no majority had confirmed them."""
        self.fail_point({"times": times}, failCommands=list(commands),
                        writeConcernError={"code": 64, "errmsg": "waiting for replication timed out"})

    def test_a_seen_mark(self):
        self.sender.send("news", "x", ttl_ms=600000)
        self.unknown("update")
        self.assertRaises(support.sqlite3.Error, self.n.wait, "news", 5000)
        self.assertEqual(self.n.wait("news", 10000)["value"], "x")
        self.assertIsNone(self.n.wait("news", 500))

    def test_a_claim(self):
        self.sender.enqueue("work", "x")
        self.unknown("update")
        self.assertRaises(support.sqlite3.Error, self.n.claim, "work")
        self.assertEqual(self.n.claim("work", wait_ms=10000)["value"], "x")
        self.assertIsNone(self.n.claim("work"))


if __name__ == "__main__":
    main()
