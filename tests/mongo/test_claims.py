"""Claims of one process: they do not race for the same message."""
from harness import Background, OwnServer, main

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


if __name__ == "__main__":
    main()
