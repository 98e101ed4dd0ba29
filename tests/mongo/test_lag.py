"""A majority that is behind its primary: what is written is told by no stream and found by no look
until it has it, and then nobody waits for it any longer.
"""
import contextlib

from harness import LAYOUT, OwnServer, Background, home, java_message, lane, main, oid, until


class Lag(OwnServer):
    how = {"nodes": 3}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with cls.cluster.primary().admin() as admin:  # it stays without its majority
            config = admin.exact("admin", {"replSetGetConfig": 1})["config"]
            config["version"] = {"$numberInt": str(int(config["version"]["$numberInt"]) + 1)}
            config["settings"]["electionTimeoutMillis"] = {"$numberInt": "600000"}
            admin.run("admin", {"replSetReconfig": config})

    def setUp(self):
        super().setUp()
        self.n, self.same, self.other = self.db("n"), self.db("n"), self.db("other")
        self.n.one("SELECT msg_listen('news')")

    @contextlib.contextmanager
    def lagging(self):
        primary = self.cluster.primary()
        others = [node for node in self.cluster.nodes if node is not primary]
        try:
            for node in others:
                node.suspend()
            yield
        finally:
            for node in others:
                node.resume()

    def write(self, topic, to=None, **fields):
        """By the primary alone."""
        message = java_message(topic, ttl_ms=600000, recipients=to and [to], **fields)
        collection = lane(to) if to and LAYOUT != "standard" else home(topic)
        self.admin.run(self.database, {"insert": collection, "documents": [message],
                                       "writeConcern": {"w": 1}})
        return message["_id"]["$oid"]

    def waiting(self, fn, *args):
        """In the background, by node n; its stream is open."""
        self.write("news")
        self.assertIsNotNone(self.n.wait("news", 20000))
        waiting = Background(fn, *args)
        until(lambda: self.other.one("SELECT waiters FROM msg_cursors"))
        return waiting

    def open_another_stream(self):
        """Returns when whoever waits looks for what came meanwhile."""
        calls = self.store_calls()
        self.other.one("SELECT msg_listen('else')")
        until(lambda: self.store_calls() > calls)

    def store_calls(self):
        return self.same.one("SELECT value FROM msg_stats WHERE name = 'store_calls'")

    # A stream tells what comes behind the last write when it opens, if it is not told otherwise:
    # what no majority had by then, a look did not find.

    def test_a_broadcast_from_before_a_stream(self):
        waiting = self.waiting(self.n.wait, "news", 600000)
        with self.lagging():
            id = self.write("news")
            self.open_another_stream()
        self.assertEqual(waiting.result(60)["id"], id)

    def test_a_direct_message_from_before_a_stream(self):
        waiting = self.waiting(self.n.wait, None, 600000)
        with self.lagging():
            id = self.write("for_n", to="n")
            self.open_another_stream()
        self.assertEqual(waiting.result(60)["id"], id)

    def test_an_answer_from_before_a_stream(self):
        self.assertIsNone(self.n.one("SELECT msg_request('any', 'x', 1)"))  # makes the index for it
        waiting = self.waiting(self.n.one, "SELECT msg_request('ask', 'x', 600000)")
        asked = self.find({"topic": "ask"}, home("ask"), exact=True)[0]["_id"]["$oid"]
        with self.lagging():
            self.write("ask", to="n", in_answer_to=oid(asked), value="yes")
            self.open_another_stream()
        self.assertEqual(waiting.result(60), "yes")


if __name__ == "__main__":
    main()
