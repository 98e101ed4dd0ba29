"""Single sends of many threads share inserts: while one is under way the others gather."""
import threading

from harness import Background, OwnServer, main, until
import support

SENDERS, HELD_MS, BOUND_MS = 12, 3000, 3000


class Combine(OwnServer):
    def setUp(self):
        super().setUp()
        self.senders = [self.db("sender-%d" % i) for i in range(SENDERS)]
        for s in self.senders:
            s.one("SELECT msg_send('warm', 'up')")

    def inserts(self):
        status = self.admin.run("admin", {"serverStatus": 1})
        return status["metrics"]["commands"]["insert"]["total"]

    def held(self, collection="msg"):
        """Inserts under way."""
        running = self.admin.run("admin", {"currentOp": 1, "command.insert": collection})
        return len(running["inprog"])

    def hold(self, mode, ms):
        self.fail_point(mode, failCommands=["insert"], blockConnection=True, blockTimeMS=ms)

    def test_what_comes_meanwhile_goes_with_the_next(self):
        self.hold({"times": 1}, HELD_MS)
        before = self.inserts()
        threads = [threading.Thread(target=s.send, args=("news", "x")) for s in self.senders]
        threads[0].start()
        until(lambda: self.held() == 1)
        for t in threads[1:]:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(self.inserts() - before, 2)
        self.assertEqual(len(self.find({"topic": "news"})), SENDERS)

    def test_so_many_that_two_batches_are_under_way(self):
        """One gathers, and another may leave it nothing."""
        many, rounds = [self.db("many-%d" % i) for i in range(64)], 50
        sql = """SELECT count(msg_send('news', value)) FROM
                 (WITH c(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM c WHERE value < ?)
                  SELECT value FROM c)"""  # without Python between two of them
        for b in [Background(n.one, sql, rounds) for n in many]:
            b.result(120)
        self.assertEqual(len(self.find({"topic": "news"})), len(many) * rounds)

    def test_behind_a_batch_that_hangs_each_waits_for_its_own_time(self):
        hasty = [self.db("hasty-%d" % i, {"write_timeout_ms": BOUND_MS}) for i in range(3)]
        for n in hasty:
            n.send("warm", "up")
        self.hold("alwaysOn", 2 * BOUND_MS)
        first = Background(hasty[0].send, "news", "x")
        until(lambda: self.held() == 1)
        others = [Background(n.send, "news", "x") for n in hasty[1:]]
        for b in [first, *others]:
            self.assertRaises(support.sqlite3.Error, b.result)
        self.fail_point("off")
        self.assertLess(max(b.seconds for b in others) * 1000, BOUND_MS * 1.5)
        until(lambda: not self.find({"topic": "news"}))

    def test_topics_of_one_collection_do_not_go_together(self):
        """It is refused to the later one, whoever leads."""
        nodes = [self.db("multi-%d" % i, {"layout": "multi"}) for i in range(SENDERS)]
        for n in nodes:
            n.send("warm", "up")
        self.hold({"times": 1}, HELD_MS)
        sends = [Background(nodes[0].send, "a.b", "x")]
        until(lambda: self.held("msg_a_b") == 1)
        sends += [Background(n.send, "a_b" if i % 2 else "a.b", "x")
                  for i, n in enumerate(nodes[1:])]
        for i, b in enumerate(sends):
            if i > 0 and (i - 1) % 2:
                self.assertRaisesRegex(support.sqlite3.Error, "'a_b' and 'a.b'", b.result)
            else:
                b.result()
        self.assertEqual({m["topic"] for m in self.find({}, "msg_a_b")}, {"a.b"})


if __name__ == "__main__":
    main()
