"""Writes whose outcome the client does not learn: done, but answered with an error. The server's
own fail points make them. Nothing is lost by them, nothing is owned or handed out twice.
"""
import time

from harness import OwnServer, java_message, main, until
import support


class Ambiguous(OwnServer):
    def setUp(self):
        super().setUp()
        self.n = self.db("c-node")
        self.sender = self.db("sender")
        self.n.one("SELECT msg_listen('news')")

    def unknown(self, *commands, times=1):
        """The next ones are carried out, and answered as if no majority had confirmed them."""
        self.fail_point({"times": times}, failCommands=list(commands),
                        writeConcernError={"code": 64, "errmsg": "replication timed out"})

    def test_a_claim(self):
        self.sender.enqueue("work", "x")
        self.unknown("update")
        self.assertRaises(support.sqlite3.Error, self.n.claim, "work")
        self.assertEqual(self.n.claim("work", wait_ms=10000)["value"], "x")
        self.assertIsNone(self.n.claim("work"))

    def hang(self, *commands, ms):
        """The next one is carried out when the client has gone."""
        self.fail_point({"times": 1}, failCommands=list(commands), blockConnection=True,
                        blockTimeMS=ms)

    def hasty(self):
        """A node whose writes take a second at most."""
        n = self.db("c-hasty", {"write_timeout_ms": 1000})
        self.patiently(lambda: [n.one("SELECT msg_listen('news')")])
        return n

    def patiently(self, call, *args, **how):
        """Until it gives something: a second may be too short for a busy machine."""
        def tried():
            try:
                return call(*args, **how)
            except support.sqlite3.Error:
                return None
        return until(tried)

    def insert_commands(self):
        metrics = self.admin.run("admin", {"serverStatus": 1})["metrics"]
        return metrics["commands"]["insert"]["total"]

    def stays(self, topic):
        """For two seconds: longer than an undo takes."""
        end = time.monotonic() + 2
        while time.monotonic() < end:
            self.assertEqual(len(self.find({"topic": topic})), 1)
            time.sleep(0.1)

    def test_a_removal_after_processing(self):
        """It is the caller's: whether the removal is answered or not."""
        for how in ({"errorCode": 2}, {"writeConcernError": {"code": 64, "errmsg": "slow"}}):
            self.insert(java_message("news", value="x", delete_after_processing=True))
            self.fail_point({"times": 1}, failCommands=["delete"], **how)
            self.assertEqual(self.n.wait("news", 10000)["value"], "x")
            self.n.rows("SELECT id FROM msg_messages")  # waits for the mark
            self.assertIsNone(self.n.wait("news", 300))

    def test_a_send(self):
        for value in ("x", "y"):
            self.unknown("insert")
            self.assertFails("timed out", self.sender.enqueue, "work", value)
            until(lambda: not self.find({"topic": "work"}))

    def test_a_send_by_key_or_in_a_group(self):
        n = self.hasty()
        for how in ({"key": "k"}, {"group": "g"}):
            self.unknown("commitTransaction", times=1000)
            self.assertRaises(support.sqlite3.Error, n.enqueue, "work", "x", **how)
            self.fail_point("off")
            until(lambda: not self.find({"topic": "work"}))
            self.sender.enqueue("work", "y", **how)
            self.stays("work")
            self.assertEqual(self.n.claim("work")["value"], "y")
            self.admin.delete(self.database, "msg", {"topic": "work"})

    def test_a_send_that_arrives_after_its_call(self):
        n = self.hasty()
        self.patiently(n.enqueue, "work", "warm")
        before = self.insert_commands()
        self.hang("insert", ms=3000)
        self.assertRaises(support.sqlite3.Error, n.enqueue, "late", "x")
        until(lambda: self.insert_commands() > before)
        until(lambda: not self.find({"topic": "late"}))

    def test_an_id_sent_again(self):
        """What is regretted is not what the same id is sent for next."""
        id = "%024x" % 1
        send = """INSERT INTO msg_messages(id, topic, value, exclusive)
                  VALUES ('%s', 'work', 'x', 1)""" % id
        for after in (lambda: None, lambda: until(lambda: not self.find({"topic": "work"}))):
            self.unknown("insert")
            self.assertRaises(support.sqlite3.Error, self.sender.rows, send)
            after()
            self.sender.rows(send)
            self.stays("work")
            self.assertEqual(self.n.claim("work")["id"], id)
            self.admin.delete(self.database, "msg", {"topic": "work"})

    def test_an_id_that_was_there(self):
        """A send that fails takes nothing with it that another sent under that id."""
        id = self.sender.enqueue("work", "first")
        self.unknown("insert")
        self.assertRaises(support.sqlite3.Error, self.n.rows,
                          """INSERT INTO msg_messages(id, topic, value, exclusive)
                             VALUES (?, 'work', 'second', 1)""", id)
        self.stays("work")

    def acks_in_a_transaction(self, n, claimed):
        n.rows("BEGIN")
        try:
            done = n.one("SELECT msg_ack(?, ?)", claimed["id"], claimed["token"])
            n.rows("COMMIT")
            return done
        finally:
            if n.con.in_transaction:
                n.rows("ROLLBACK")

    def test_an_ack_in_a_transaction(self):
        """It is undone whenever it arrives, or never does; what is done after that stays."""
        n = self.hasty()
        for how in ({"writeConcernError": {"code": 64, "errmsg": "slow"}},
                    {"blockConnection": True, "blockTimeMS": 3000}):
            id = self.sender.enqueue("work", "x")
            claimed = self.patiently(n.claim, "work", 5000)
            self.fail_point("alwaysOn", failCommands=["commitTransaction"], **how)
            self.assertRaises(support.sqlite3.Error, self.acks_in_a_transaction, n, claimed)
            self.fail_point("off")
            again = self.patiently(self.sender.claim, "work", wait_ms=100)
            self.assertEqual(again["id"], id)
            self.assertEqual(self.acks_in_a_transaction(self.sender, again), 1)
            end = time.monotonic() + 2
            while time.monotonic() < end:
                self.assertIsNone(self.sender.claim("work", wait_ms=100))

    def open_transactions(self):
        return self.admin.run("admin", {"serverStatus": 1})["transactions"]["currentOpen"]

    def test_a_transaction_that_stayed_open(self):
        """Its messages are nobody's for as long as the server keeps it, a minute."""
        n = self.hasty()
        id = self.sender.enqueue("work", "x")
        claimed = self.patiently(n.claim, "work")
        self.fail_point("alwaysOn", failCommands=["commitTransaction", "abortTransaction"],
                        closeConnection=True)
        self.assertRaises(support.sqlite3.Error, self.acks_in_a_transaction, n, claimed)
        until(lambda: self.open_transactions() == 0)
        self.fail_point("off")
        self.patiently(n.one, "SELECT msg_ack(?, ?)", id, claimed["token"])


if __name__ == "__main__":
    main()
