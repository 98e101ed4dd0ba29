"""Three nodes, and what goes wrong with them while messages flow: each test prints its account.
What takes longer is in test_outages.py."""
import time

from harness import main, mongod  # first: it says that the messages are in MongoDB
import support
from load import Case, Consumer, Load, Sender


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


class Dropped(Case):
    nodes = 1

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
