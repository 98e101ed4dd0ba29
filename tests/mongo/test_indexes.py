"""Which indexes there are: each costs every mark and every send. And such as another process is
still building, which the server lists as if they were there.
"""
import re

from harness import Background, Case, OwnServer, java_message, main, until


class Listing(Case):
    def listed(self):
        """Name: keys."""
        indexes = self.admin.run(self.database, {"listIndexes": "msg"})["cursor"]["firstBatch"]
        return {i["name"]: list(i["key"]) for i in indexes}


class OnDemand(Listing):
    """What is there for groups, directs or answers is made when somebody needs it."""

    def ours(self):
        return {name for name in self.listed() if name.startswith("sq_")}

    def test_who_needs_one_makes_it(self):
        n, few = self.db("n"), {"sq_claim", "sq_topic", "sq_due", "sq_head"}
        n.enqueue("t", "x")
        n.send("t", "x")
        claim = n.claim("t")
        n.one("SELECT msg_ack(?, ?)", claim["id"], claim["token"])
        self.assertEqual(self.ours(), few)
        n.wait("t")
        self.assertEqual(self.ours(), few | {"sq_direct"})
        n.enqueue("t", "x", group="g")
        self.assertEqual(self.ours(), few | {"sq_direct", "sq_group"})
        n.one("SELECT msg_request('t', 'x', 50)")
        self.assertEqual(self.ours(), few | {"sq_direct", "sq_group", "sq_answer"})

    def test_a_mark_and_an_ack_touch_few(self):
        n = self.db("n", {"indexes": "lean"})
        n.enqueue("t", "x")
        self.admin.run(self.database, {"profile": 2})
        claim = n.claim("t")
        n.one("SELECT msg_ack(?, ?)", claim["id"], claim["token"])
        self.admin.run(self.database, {"profile": 0})
        updates = self.find(collection="system.profile",
                            filter={"op": "update", "ns": self.database + ".msg"})
        keys = [(u.get("keysDeleted", 0), u.get("keysInserted", 0)) for u in updates]
        self.assertEqual(keys, [(1, 1), (0, 0)])  # out of sq_claim, into sq_due; nothing


class Older(OwnServer, Listing):
    """A server whose indexes cannot be as narrow as we like."""

    def test_it_gets_a_wide_one(self):
        self.admin.run("admin", {"setFeatureCompatibilityVersion": "5.0"})
        n = self.db("n")
        n.enqueue("t", "first")
        self.insert(java_message("t", exclusive=True, processed_by=None, ttl_ms=0))
        self.assertIn("processed_by", self.listed()["sq_claim"])
        self.assertEqual(len(n.claims("t", 10)), 2)
        self.assertEqual(len(self.db("m").claims("t", 10)), 0)


class Indexes(OwnServer, Listing):
    def fail_point(self, mode):
        self.admin.run("admin", {"configureFailPoint": "hangAfterStartingIndexBuild", "mode": mode})

    def building(self):
        """Commands that make indexes or wait for some."""
        ops = self.admin.run("admin", {"currentOp": 1})["inprog"]
        return len([op for op in ops if op["desc"].startswith("conn")
                    and re.search(r"createIndexes\W+msg\W", str(op.get("command")))])

    def test_a_claim_waits_for_them(self):
        self.insert(*[java_message("t", exclusive=True) for _ in range(2)])
        worker, n = self.worker("w"), self.db("n")
        self.addCleanup(self.fail_point, "off")
        self.fail_point("alwaysOn")
        worker.start("SELECT id FROM msg_claim('t')")
        until(lambda: "sq_claim" in self.listed())
        claim = Background(n.claim, "t")
        until(lambda: self.building() == 2 or not claim.thread.is_alive())
        self.fail_point("off")
        self.assertEqual(len({claim.result()["id"], worker.result()[0][0]}), 2)


if __name__ == "__main__":
    main()
