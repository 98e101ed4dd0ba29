"""msg_listeners: nodes elsewhere, by their answers to status requests."""
import time

from harness import Case, date, golden, long, main, now_ms, oid, until

ROWS = "SELECT pattern FROM msg_listeners WHERE node = ? AND NOT here ORDER BY 1"


class Listeners(Case):
    def answer(self, sender, *topics, age_ms=0, life_ms=30000):
        document = golden("status_answer_messaging_only")
        document["_id"], document["sender"] = oid(), sender
        document["timestamp"] = long(now_ms() - age_ms)
        document["delete_at"] = date(now_ms() - age_ms + life_ms)
        if topics:
            document["map_value"]["message_listeners_by_name"] = {t: ["Listener"] for t in topics}
        self.insert(document)

    def test_a_java_nodes_topics_are_shown(self):
        n = self.db("c-node")
        n.one("SELECT msg_listen('here')")
        self.answer("Java_1")
        self.assertEqual(n.column(ROWS, "Java_1"), ["ask", "order.created", "slow"])
        self.assertEqual(n.rows("SELECT node, pattern FROM msg_listeners WHERE here"), [("c-node", "here")])

    def test_the_newest_answer_counts(self):
        n = self.db("c-node")
        self.answer("Java_1", "new", "status")
        self.answer("Java_1", "old", age_ms=5000)
        self.answer("Java_2", "other", age_ms=2000)
        self.assertEqual(n.column(ROWS, "Java_1"), ["new", "status"])
        self.assertEqual(n.column(ROWS, "Java_2"), ["other"])

    def test_an_answer_that_expired_says_nothing(self):
        n = self.db("c-node")
        self.answer("Java_1", "old", age_ms=40000)
        self.assertEqual(n.column(ROWS, "Java_1"), [])

    def test_what_this_process_answered_is_not_news(self):
        n = self.db("c-node")
        n.one("SELECT msg_listen('here')")
        self.answer("c-node", "no more")
        self.assertEqual(n.column("SELECT pattern FROM msg_listeners"), ["here"])

    def test_another_process_of_ours(self):
        n, java = self.db("c-node"), self.java("Java_1").start()
        w = self.worker("elsewhere")
        w.one("SELECT msg_listen('there')")
        w.one("SELECT msg_send('warm', 'up')")
        until(lambda: self.answers_of(java, "elsewhere"))  # its thread may just have begun
        self.assertEqual(n.column(ROWS, "elsewhere"), ["there"])

    def answers_of(self, java, node):
        """To one more request, if they come within a second."""
        id = java.send("morphium.status_info", msg="status", value="ALL")
        end = time.monotonic() + 1
        while time.monotonic() < end:
            answers = [m for m in java.answers.get(id, []) if m["sender"] == node]
            if answers:
                return answers
            time.sleep(0.02)
        return []


if __name__ == "__main__":
    main()
