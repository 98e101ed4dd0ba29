"""Sends that are checked: for somebody alive who listens, for recipients that live."""
import sqlite3

import support


class Registry(support.Case):
    def node(self, id=None, **options):
        return self.db(id, dict({"registry_enabled": True}, **options))

    def refused(self, text, n, topic, **options):
        return self.assertFails("msg: MISUSE: send on '%s': %s" % (topic, text), lambda: n.send(topic, "x", **options))

    def warnings(self, n):
        return n.rows("SELECT item, value FROM msg_doctor WHERE item IN ('nobody listens', 'not alive') ORDER BY 1, 2")

    def sent(self, n):
        return n.column("SELECT topic FROM msg_messages WHERE topic NOT LIKE 'morphium%' ORDER BY seq")

    def test_a_topic_that_nobody_listens_to(self):
        n, other = self.node("n", registry_check_topics="throw"), self.db("other")
        text = self.refused("nobody alive listens to this topic", n, "news")
        self.assertIn("set registry_check_topics to 'warn'", text)
        n.one("SELECT msg_listen('news')")  # nobody is handed his own
        self.refused("nobody", n, "news")
        other.one("SELECT msg_listen('/^new/')")
        self.assertTrue(n.send("news"))
        self.refused("nobody", n, "olds")
        self.assertEqual(self.sent(n), ["news"])

    def test_a_listener_that_was_killed(self):
        w = self.worker("w")
        w.one("SELECT msg_listen('news')")
        n = self.node("n", registry_check_topics="throw")
        w.kill()
        self.refused("nobody", n, "news")
        w = self.worker("w")
        w.one("SELECT msg_listen('news')")
        self.assertTrue(n.send("news"))

    def test_every_way_to_send(self):
        n = self.node("n", registry_check_topics="throw")
        for sql in ("SELECT msg_send('news', 1)", "SELECT msg_request('news', 1, 1000)",
                    "SELECT * FROM msg_request('news', 1, 1000)",
                    "INSERT INTO msg_messages(topic, value) VALUES('news', 1)",
                    "INSERT INTO msg_messages(topic, value) SELECT 'news', value FROM json_each('[1,2]')"):
            self.assertFails("nobody", n.rows, sql)
        n.rows("CREATE VIRTUAL TABLE temp.q USING msg_queue(topic='news', a)")
        n.rows("INSERT INTO q(a) VALUES(1)")  # exclusive: it waits
        self.assertEqual(self.sent(n), ["news"])

    def test_within_a_transaction(self):
        n, other = self.node("n", registry_check_topics="throw"), self.db("other")
        n.rows("PRAGMA journal_mode = WAL")
        n.rows("CREATE TABLE t(a)")
        other.one("SELECT msg_listen('news')")
        n.rows("BEGIN")
        n.rows("INSERT INTO t VALUES(1)")
        self.assertTrue(n.send("news"))
        self.refused("nobody", n, "olds")
        n.rows("COMMIT")
        self.assertEqual((self.sent(n), n.one("SELECT count(*) FROM t")), (["news"], 1))
        n.rows("BEGIN")
        self.assertTrue(n.send("news"))
        n.rows("ROLLBACK")
        self.assertEqual(self.sent(n), ["news"])

    def test_recipients(self):
        n = self.node("n", registry_check_recipients="throw")
        self.db("here")
        text = self.refused("recipient 'gone' is not alive", n, "t", recipient="gone")
        self.assertIn("msg_participants", text)
        self.refused("recipient 'gone'", n, "t", recipients=["here", "gone"])
        self.refused("recipient 'gone'", n, "t", recipient="gone", exclusive=True)
        self.assertTrue(n.send("t", recipients=["here", "n"]))
        self.assertTrue(n.send("nobody listens"))
        self.assertEqual(self.sent(n), ["t", "nobody listens"])

    def test_warn(self):
        n = self.node("n", registry_check_topics="warn", registry_check_recipients="warn")
        for _ in "12":
            self.assertTrue(n.send("news"))
            self.assertTrue(n.send("t", recipient="gone"))
        self.assertEqual(self.warnings(n), [("nobody listens", "news"), ("not alive", "gone")])
        gone = self.db("gone")
        gone.one("SELECT msg_listen('news')")
        self.assertTrue(n.send("news"))
        self.assertTrue(n.send("t", recipient="gone"))
        self.assertEqual(self.warnings(n), [])
        self.assertEqual(len(self.sent(n)), 6)

    def test_the_last_sixteen_are_remembered(self):
        n = self.node("n", registry_check_topics="warn")
        for i in range(20):
            n.send("topic%02d" % i)
        self.assertEqual([value for _, value in self.warnings(n)], ["topic%02d" % i for i in range(4, 20)])

    def test_at_run_time(self):
        n = self.node("n")
        self.assertTrue(n.send("news"))
        n.rows("UPDATE msg_settings SET value = 'throw' WHERE name = 'registry_check_topics'")
        self.refused("nobody", n, "news")
        n.one("SELECT msg_config('registry_check_topics', 'ignore')")
        self.assertTrue(n.send("news"))
        for name in ("registry_enabled", "registry_update_interval_s"):
            self.assertFails("fixed while the node is open", n.one, "SELECT msg_config(?, 1)", name)

    def test_only_with_the_registry(self):
        self.assertFails("registry_enabled", lambda: self.db("a", {"registry_check_topics": "throw"}))
        n = self.db("b", {"registry_check_topics": "ignore"})
        for name in ("registry_check_topics", "registry_check_recipients"):
            self.assertFails("registry_enabled is false", n.one, "SELECT msg_config(?, 'warn')", name)

    def test_an_answer_to_one_who_is_gone(self):
        n, asks = self.node("n", registry_check_recipients="throw"), self.db("asks")
        n.one("SELECT msg_listen('ask')")
        self.assertIsNone(asks.one("SELECT msg_request('ask', 'q', 1)"))
        request = n.wait("ask", 20000)
        asks.one("SELECT msg_close()")
        with self.assertRaisesRegex(sqlite3.OperationalError, "'asks' is not alive"):
            n.one("SELECT msg_reply(?, 'r')", request["id"])


if __name__ == "__main__":
    support.main()
