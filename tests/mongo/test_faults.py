"""Three nodes, and what goes wrong with them while messages flow. Each test prints its account."""
import os
import signal
import time

from harness import main, mongod  # first: it says that the messages are in MongoDB
import support
from load import Consumer, Listener, Load, Sender

STOPPED_S = float(os.environ.get("MSG_FAULT_STOPPED_S") or 30)
AWAY_S = float(os.environ.get("MSG_FAULT_AWAY_S") or 60)


class Case(support.Case):
    """A cluster a test: what one fault leaves does not disturb the next."""

    nodes, args = 3, ()

    def setUp(self):
        self.cluster = mongod.Cluster(self.nodes, args=self.args)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.stop)
        self.cluster.until_healthy()
        shared = os.environ.get("MSG_TEST_MONGODB_URI")
        os.environ["MSG_TEST_MONGODB_URI"] = self.cluster.uri(w="majority")
        self.addCleanup(self.restore, shared)
        super().setUp()
        self.look = None

    def restore(self, shared):
        os.environ.pop("MSG_TEST_MONGODB_URI")
        if shared:
            os.environ["MSG_TEST_MONGODB_URI"] = shared

    def drop_database(self):
        """The cluster goes as a whole."""

    def documents(self, values):
        with self.cluster.primary().admin() as admin:
            return admin.find(support.database_of(self.path), "msg", {"value": {"$in": values}})

    def node_rows(self, sql, *args):
        self.look = self.look or self.db("observer")
        return self.look.rows(sql, *args)


class Primary(Case):
    def test_stepdown(self):
        with Load(self) as load:
            load.fault()
            with self.cluster.primary().admin() as admin:
                try:
                    admin.run("admin", {"replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 5})
                except (mongod.CommandError, EOFError):
                    pass  # the connection may go with it
            self.cluster.primary()
            load.until_busy(50)
            self.assertEqual(load.account("stepdown"), 0)

    def test_kill_9(self):
        with Load(self) as load:
            primary = self.cluster.primary()
            load.fault()
            primary.kill()
            self.cluster.primary()
            load.until_busy(50)
            primary.start()
            load.account("kill -9 of the primary")

    def test_sigstop(self):
        with Load(self) as load:
            primary = self.cluster.primary()
            load.fault()
            primary.send(signal.SIGSTOP)
            try:
                time.sleep(STOPPED_S)
            finally:
                primary.send(signal.SIGCONT)
            load.until_busy(50)
            load.account("SIGSTOP of the primary for %.0f s" % STOPPED_S)

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


class Clients(Case):
    def test_kill_9_of_a_sender_and_of_a_consumer(self):
        with Load(self, consumers=3) as load:
            load.fault()
            load.of(Sender)[0].kill()
            load.of(Consumer)[0].kill()
            load.until_busy(50)
            load.account("kill -9 of a sender and of a consumer")

    def test_a_secondary_is_down_while_opening(self):
        primary = self.cluster.primary()
        next(n for n in self.cluster.nodes if n is not primary).kill()
        with Load(self) as load:
            load.fault()
            load.until_busy(20)
            load.account("opened with a secondary down")


class History(Case):
    nodes, args = 1, ("--syncdelay", "1")  # the oplog keeps what no checkpoint has

    def test_the_collection_is_dropped_under_a_running_cursor(self):
        with Load(self) as load:
            for sender in load.of(Sender):  # what is in it goes with it: not a matter of this test
                sender.stopping.set()
                sender.thread.join(60)
            load.drain()
            load.fault()
            with self.cluster.primary().admin() as admin:
                admin.run(support.database_of(self.path), {"drop": "msg"})
            later = load.add(Sender(self.path, "sender-after"))
            load.until_busy(20)
            self.assertTrue(later.sent)
            load.account("collection dropped under a running cursor")

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


class Opening(support.Case):
    """Errors of msg_open: soon, with host and cause, and never a password."""

    def setUp(self):
        super().setUp()
        self.uri = mongod.shared_uri()
        self.host = self.uri.partition("://")[2].partition("/")[0]

    def refused(self, uri, *words):
        db = support.connect(self.path)
        self.addCleanup(db.close)
        began = time.monotonic()
        text = self.assertFails("msg: ", db.execute, "SELECT msg_open(?)", (uri,))
        self.assertLess(time.monotonic() - began, support.PATIENCE_S)
        for word in words:
            self.assertIn(word, text)
        self.assertNotIn("s3cret", text)
        print("%-60s -> %s" % (uri.replace("s3cret", "…"), text))
        return text

    def test_wrong_credentials(self):
        text = self.refused("mongodb://user:s3cret@%s/d?replicaSet=rs0" % self.host, self.host)
        self.assertRegex(text.lower(), "authentication|credential")

    def test_tls_refused(self):
        self.refused("mongodb://user:s3cret@%s/d?replicaSet=rs0&tls=true" % self.host, self.host)

    def test_wrong_replica_set_name(self):
        self.refused("mongodb://%s/d?replicaSet=other" % self.host, self.host, "other")

    def test_dns_failure(self):
        self.refused("mongodb://user:s3cret@no-such-host.invalid/d", "no-such-host.invalid")

    def test_srv_failure(self):
        self.refused("mongodb+srv://user:s3cret@cluster.no-such-host.invalid/d",
                     "cluster.no-such-host.invalid")

    def test_nobody_listens(self):
        port = mongod.free_ports(1)[0]
        self.refused("mongodb://user:s3cret@127.0.0.1:%d/d" % port, "127.0.0.1:%d" % port)

    def test_no_database_named(self):
        self.refused("mongodb://user:s3cret@%s/" % self.host)

    def test_no_connection_string(self):
        self.refused("mongodb://user:s3cret@/@:x")


if __name__ == "__main__":
    main()
