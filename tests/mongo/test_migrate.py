"""Moving to, from and within MongoDB by sql/migrate_*.sql: nothing lost, nothing twice."""
import os
import sys
import unittest

from harness import OwnServer, main, mongod, support

sys.path.insert(1, os.path.join(support.SOURCE, "tests", "support"))
import move  # noqa: E402


class Base(OwnServer):
    """On a server that gives up the transaction of a dead mover soon, not after a minute."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        with mongod.Admin(cls.cluster.uri()) as admin:
            admin.run("admin", {"setParameter": 1, "transactionLifetimeLimitSeconds": 3})

    def database_side(self, options=None, suffix=""):
        return move.Side(mongod.with_database(mongod.shared_uri(), self.database + suffix), options)

    def file_side(self):
        return move.Side("local", path=os.path.join(self.directory, "file.db"))

    def elsewhere(self, options):
        self.addCleanup(self.admin.run, self.database + "_to", {"dropDatabase": 1})
        return self.database_side(options, "_to")


class LocalToMongodb(move.Moves, Base):
    def setUp(self):
        super().setUp()
        self.old, self.new = self.file_side(), self.database_side()


class MongodbToLocal(move.Moves, Base):
    def setUp(self):
        super().setUp()
        self.old, self.new = self.database_side(), self.file_side()


class StandardToMulti(move.Moves, Base):
    """In one database."""

    def setUp(self):
        super().setUp()
        self.old, self.new = self.database_side(), self.database_side({"layout": "multi", "implementation_check": "ignore"})

    def test_one_transaction_sends_to_both(self):
        db = move.Traffic(self, self.old, self.new).open("new", "multi")
        db.one("SELECT msg_open(?, ?)", self.old.target, '{"sender_id": "standard"}')
        db.rows("BEGIN")
        for node in ("multi", "standard"):
            db.enqueue("work", node, node=node)
        db.rows("COMMIT")
        for node in ("multi", "standard"):
            self.assertEqual(db.column("SELECT value FROM msg_messages WHERE node = ?", node), [node])


class StandardToDual(move.Moves, Base):
    """In another database: in one, both have the same messages."""

    def setUp(self):
        super().setUp()
        self.old, self.new = self.database_side(), self.elsewhere({"layout": "dual"})


class SameMessages(Base):
    def setUp(self):
        super().setUp()
        how = {"layout": "dual", "implementation_check": "ignore"}
        self.old, self.new = self.database_side({"implementation_check": "ignore"}), self.database_side(how)

    def test_nothing_moves(self):
        db = move.Traffic(self, self.old, self.new).open("old", "shop")
        for n in range(3):
            db.enqueue("work", n)
            db.send("news", n)
        mover = move.Mover(self.directory, self.old, self.new)
        row = mover.big_bang()
        self.assertEqual((row["moved"], row["left"], row["same_messages"]), (0, 0, 1))
        mover.run(".read '%s'\n" % move.BRIDGE * 2)
        there = move.Traffic(self, self.old, self.new).open("new", "dual")
        self.assertEqual(sorted(there.column("SELECT value FROM msg_claim('work', 10)")), [0, 1, 2])
        self.assertEqual(sorted(there.values("news", 20000)), [0, 1, 2])


if __name__ == "__main__":
    main()
