"""Single sends of many threads share inserts: while one is under way the others gather."""
import threading

from harness import Background, OwnServer, main, until
import support

SENDERS, HELD_MS, BOUND_MS = 12, 3000, 3000


class Combining(OwnServer):
    def commands(self, name):
        status = self.admin.run("admin", {"serverStatus": 1})
        return status["metrics"]["commands"][name]["total"]

    def held(self, collection="msg"):
        """Inserts under way."""
        running = self.admin.run("admin", {"currentOp": 1, "command.insert": collection})
        return len(running["inprog"])

    def hold(self, mode, ms):
        self.fail_point(mode, failCommands=["insert"], blockConnection=True, blockTimeMS=ms)


class Combine(Combining):
    def setUp(self):
        super().setUp()
        self.senders = [self.db("sender-%d" % i) for i in range(SENDERS)]
        for s in self.senders:
            s.one("SELECT msg_send('warm', 'up')")

    def test_what_comes_meanwhile_goes_with_the_next(self):
        self.hold({"times": 1}, HELD_MS)
        before = self.commands("insert")
        threads = [threading.Thread(target=s.send, args=("news", "x")) for s in self.senders]
        threads[0].start()
        until(lambda: self.held() == 1)
        for t in threads[1:]:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(self.commands("insert") - before, 2)
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


class Lanes(Combining):
    """Directs to many lanes, each a collection of its own."""

    def setUp(self):
        super().setUp()
        self.senders = [self.db("sender-%d" % i, {"layout": "dual"}) for i in range(SENDERS)]
        for i, s in enumerate(self.senders):
            s.send("warm", "up", recipient="to-%d" % i)

    def news(self, i):
        return self.find({"topic": "news"}, "msg_dm_to-%d" % i)

    def direct(self, i, id=None):
        self.senders[i].one("""
            INSERT INTO msg_messages(id, topic, value, recipients)
            VALUES (coalesce(?, lower(hex(randomblob(12)))), 'news', 'x', ?)""",
                            id, '["to-%d"]' % i)

    def together(self, ids=()):
        """All send, some by given ids; the first is held until the others have gathered."""
        self.hold({"times": 1}, HELD_MS)
        sends = [Background(self.direct, 0)]
        until(lambda: self.held("msg_dm_to-0") == 1)
        sends += [Background(self.direct, i, dict(ids).get(i)) for i in range(1, SENDERS)]
        return sends

    def test_those_to_many_lanes_are_one_write(self):
        before = self.commands("commitTransaction")
        for b in self.together():
            b.result()
        self.assertEqual(self.commands("commitTransaction") - before, 1)
        self.assertEqual([len(self.news(i)) for i in range(SENDERS)], [1] * SENDERS)

    def test_one_that_is_refused_refuses_no_other(self):
        taken = "%024x" % 42
        self.direct(SENDERS - 1, taken)
        *others, refused = self.together({SENDERS - 1: taken})
        for b in others:
            b.result()
        with self.assertRaisesRegex(support.sqlite3.Error, taken + " exists already"):
            refused.result()
        self.assertEqual([len(self.news(i)) for i in range(SENDERS)], [1] * SENDERS)


if __name__ == "__main__":
    main()
