"""Indexes that another process is still building, which the server lists as if they were there."""
import re

from harness import Background, OwnServer, java_message, main, until


class Indexes(OwnServer):
    def fail_point(self, mode):
        self.admin.run("admin", {"configureFailPoint": "hangAfterStartingIndexBuild", "mode": mode})

    def listed(self):
        indexes = self.admin.run(self.database, {"listIndexes": "msg"})["cursor"]["firstBatch"]
        return [i["name"] for i in indexes]

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
