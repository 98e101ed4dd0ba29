"""Faults that users of neighbouring systems met, and that no other test here would show."""
import json
import os
import sqlite3
import threading
import time

import support


class Locks(support.Case):
    def refused(self, worker):
        worker.rows("PRAGMA busy_timeout = 0")
        try:
            worker.rows("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        worker.rows("ROLLBACK")
        return False

    def test_whatever_msg_does_the_hosts_locks_stay_held(self):
        """A descriptor of one's own, closed, drops every POSIX lock of the process on that file."""
        for mode in ("delete", "wal"):
            path = os.path.join(self.directory, mode + ".db")
            host, other = self.db(path=path, load=False), self.worker(path=path, load=False)
            host.rows("PRAGMA journal_mode = " + mode)
            waiter = self.db("w", path=path)
            waiter.enqueue("work", 1)
            waiter.one("SELECT msg_listen('news')")
            waiting = support.Background(waiter.wait, "news", 15000)
            support.until(lambda: self.db(path=path).one("SELECT count(*) FROM msg_cursors WHERE state = 'running'"))
            host.rows("BEGIN IMMEDIATE")
            self.assertTrue(self.refused(other), mode)
            for _ in range(3):
                third = support.Db(path, options={"busy_timeout_ms": 20}, timeout=0)
                for sql in ("SELECT msg_doctor()", "SELECT count(*) FROM msg_messages", "SELECT msg_config('lease_ms')",
                            "SELECT count(*) FROM msg_cursors", "SELECT msg_await('news', 20)", "SELECT msg_close()"):
                    try:
                        third.rows(sql)
                    except sqlite3.OperationalError as error:  # what must write meets the lock
                        self.assertIn("msg: BUSY: ", str(error))
                self.assertTrue(self.refused(other), (mode, "open"))
                third.close()
                self.assertTrue(self.refused(other), (mode, "closed"))
            host.rows("COMMIT")
            self.assertFalse(self.refused(other), mode)
            self.db(path=path).send("news", 2)
            self.assertEqual(waiting.result()["value"], 2)


class Threads(support.Case):
    def test_one_connection_from_many_threads(self):
        """Hosts with check_same_thread=False; the cursor thread works beside them."""
        a, peer = self.db("a"), self.db("b")
        a.rows("PRAGMA journal_mode = WAL")
        a.one("SELECT msg_listen('news')")
        seen, done = [], []

        def work(n):
            for i in range(25):
                a.enqueue("work", n * 100 + i)
                seen.extend(a.values("news"))
                got = a.claim("work", 30000, 20)
                if got and a.one("SELECT msg_ack(?, ?)", got["id"], got["token"]):
                    done.append(got["value"])

        threads = [support.Background(work, n) for n in range(4)]
        for i in range(30):
            peer.send("news", i)
        for thread in threads:
            thread.result()
        seen.extend(a.values("news"))
        done.extend(a.column("SELECT value FROM msg_claim('work', 100)"))
        self.assertEqual(sorted(seen), list(range(30)))
        self.assertEqual(sorted(done), [n * 100 + i for n in range(4) for i in range(25)])


class HalfRead(support.Case):
    def test_rows_not_read_to_the_end_hold_up_no_checkpoint(self):
        """A reader that stays open lets the WAL grow without bound."""
        a, w = self.db("a"), self.db("w")
        a.rows("PRAGMA journal_mode = WAL")
        a.one("SELECT msg_listen('news')")
        for i in range(5):
            w.enqueue("work", i)
            w.send("news", i)
        for sql in ("SELECT value FROM msg_claim('work', 5)", "SELECT value FROM msg_await('news', 0, 5)"):
            cursor = a.con.execute(sql)
            self.assertEqual(cursor.fetchone(), (0,))
            w.enqueue("other", 1)
            self.assertEqual(w.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0], 0, sql)
            self.assertEqual([row[0] for row in cursor.fetchall()], [1, 2, 3, 4])


class Stuck(support.Case):
    def test_who_claims_all_there_is_and_hangs_stops_nobody_else(self):
        stuck, w = self.worker("stuck"), self.db("w")
        for i in range(10):
            w.enqueue("work", i)
        stuck.rows("SELECT value FROM msg_claim('work', 1000, 600000)")
        self.assertIsNone(w.claim("work"))
        w.enqueue("work", "later")
        self.assertEqual(w.claim("work")["value"], "later")
        self.assertEqual(w.rows("SELECT owner, count(*) FROM msg_locks GROUP BY 1 ORDER BY 1"),
                         [("stuck", 10), ("w", 1)])
        stuck.kill()
        if support.MONGODB:  # when the lease ends
            return
        self.assertEqual([row["value"] for row in w.claims("work")], list(range(10)))


