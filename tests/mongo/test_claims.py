"""Claims of one process: they do not race for the same message. And of many at once."""
from harness import Background, OwnServer, main, until

CLAIMERS, HELD_MS = 12, 300


class Claims(OwnServer):
    def test_each_is_at_another(self):
        nodes = [self.db("n-%d" % i) for i in range(CLAIMERS)]
        for i, n in enumerate(nodes):
            n.enqueue("work", i)
        self.fail_point("alwaysOn", failCommands=["update"], blockConnection=True, blockTimeMS=HELD_MS)
        claims = [Background(n.claim, "work") for n in nodes]
        got = [b.result() for b in claims]
        self.assertEqual(sorted(m["value"] if m else -1 for m in got), list(range(CLAIMERS)))

    def test_what_is_left_over_is_claimed_next(self):
        """A claim that fails lets go of what it was at."""
        a, b = self.db("a"), self.db("b")
        a.enqueue("work", 1)
        self.fail_point({"times": 1}, failCommands=["update"], errorCode=2)
        self.assertRaises(Exception, a.claim, "work")
        self.assertEqual(b.claim("work")["value"], 1)


class Gone(OwnServer):
    """Lanes and topics come and go: what is dropped under a step of a claim has nothing."""

    NAMESPACE_NOT_FOUND, QUERY_PLAN_KILLED = 26, 175
    STEPS = [("find", QUERY_PLAN_KILLED), ("update", QUERY_PLAN_KILLED),
             ("aggregate", NAMESPACE_NOT_FOUND), ("aggregate", QUERY_PLAN_KILLED)]

    def test_each_step_is_taken_again(self):
        n = self.db("n", {"write_timeout_ms": 1000})
        for i, (command, code) in enumerate(self.STEPS):
            topic = "work-%d" % i
            n.enqueue(topic, 1)
            n.enqueue(topic, 2)
            self.fail_point({"times": 2}, failCommands=[command], errorCode=code)
            self.assertEqual(n.claim(topic)["value"], 1)
            self.fail_point("alwaysOn", failCommands=[command], errorCode=code)
            self.assertFails("msg: ", n.claim, topic)  # it was asked
            self.fail_point("off")


class BesideJava(OwnServer):
    def test_a_java_node_is_done_between_our_mark_and_our_look_at_its_lock(self):
        """Its mark beside ours tells: ours goes at once, not when the lease ends."""
        n, java = self.db("n"), self.java("Java_1")
        n.enqueue("work", 1)
        message = self.find()[0]
        self.assertTrue(java.lock(message))
        self.fail_point("alwaysOn", failCommands=["aggregate"], blockConnection=True,
                        blockTimeMS=2000)
        claim = Background(n.claim, "work")
        until(lambda: self.find()[0]["processed_by"] == ["n"])
        self.assertTrue(java.mark("msg", message["_id"]))
        java.unlock(message)
        self.fail_point("off")
        self.assertIsNone(claim.result())
        after = self.find()[0]
        self.assertEqual(after["processed_by"], ["Java_1"])
        self.assertNotIn("state", after["sq"])
        self.assertEqual(n.rows("SELECT state FROM msg_messages"), [("processed",)])


class Many(OwnServer):
    def test_processes_that_race(self):
        self.db("n").rows("""WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 600)
                             INSERT INTO msg_messages(topic, value, exclusive) SELECT 'work', i, 1 FROM s""")
        workers = [self.worker("w-%d" % i) for i in range(3)]
        got = []

        def claim_all():
            for w in workers:
                w.start("SELECT id FROM msg_claim('work', 40)")
            for w in workers:
                got.extend(row[0] for row in w.result())
            return len(got) >= 600

        until(claim_all)
        self.assertEqual((len(got), len(set(got))), (600, 600))


if __name__ == "__main__":
    main()
