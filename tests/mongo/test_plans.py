"""What the server did for each verb, by its profiler: every query goes by an index, none sorts in
memory, and a claim reads as little with many waiting as with few. Counted, not timed.
"""
from harness import Case, java_message, main, until

MANY = 5000
SHOWN = ("op", "ns", "planSummary", "keysExamined", "docsExamined", "command")
SMALL = ("msg_participants", "msg_listeners")  # a document a node


class Profiled(Case):
    def fill(self, topic, **fields):
        for _ in range(MANY // 500):
            self.insert(*[java_message(topic, ttl_ms=0, **fields) for _ in range(500)])

    def profiled(self, fn):
        """The profiler's rows of what fn() made the server do in our collections."""
        self.admin.run(self.database, {"profile": 2})
        try:
            fn()
        finally:
            self.admin.run(self.database, {"profile": 0})
        rows = self.find(collection="system.profile")
        self.admin.run(self.database, {"drop": "system.profile"})
        return [r for r in rows if r.get("ns", "").startswith(self.database + ".msg")]


class Plans(Profiled):
    indexes = "full"

    def setUp(self):
        super().setUp()
        self.n = self.db("c-node", {"use_change_stream": False, "indexes": self.indexes})
        self.n.one("SELECT msg_listen('cast')")
        self.n.enqueue("t", "warm")
        self.fill("t", exclusive=True)

    def check(self, fn, most, sorts=False):
        """Index scans only, and at most `most` documents or keys read by any command."""
        rows = self.profiled(fn)
        self.assertTrue(rows)
        for row in rows:
            if row["ns"].partition(".")[2] in SMALL or row.get("op") == "insert":
                continue
            what = {k: row.get(k) for k in SHOWN}
            self.assertNotIn("COLLSCAN", row.get("planSummary", ""), what)
            self.assertTrue(sorts or not row.get("hasSortStage"), what)
            self.assertLessEqual(max(row.get("keysExamined", 0), row.get("docsExamined", 0)), most,
                                 what)
        return rows

    def claim_and_ack(self, pattern, count):
        rows = self.n.claims(pattern, count)
        self.assertEqual(len(rows), count)
        for row in rows:
            self.n.one("SELECT msg_ack(?, ?)", row["id"], row["token"])

    def test_a_claim_of_one(self):
        self.check(lambda: self.claim_and_ack("t", 1), 300)

    def test_a_claim_of_a_hundred(self):
        self.check(lambda: self.claim_and_ack("t", 100), 1000)

    def test_a_claim_by_a_pattern(self):
        self.fill("t2", exclusive=True)
        self.check(lambda: self.claim_and_ack("[t]*", 10), 1000)

    def test_a_claim_where_none_waits(self):
        self.check(lambda: self.n.claim("nothing"), 300)

    def test_a_claim_behind_many_that_are_marked(self):
        self.fill("u", exclusive=True, processed_by=["somebody"])
        self.n.enqueue("u", "free")
        self.check(lambda: self.claim_and_ack("u", 1), 300)

    def test_a_claim_of_what_bears_no_mark_at_all(self):
        self.insert(java_message("v", exclusive=True, processed_by=None, ttl_ms=0))
        bare = java_message("v", exclusive=True, ttl_ms=0)
        del bare["processed_by"]
        self.insert(bare)
        self.check(lambda: self.claim_and_ack("v", 2), 300)

    def test_a_claim_behind_many_that_are_delayed(self):
        self.n.rows("""
            WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 2000)
            INSERT INTO msg_messages(topic, value, exclusive, deliver_at)
            SELECT 'd', i, 1, (unixepoch() + 3600) * 1000 FROM s""")
        self.n.enqueue("d", "now")
        self.check(lambda: self.claim_and_ack("d", 1), 600)

    def test_an_await(self):
        self.insert(java_message("cast", value="x"))
        self.check(lambda: self.assertEqual(self.n.wait("cast")["value"], "x"), 600, sorts=True)

    def test_an_await_behind_many_exclusive_ones(self):
        self.n.one("SELECT msg_listen('t')")
        self.insert(java_message("t", value="x"))
        self.check(lambda: self.assertEqual(self.n.wait("t")["value"], "x"), 600, sorts=True)

    def test_by_id(self):
        id = self.n.enqueue("t", "x")
        self.check(lambda: self.n.rows("SELECT * FROM msg_messages WHERE id = ?", id), 1)

    def test_sends(self):
        self.check(lambda: (self.n.enqueue("t", "x"), self.n.send("cast", "x")), 300)


class Lean(Plans):
    indexes = "lean"


class Wide(Profiled):
    """Many collections: what is due next in any of them is asked by one command."""

    def test_the_next_deadline(self):
        n = self.db("c-node", {"layout": "dual"})
        for i in range(30):
            n.send("t", "x", recipient="to-%d" % i)
        n.enqueue("t", "warm")
        n.claim("t")
        self.fill("t", exclusive=False)
        rows = self.profiled(lambda: (n.claim("nothing"), until(self.looks)))
        self.assertFalse([r for r in rows if r["op"] == "query" and "_dm_to-" in r["ns"]])
        looks = [r for r in rows if self.is_look(r)]
        self.assertLessEqual(max(r["docsExamined"] for r in looks), 300)
        self.assertLessEqual(max(r["keysExamined"] for r in looks), 300)

    def looks(self):
        return [r for r in self.find(collection="system.profile") if self.is_look(r)]

    @staticmethod
    def is_look(row):
        pipeline = row.get("command", {}).get("pipeline", [])
        return "$unionWith" in str(pipeline) and "sq.until" in str(pipeline[0])


if __name__ == "__main__":
    main()
