"""Three nodes, and what goes wrong with them while messages flow: each test prints its account.
What takes longer is in test_outages.py."""
import contextlib
import socket
import threading
import time

from harness import OwnServer, home, main, mongod, until  # first: it says where the messages are
import support
from load import CAST, TOPIC, Batch, Bulk, Case, Consumer, Load, Sender


class Primary(Case):
    kinds = (Consumer, Sender)

    def test_stepdown(self):
        with Load(self, kinds=self.kinds) as load:
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
        with Load(self, kinds=self.kinds) as load:
            primary = self.cluster.primary()
            load.fault()
            primary.kill()
            self.cluster.primary()
            load.until_busy(50)
            primary.start()
            load.account("kill -9 of the primary")


class PrimaryOfBatches(Primary):
    """By leases."""

    kinds = (Batch, Bulk)

    def tearDown(self):
        with self.cluster.primary().admin() as admin:
            leases = admin.find(support.database_of(self.path), "msg_leases", {"done": True})
        self.assertTrue(leases)


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
                for collection in {home(TOPIC), home(CAST)}:
                    admin.run(support.database_of(self.path), {"drop": collection})
            later = load.add(Sender(self.path, "sender-after"))
            load.until_busy(20)
            self.assertTrue(later.sent)
            load.account("collection dropped under a running cursor")


class Hanging(OwnServer):
    """A server that takes connections and answers nothing."""

    bound_s = 10  # write_timeout_ms of 1 s, the search for a server, and some room

    def test_each_verb_ends_and_all_goes_on(self):
        n = self.db("c-node", {"write_timeout_ms": 1000})
        n.one("SELECT msg_listen('news')")
        n.enqueue("work", "first")
        claimed = n.claim("work")
        verbs = [("SELECT msg_ack(?, ?)", claimed["id"], claimed["token"]),
                 ("SELECT msg_enqueue('work', 'x')",), ("SELECT msg_send('news', 'x')",),
                 ("SELECT msg_claim('work')",), ("SELECT msg_await('news', 1)",),
                 ("UPDATE msg_messages SET priority = 1 WHERE id = ?", claimed["id"])]
        self.cluster.nodes[0].suspend()
        try:
            for sql, *args in verbs:
                began = time.monotonic()
                self.assertFails("msg: ", n.rows, sql, *args)
                took_s = time.monotonic() - began
                print("%-55s failed after %.1f s" % (sql, took_s))
                self.assertLess(took_s, self.bound_s, sql)
        finally:
            self.cluster.nodes[0].resume()
        until(lambda: self.goes_on(n))

    def goes_on(self, n):
        try:
            n.one("SELECT msg_enqueue('later', 'x')")
            return n.claim("later")
        except support.sqlite3.Error:
            return False


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

    def test_poppydb(self):
        """It tells by its hello what it is; otherwise this one is what the tests have."""
        with _Between(self.host, b"setName\0", b"poppyDB\0") as host:
            self.refused("mongodb://%s/d?directConnection=true" % host, "PoppyDB", host)

    def test_no_database_named(self):
        self.refused("mongodb://user:s3cret@%s/" % self.host)

    def test_no_connection_string(self):
        self.refused("mongodb://user:s3cret@/@:x")


class _Between:
    """Passes on what a client and a server say to each other, the server's words changed."""

    def __init__(self, host, word, other):
        name, port = host.split(",")[0].rsplit(":", 1)
        self.server, self.word, self.other = (name, int(port)), word, other
        self.listening = socket.create_server(("127.0.0.1", 0))

    def __enter__(self):
        threading.Thread(target=self.run, daemon=True).start()
        return "127.0.0.1:%d" % self.listening.getsockname()[1]

    def __exit__(self, *_):
        self.listening.close()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listening.accept()
                server = socket.create_connection(self.server)
                for source, sink in (client, server), (server, client):
                    threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        with contextlib.suppress(OSError), source, sink:
            while (piece := source.recv(65536)):
                sink.sendall(piece.replace(self.word, self.other))
            sink.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
