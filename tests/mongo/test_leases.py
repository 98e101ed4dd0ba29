"""A claim of many has a lease: one document, by which all of it is acked with one write."""
import json
import time

from harness import OwnServer, date, main, now_ms, support, until

N = 40


class Leases(OwnServer):
    def setUp(self):
        super().setUp()
        self.n = self.db("n", {"write_timeout_ms": 3000})
        self.fill()

    def fill(self, db=None):
        (db or self.n).rows("""INSERT INTO msg_messages(topic, value, exclusive)
            WITH RECURSIVE s(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM s WHERE i < ?)
            SELECT 'work', i, 1 FROM s""", N)

    def claim(self, lease_ms=30000):
        rows = self.n.claims("work", N, lease_ms)
        self.assertEqual(len(rows), N)
        return rows

    def ack(self, rows, db=None):
        return (db or self.n).one("SELECT msg_ack(?)", self.items(rows))

    @staticmethod
    def items(rows):
        return json.dumps([{"id": r["id"], "token": r["token"]} for r in rows])

    def block(self, command):
        """The next such command on the leases takes two seconds."""
        self.before = self.entered()
        self.fail_point({"times": 1}, failCommands=[command], blockConnection=True,
                        blockTimeMS=2000, namespace=self.database + ".msg_leases")

    def entered(self):
        """How often since the server started."""
        return self.admin.run("admin", {"getParameter": 1, "failpoint.failCommand": 1})[
            "failpoint.failCommand"]["timesEntered"]

    def is_blocked(self):
        return self.entered() > self.before

    def leases(self):
        return self.find(collection="msg_leases")

    def profiled(self, fn, *args):
        """What fn(*args) wrote, by collection."""
        self.admin.run(self.database, {"profile": 2})
        result = fn(*args)
        self.admin.run(self.database, {"profile": 0})
        wrote = self.find(collection="system.profile",
                          filter={"op": {"$in": ["update", "insert", "remove"]}})
        return result, [w["ns"].partition(".")[2] for w in wrote if "system" not in w["ns"]]

    def test_an_ack_of_all_is_one_write(self):
        rows = self.claim()
        lease = self.leases()
        self.assertEqual([(d["_id"], len(d["ids"]), d["in"]) for d in lease],
                         [(rows[0]["token"], N, "msg")])
        self.assertEqual(self.profiled(self.ack, rows), (N, ["msg_leases"]))
        self.assertTrue(self.leases()[0]["done"])

    def test_few_have_none(self):
        self.n.claims("work", 10)
        self.assertEqual(self.leases(), [])

    def test_where_they_are_acked_singly_the_next_claims_have_none(self):
        for row in self.claim():
            self.n.one("SELECT msg_ack(?)", row["id"])
        self.fill()
        self.claim()
        self.assertEqual(self.leases(), [])

    def test_its_documents_go_when_it_is_over(self):
        self.assertEqual(self.ack(self.claim()), N)
        self.assertEqual(len(self.find()), N)  # until the lease's end
        past = date(now_ms() - 60000)
        self.admin.update(self.database, "msg_leases", {}, {"$set": {"until": past, "at": past}})
        self.admin.update(self.database, "msg", {}, {"$set": {"sq.until": past}}, multi=True)
        until(lambda: [self.n.claim("work"), not self.find() and not self.leases()][1])

    def test_done_just_now_it_stays_for_ten_seconds(self):
        """So that what failed at a COMMIT whose end is unknown can be taken back."""
        self.assertEqual(self.ack(self.claim()), N)
        self.admin.update(self.database, "msg", {}, {"$set": {"sq.until": date(now_ms() - 1)}},
                          multi=True)
        self.assertIsNone(self.n.claim("work"))
        self.assertEqual((len(self.find()), len(self.leases())), (N, 1))
        self.assertIsNone(self.n.claim("work"))

    def test_an_operator_hands_one_out_again(self):
        rows = self.claim()
        self.assertEqual(self.ack(rows), N)
        self.update(rows[0]["id"], {"$set": {"processed_by": []}})
        self.assertEqual(self.n.claim("work")["id"], rows[0]["id"])
        self.assertEqual(self.n.one("SELECT msg_ack(?)", rows[0]["id"]), 1)

    def test_without_its_document_the_messages_speak_for_themselves(self):
        rows = self.claim()
        self.admin.run(self.database, {"drop": "msg_leases"})
        self.assertEqual(self.ack(rows), N)
        self.assertEqual(self.n.one("SELECT count(*) FROM msg_messages"), 0)

    def test_a_claim_that_fails_leaves_none(self):
        self.fail_point({"times": 1}, failCommands=["aggregate"], errorCode=2)
        self.assertRaises(support.sqlite3.Error, self.n.claims, "work", N)
        until(lambda: not self.leases() and self.n.rows("SELECT ready FROM msg_topics") == [(N,)])
        self.claim()

    def test_a_commit_of_unknown_end_is_taken_back(self):
        """And nothing of it is done once another has them."""
        rows, other = self.claim(lease_ms=60000), self.db("other")
        self.fill()
        rows = [r for two in zip(rows, self.claim(lease_ms=60000)) for r in two]
        self.n.rows("BEGIN")
        self.assertEqual(self.ack(rows), 2 * N)
        self.fail_point("alwaysOn", failCommands=["commitTransaction"],
                        writeConcernError={"code": 64, "errmsg": "slow"})
        self.assertRaises(support.sqlite3.Error, self.n.rows, "COMMIT")
        if self.n.con.in_transaction:
            self.n.rows("ROLLBACK")
        self.fail_point("off")
        again = []
        until(lambda: again.extend(other.claims("work", N)) or len(again) == 2 * N)
        self.assertEqual(self.ack(again, other), 2 * N)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.assertEqual(other.claims("work", N), [])

    def test_a_commit_fails_whose_lease_another_broke(self):
        rows = self.claim()
        self.n.rows("BEGIN")
        self.assertEqual(self.ack(rows), N)
        self.db("operator").rows("DELETE FROM msg_locks WHERE id = ?", rows[0]["id"])
        self.assertFails("have ended", self.n.rows, "COMMIT")
        if self.n.con.in_transaction:
            self.n.rows("ROLLBACK")
        self.assertEqual(self.n.rows("SELECT claimed, ready FROM msg_topics"), [(N - 1, 1)])

    def test_where_another_was_faster_with_some_they_are_acked_one_by_one(self):
        """A Java node is done with one of them between our mark and our look at its lock."""
        java, first = self.java("Java_1"), self.find({}, sort={"_id": 1})[0]
        self.assertTrue(java.lock(first))
        self.fail_point("alwaysOn", failCommands=["aggregate"], blockConnection=True,
                        blockTimeMS=2000)
        claim = support.Background(self.n.claims, "work", N)
        until(lambda: self.find({"_id": first["_id"], "sq.state": "claimed"}))
        self.assertTrue(java.mark("msg", first["_id"]))
        java.unlock(first)
        rows = claim.result()
        self.fail_point("off")
        self.assertEqual(len(rows), N - 1)
        self.assertEqual(self.ack(rows), N - 1)
        self.assertEqual((self.leases(), self.n.one("SELECT count(*) FROM msg_locks")), ([], 0))

    def test_one_that_won_nothing_acks_nothing(self):
        """Another is faster, and gives them back; then they are claimed in pieces."""
        other = self.worker("other")
        self.block("update")
        claim = support.Background(self.n.claims, "work", N)
        until(self.is_blocked)
        ids = [r[0] for r in other.rows("SELECT id FROM msg_claim('work', ?)", N)]
        self.assertEqual((len(ids), claim.result()), (N, []))
        self.assertEqual(other.one("SELECT msg_release(?)", json.dumps(ids)), N)
        for _ in range(2):
            self.assertEqual(len(self.n.claims("work", N // 2)), N // 2)
        self.assertEqual(self.n.one("SELECT msg_ack(?)", json.dumps(ids)), N)
        self.assertEqual(self.find({"sq.state": {"$ne": "done"}}), [])

    def test_what_is_released_beside_its_messages_may_be_anothers_at_once(self):
        rows, other = self.claim(), self.db("other")
        self.fill()
        rows += self.n.claims("work", N // 2)
        self.n.claims("work", N // 2)  # what is freed is all there is
        self.block("delete")
        release = support.Background(self.n.one, "SELECT msg_release(?)", self.items(rows))
        theirs = []
        until(lambda: theirs.extend(other.claims("work", N // 2)) or len(theirs) == N // 2)
        self.assertEqual(release.result(), len(rows))
        self.assertEqual(self.ack(theirs, other), N // 2)

    def test_with_a_life_they_have_none(self):
        rows = self.claim()
        self.db("operator").rows("UPDATE msg_messages SET ttl = 60000 WHERE id = ?", rows[0]["id"])
        self.assertEqual(self.leases(), [])
        self.assertEqual(self.ack(rows), N)

    def test_whoever_meets_one_tidies_it_away(self):
        worker = self.worker("worker")
        got = worker.rows("SELECT id, token FROM msg_claim('work', ?)", N)
        self.assertEqual(worker.one("SELECT msg_ack(?)", self.items(
            [{"id": id, "token": token} for id, token in got])), N)
        worker.kill()
        past = date(now_ms() - 60000)
        self.admin.update(self.database, "msg_leases", {}, {"$set": {"until": past, "at": past}})
        self.admin.update(self.database, "msg", {}, {"$set": {"sq.until": past}}, multi=True)
        until(lambda: [self.n.claim("work"), not self.find() and not self.leases()][1])

    def test_of_two_transactions_one_acks_it(self):
        rows, same = self.claim(), self.db("n")
        for db in (self.n, same):
            db.rows("BEGIN")
            self.assertEqual(self.ack(rows, db), N)
        self.n.rows("COMMIT")
        self.assertFails("have ended", same.rows, "COMMIT")

    def test_groups_have_none(self):
        self.n.enqueue("work", 1, group="g")
        self.n.claim("work")
        self.fill()
        rows = self.n.claims("work", 2 * N)
        self.assertEqual(self.leases(), [])
        self.assertEqual(self.ack(rows), len(rows))


if __name__ == "__main__":
    main()
