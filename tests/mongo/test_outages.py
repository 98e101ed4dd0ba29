"""Servers that are away for long while messages flow, and a reader that was. MSG_FAULT_STOPPED_S,
MSG_FAULT_AWAY_S: for how long."""
import os
import signal
import time

from harness import main
from load import Case, Listener, Load, Sender

STOPPED_S = float(os.environ.get("MSG_FAULT_STOPPED_S") or 30)
AWAY_S = float(os.environ.get("MSG_FAULT_AWAY_S") or 60)
BOUND_S = 15  # of a call: write_timeout_ms, the search for a server (5 s each), and some room


class Primary(Case):
    def test_sigstop(self):
        with Load(self) as load:
            primary = self.cluster.primary()
            load.fault()
            primary.suspend()
            try:
                time.sleep(STOPPED_S)
            finally:
                primary.resume()
            load.until_busy(50)
            load.account("SIGSTOP of the primary for %.0f s" % STOPPED_S)
            self.assertLess(load.longest_s(), BOUND_S)

    def test_all_nodes_away(self):
        with Load(self) as load:
            load.fault()
            for node in self.cluster.nodes:
                node.kill()
            time.sleep(AWAY_S)
            self.assertTrue(all(p.errors for p in load.of(Sender)), "no error while all are away")
            for node in self.cluster.nodes:
                node.start()
            self.cluster.primary()
            load.until_busy(50)
            load.account("all nodes away for %.0f s" % AWAY_S)
            self.assertLess(load.longest_s(), BOUND_S)


class History(Case):
    nodes, args = 1, ("--syncdelay", "1")  # the oplog keeps what no checkpoint has

    def test_the_oplog_rolled_over(self):
        """A reader that was stopped comes back to a history that is gone."""
        with Load(self) as load:
            reader = load.of(Listener)[0]
            reader.worker.process.send_signal(signal.SIGSTOP)
            load.fault()
            try:
                self.roll_oplog(time.time() + 1)
            finally:
                reader.worker.process.send_signal(signal.SIGCONT)
            load.until_busy(20)
            load.account("oplog rolled over")

    def roll_oplog(self, beyond_s):
        """Write until its oldest entry is younger than that."""
        filler = [{"t": "x" * 1000000}] * 8
        with self.cluster.primary().admin() as admin:
            for _ in range(200):
                admin.insert("filler", "f", *filler)
                admin.run("filler", {"drop": "f"})
                if self.oldest_s(admin) > beyond_s:
                    return
        self.fail("the oplog did not roll over")

    def oldest_s(self, admin):
        return admin.find("local", "oplog.rs", sort={"$natural": 1}, limit=1,
                          singleBatch=True)[0]["ts"]["$timestamp"]["t"]


if __name__ == "__main__":
    main()