@support.local_only("the tables are the local store's; mongo/test_golden.py has strange documents")
class Strange(support.Case):
    """Rows that another program wrote: msg shows rows or an error, without crash or endless loop."""

    VALUES = (None, -1, 0, 9, 10, 9223372036854775807, -9223372036854775808, 1.5, "", "text", "[", '{"a":[1]}',
              '["x",1,null]', "é" * 300, b"", b"\x00\xff", b"\x00" * 4000, "a\x00b", "a" * 23, "g" * 24)
    READS = ("SELECT * FROM msg_messages", "SELECT * FROM msg_topics", "SELECT * FROM msg_queues",
             "SELECT * FROM msg_locks", "SELECT * FROM msg_lanes", "SELECT * FROM msg_participants",
             "SELECT * FROM msg_listeners", "SELECT * FROM msg_doctor", "SELECT * FROM msg_messages WHERE topic = 'work' ORDER BY priority LIMIT 5",
             "SELECT * FROM orders")
    VERBS = ("SELECT * FROM msg_await('news', 0, 10)", "SELECT msg_await(NULL, 0)", "SELECT * FROM msg_claim('*', 10)",
             "SELECT msg_claim('work')", "SELECT msg_release(id) FROM msg_locks", "SELECT msg_send('news', 2)",
             "SELECT msg_enqueue('work', 3, '{\"group\": \"g\", \"key\": \"k\"}')", "SELECT msg_redrive('*')",
             "UPDATE msg_messages SET priority = 3", "SELECT msg_listen('n*')",
             "DELETE FROM msg_participants WHERE NOT alive", "DELETE FROM msg_lanes WHERE orphan AND NOT depth",
             "SELECT msg_purge('*')")

    def fill(self, db):
        db.one("SELECT msg_listen('news')")
        db.rows("CREATE VIRTUAL TABLE orders USING msg_queue(topic='work', a REAL, b TEXT)")
        sender = self.db("other")
        sender.send("news", 1)
        sender.send("news", "direct", recipients=["me", "you"])
        sender.enqueue("work", "claimed", map={"a": 1}, additional=[1], msg="m")
        sender.claim("work")
        sender.one("SELECT msg_reject(?, 'no')", sender.enqueue("work", "dead") and sender.claim("work")["id"])
        for n in range(3):
            sender.enqueue("work", n, group="g", key="k%d" % n)
        sender.enqueue("work", "late", delay_ms=100000)
        sender.enqueue("work", "mine", recipient="me", ttl_ms=100000)
        sender.close()

    def run_one(self, db, sql):
        """Rows, or an error that says something."""
        try:
            db.rows(sql)
        except sqlite3.Error as error:
            self.assertTrue(str(error) and "not an error" not in str(error), sql)

    def spoil(self, table, column, value, tell):
        path = os.path.join(self.directory, "spoilt.db")
        for suffix in ("", "-wal", "-shm", "-journal"):
            if os.path.exists(path + suffix):
                os.remove(path + suffix)
        with open(self.path, "rb") as original, open(path, "wb") as copy:
            copy.write(original.read())
        plain = sqlite3.connect(path, isolation_level=None)
        plain.execute("PRAGMA synchronous = OFF")
        try:
            plain.execute("UPDATE %s SET %s = ?" % (table, column), (value,))
        except sqlite3.IntegrityError:  # NOT NULL, UNIQUE: one row then, or not at all
            try:
                plain.execute("UPDATE %s SET %s = ? WHERE rowid = (SELECT max(rowid) FROM %s)" % (table, column, table),
                              (value,))
            except sqlite3.Error:
                return
        finally:
            plain.close()
        db = support.Db(path, "me")
        db.rows("PRAGMA synchronous = OFF")
        watchdog = threading.Timer(support.PATIENCE_S, db.interrupt)
        watchdog.start()
        try:
            for sql in self.READS + self.VERBS + self.READS[:1]:
                self.run_one(db, sql)
            self.assertTrue(watchdog.is_alive(), tell)
            self.assertEqual(db.one("PRAGMA integrity_check"), "ok", tell)
        finally:
            watchdog.cancel()
            db.close()

    def test_every_column_with_values_that_it_never_has(self):
        db = support.Db(self.path, "me")
        db.rows("PRAGMA synchronous = OFF")
        self.fill(db)
        db.close()
        plain = sqlite3.connect(self.path)
        tables = [row[0] for row in plain.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'msg_store_%'")]
        columns = [(t, c[1]) for t in tables for c in plain.execute("PRAGMA table_info(%s)" % t)]
        plain.close()
        self.assertGreater(len(columns), 40)
        for i, (table, column) in enumerate(columns):
            every = 2 if table == "msg_store_message" else 4  # the others hold little
            for value in self.VALUES[i % every::every]:
                with self.subTest(table=table, column=column, value=value):
                    self.spoil(table, column, value, json.dumps([table, column, repr(value)]))


class Clocks(support.Case):
    def test_times_far_off_are_what_they_say(self):
        """What a sender with a wrong clock gave is not stuck in front of others."""
        a = self.db("a")
        now, day = int(time.time() * 1000), 86400000
        for value, at in (("future", now + day), ("past", now - day)):
            a.rows("INSERT INTO msg_messages(topic, value, exclusive, deliver_at) VALUES ('work', ?, 1, ?)", value, at)
        a.enqueue("work", "now")
        self.assertEqual([row["value"] for row in a.claims("work")], ["past", "now"])
        self.assertEqual(a.column("SELECT state FROM msg_messages WHERE value = 'future'"), ["delayed"])


if __name__ == "__main__":
    support.main()
