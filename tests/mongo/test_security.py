"""What README says on security: a user with readWrite on the one database does everything, TLS with a
CA of one's own, and no password where it can be read."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

from harness import OwnServer, main, mongod, until

USER, PASSWORD = "shop", "s3cret"


class Rights(OwnServer):
    """As in README: the user is known to the database that holds the messages."""

    @classmethod
    def setUpClass(cls):
        keys = tempfile.NamedTemporaryFile("w", prefix="msg-test-key-")
        cls.addClassCleanup(keys.close)
        keys.write("0123456789abcdef" * 4)
        keys.flush()
        cls.how = {"nodes": 1, "args": ["--keyFile", keys.name]}
        super().setUpClass()
        with cls.cluster.nodes[0].admin() as admin:  # the first user may be made from here
            admin.run("admin", {"createUser": "root", "pwd": "r", "roles": ["root"]})
        cls.root = "mongodb://root:r@%s/?directConnection=true" % cls.cluster.nodes[0].name

    def setUp(self):
        super().setUp()
        self.admin = mongod.Admin(self.root)
        self.addCleanup(self.admin.close)
        self.admin.run(self.database, {"createUser": USER, "pwd": PASSWORD,
                                       "roles": [{"role": "readWrite", "db": self.database}]})

    def drop_database(self):
        """It goes with the server; our own user may not."""

    def open(self, node, **options):
        db = self.db(load=False)
        db.con.enable_load_extension(True)
        db.con.load_extension(os.environ["MSG_SO"])
        os.environ["SHOP"] = "mongodb://%s:%s@%s/%s?replicaSet=rs0" % (
            USER, PASSWORD, self.cluster.nodes[0].name, self.database)
        self.addCleanup(os.environ.pop, "SHOP", None)
        db.one("SELECT msg_open('env:SHOP', ?)", json.dumps({"sender_id": node, **options}))
        return db

    def test_read_write_on_the_database_is_enough(self):
        a, b = self.open("a"), self.open("b")
        b.one("SELECT msg_listen('news')")
        a.send("news", 1)
        self.assertEqual(b.wait("news", 5000)["value"], 1)
        a.rows("BEGIN")
        a.enqueue("work", 1, key="k", group="g")
        a.enqueue("work", 2, delay_ms=100)
        a.rows("COMMIT")
        for _ in range(2):
            got = b.claim("work", wait_ms=15000)
            self.assertEqual(b.one("SELECT msg_ack(?, ?)", got["id"], got["token"]), 1)
        for table in ("msg_messages", "msg_queues", "msg_topics", "msg_locks", "msg_participants", "msg_lanes",
                      "msg_listeners", "msg_cursors", "msg_stats"):
            a.rows("SELECT * FROM " + table)
        a.enqueue("work", 3)
        self.assertEqual(a.one("SELECT msg_purge('work')"), 1)
        until(lambda: b.one("SELECT count(*) FROM msg_cursors WHERE state = 'running'"))

    def test_a_poller_needs_no_more(self):
        a, b = self.open("a"), self.open("b", use_change_stream=False)
        b.one("SELECT msg_listen('news')")
        a.send("news", 1)
        self.assertEqual(b.wait("news", 5000)["value"], 1)

    def test_no_password_in_texts_tables_or_the_schema(self):
        a = self.open("a")
        a.rows("CREATE TABLE t(x)")
        a.send("news", 1)
        shown = [a.one("SELECT msg_doctor()"), *a.con.iterdump()]
        for table in ("msg_doctor", "msg_settings", "msg_queues", "msg_cursors", "msg_participants", "msg_stats"):
            shown.append(json.dumps(a.rows("SELECT * FROM " + table)))
        self.assertNotIn(PASSWORD, "\n".join(shown))

    def test_the_doctor_says_what_it_may_not_see(self):
        doctor = dict(self.open("a").rows("SELECT item, advice FROM msg_doctor"))
        self.assertIn("clusterMonitor", json.dumps(doctor))


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make certificates with")
class Tls(OwnServer):
    @classmethod
    def openssl(cls, *args):
        subprocess.run(["openssl", *args], cwd=cls.folder.name, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="msg-test-tls-")
        cls.addClassCleanup(cls.folder.cleanup)
        with open(os.path.join(cls.folder.name, "names"), "w") as f:
            f.write("subjectAltName=IP:127.0.0.1\n")
        new = ("req", "-newkey", "rsa:2048", "-nodes", "-subj")
        cls.openssl(*new, "/CN=CA", "-x509", "-days", "2", "-keyout", "ca.key", "-out", "ca.pem")
        cls.openssl(*new, "/CN=server", "-keyout", "server.key", "-out", "server.csr")
        cls.openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                    "-days", "2", "-extfile", "names", "-out", "server.crt")
        path = {name: os.path.join(cls.folder.name, name) for name in ("ca.pem", "server.pem")}
        with open(path["server.pem"], "w") as out:
            for part in ("server.key", "server.crt"):
                with open(os.path.join(cls.folder.name, part)) as f:
                    out.write(f.read())
        cls.ca = path["ca.pem"]
        cls.how = {"nodes": 1, "options": "&tls=true&tlsCAFile=" + cls.ca, "args": [
            "--tlsMode", "requireTLS", "--tlsCertificateKeyFile", path["server.pem"], "--tlsCAFile", cls.ca,
            "--tlsAllowConnectionsWithoutCertificates"]}
        super().setUpClass()

    def test_with_a_ca_of_ones_own(self):
        a, b = self.db("a"), self.db("b")
        b.one("SELECT msg_listen('news')")
        a.send("news", 1)
        self.assertEqual(b.wait("news", 5000)["value"], 1)
        doctor = dict(a.rows("SELECT item, value FROM msg_doctor"))
        self.assertIn("tls", json.dumps(doctor).lower())

    def test_without_it_the_server_is_not_trusted(self):
        plain = self.db(load=False)
        plain.con.enable_load_extension(True)
        plain.con.load_extension(os.environ["MSG_SO"])
        text = self.assertFails("127.0.0.1", plain.rows, "SELECT msg_open(?)",
                                mongod.shared_uri().replace("&tlsCAFile=" + self.ca, "").replace("/?", "/d?"))
        self.assertRegex(text.lower(), "tls|certificate")


if __name__ == "__main__":
    main()
