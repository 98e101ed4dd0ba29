"""A majority that is behind its primary: what is written is told by no stream and found by no look
until it has it, and then nobody waits for it any longer.
"""
import contextlib

from harness import OwnServer, Background, home, java_message, main, until


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

    def write(self, topic):
        """By the primary alone."""
        message = java_message(topic, ttl_ms=600000)
        self.admin.run(self.database, {"insert": home(topic), "documents": [message],
                                       "writeConcern": {"w": 1}})
        return message["_id"]["$oid"]

    @staticmethod
    def store_calls(n):
        return n.one("SELECT value FROM msg_stats WHERE name = 'store_calls'")

    def test_a_stream_that_opens_meanwhile(self):
        """It tells what comes behind the last write: that one was found by nobody yet."""
        n, same, other = self.db("n"), self.db("n"), self.db("other")
        n.one("SELECT msg_listen('news')")
        self.write("news")
        self.assertIsNotNone(n.wait("news", 20000))
        waiting = Background(n.wait, "news", 600000)
        until(lambda: other.one("SELECT waiters FROM msg_cursors"))
        with self.lagging():
            id = self.write("news")
            calls = self.store_calls(same)
            other.one("SELECT msg_listen('else')")
            until(lambda: self.store_calls(same) > calls)
        self.assertEqual(waiting.result(60)["id"], id)


if __name__ == "__main__":
    main()
