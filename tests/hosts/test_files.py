"""The file beneath: journal modes, other writers, busy timeouts, read-only, exclusive locking, memory."""
import contextlib
import json
import os
import sqlite3
import stat
import time

import support

JOURNALS = ("wal", "delete", "truncate", "persist")


class Journals(support.Case):
    def test_every_journal_mode_works_between_processes(self):
        for mode in JOURNALS:
            path = os.path.join(self.directory, mode + ".db")
            a = self.db("a", path=path)
            self.assertEqual(a.one("PRAGMA journal_mode = %s" % mode), mode)
            w = self.worker("w", path=path)
            news = "news." + mode  # on MongoDB the modes have one queue
            w.rows("SELECT msg_listen('%s')" % news)
            a.send(news, 1)
            self.assertEqual(w.rows("SELECT value FROM msg_await('%s', 5000)" % news), [[1]], mode)
            w.start("SELECT value, msg_ack(id) FROM msg_claim('work', 1, 30000, 15000)")
            a.enqueue("work", 2)
            self.assertEqual(w.result(), [[2, 1]], mode)
            self.assertEqual(a.one("PRAGMA journal_mode"), mode)

    def test_the_journal_mode_is_the_users(self):
        a = self.db("a")
        a.enqueue("work", 1)
        self.assertEqual(a.one("PRAGMA journal_mode"), "delete")

    @support.local_only("on MongoDB the journal mode is left alone")
    def test_msg_open_can_switch_it(self):
        a = self.db("a", {"journal_mode": "wal"})
        self.assertEqual(a.one("PRAGMA journal_mode"), "wal")
        a.enqueue("work", 1)
        self.assertEqual(self.db().one("PRAGMA journal_mode"), "wal")

    def test_a_send_while_a_statement_of_the_host_reads(self):
        for mode in ("delete", "wal"):
            path = os.path.join(self.directory, mode + ".db")
            a = self.db("a", path=path)
            a.rows("PRAGMA journal_mode = %s" % mode)
            a.rows("CREATE TABLE app(x)")
            a.rows("INSERT INTO app VALUES (1), (2), (3)")
            sent = [a.enqueue("work", x) for (x,) in a.con.execute("SELECT x FROM app")]
            self.assertEqual(len(sent), 3)
            self.assertEqual(len(a.claims("work")), 3)


@support.local_only("schemas hold messages in the local store alone")
class Attached(support.Case):
    """A schema that another file takes over is not the store any more, for no verb."""

    def swapped(self):
        a = self.db("a", path=self.path)
        for name, value in (("one", 1), ("two", 2)):
            self.db("same", path=os.path.join(self.directory, name)).enqueue("work", value)
        a.rows("ATTACH ? AS x", os.path.join(self.directory, "one"))
        a.one("""SELECT msg_open('local:x', '{"sender_id":"same"}')""")
        claimed = a.rows("SELECT id FROM msg_claim('work', 1)")[0][0]
        a.rows("DETACH x")
        return a, claimed

    def contents(self):
        """What the two files hold, without the participants."""
        tables = [os.path.join(self.directory, name) for name in ("one", "two")]
        return [line for path in tables for line in support.Db(path, load=False).con.iterdump()
                if "msg_store_node" not in line]

    def test_no_verb_goes_to_the_new_file_nor_to_the_old(self):
        a, claimed = self.swapped()
        a.rows("ATTACH ? AS x", os.path.join(self.directory, "two"))
        before = self.contents()
        for begin in (None, "BEGIN", "BEGIN IMMEDIATE"):
            if begin:
                a.rows(begin)
            for sql in ("SELECT msg_enqueue('work', 3)", "SELECT msg_claim('work')",
                        "SELECT * FROM msg_claim('work', 1)", "SELECT msg_ack('%s')" % claimed,
                        "SELECT msg_await('news', 0)", "SELECT * FROM msg_messages",
                        "UPDATE msg_messages SET priority = 1", "DELETE FROM msg_locks"):
                self.assertFails("msg_close(), then msg_open it again", a.rows, sql)
            if begin:
                a.rows("ROLLBACK")
        self.assertEqual(self.contents(), before)

    def test_closed_and_opened_again_the_new_file_is_the_store(self):
        a, claimed = self.swapped()
        a.rows("ATTACH ? AS x", os.path.join(self.directory, "two"))
        self.assertEqual(a.one("SELECT msg_close()"), 1)
        self.assertEqual(a.rows("SELECT node FROM x.msg_store_node"), [("same",)])
        a.one("SELECT msg_open('local:x')")
        self.assertEqual(a.claim("work")["value"], 2)
        self.assertEqual(a.one("SELECT msg_ack(?)", claimed), 0)

    def test_closing_makes_nothing_in_a_file_without_messages(self):
        a, _ = self.swapped()
        a.rows("ATTACH ? AS x", os.path.join(self.directory, "empty"))
        self.assertEqual(a.one("SELECT msg_close()"), 1)
        self.assertEqual(a.rows("SELECT name FROM x.sqlite_schema"), [])

    def test_the_same_file_attached_again_is_the_store(self):
        a, claimed = self.swapped()
        self.assertFails("not attached any more", a.enqueue, "work", 3)
        a.rows("ATTACH ? AS x", os.path.join(self.directory, "one"))
        self.assertEqual(a.one("SELECT msg_ack(?)", claimed), 1)
        a.enqueue("work", 3)
        self.assertEqual(a.claim("work")["value"], 3)


@support.local_only("on MongoDB the host's lock is in nobody's way")
class OtherWriters(support.Case):
    def files(self):
        """One file of each journal mode: a connection, another process, the path."""
        for mode in ("wal", "delete"):
            path = os.path.join(self.directory, mode + ".db")
            a = self.db("a", path=path)
            a.rows("PRAGMA journal_mode = %s" % mode)
            a.rows("CREATE TABLE app(x)")
            a.enqueue("warm", 1)
            yield a, self.worker("w", path=path), path

    def setUp(self):
        super().setUp()
        self.a = self.db("a")
        self.a.rows("PRAGMA journal_mode = WAL")
        self.a.rows("CREATE TABLE app(x)")
        self.a.enqueue("warm", 1)
        self.w = self.worker("w")

    def held(self, w, ms, fn):
        """fn() while another process holds the write lock for about ms."""
        w.rows("BEGIN IMMEDIATE")
        w.rows("INSERT INTO app VALUES (1)")
        background = support.Background(fn)
        time.sleep(ms / 1000)
        w.rows("COMMIT")
        return background.result()

    def test_a_send_waits_for_the_other_writer(self):
        for a, w, _ in self.files():
            self.assertEqual(len(self.held(w, 200, lambda: a.enqueue("work", 1))), 24)

    def test_also_with_busy_timeout_0(self):
        for _, w, path in self.files():
            a = self.db("a0", path=path, timeout=0)
            self.assertEqual(a.one("PRAGMA busy_timeout"), 0)
            self.assertEqual(len(self.held(w, 200, lambda: a.enqueue("work", 1))), 24)
            self.assertEqual(self.held(w, 200, lambda: a.claim("work"))["value"], 1)
            self.assertEqual(a.one("PRAGMA busy_timeout"), 0)

    def test_table_forms_too(self):
        for _, w, path in self.files():
            a = self.db("a0", path=path, timeout=0)
            a.one("SELECT msg_listen('news')")
            a.enqueue("work", 1)
            w.one("SELECT msg_send('news', 1)")
            self.held(w, 200, lambda: a.rows("INSERT INTO msg_messages(topic, value) VALUES ('t', 1)"))
            self.assertEqual(a.column("SELECT value FROM msg_messages WHERE topic = 't'"), [1])
            self.assertEqual(self.held(w, 200, lambda: a.claims("work"))[0]["value"], 1)
            self.assertEqual(self.held(w, 200, lambda: a.values("news")), [1])
            self.held(w, 200, lambda: a.rows("UPDATE msg_messages SET priority = 1 WHERE topic = 't'"))
            self.held(w, 200, lambda: a.rows("DELETE FROM msg_messages WHERE topic = 't'"))
            self.assertEqual(a.column("SELECT value FROM msg_messages WHERE topic = 't'"), [])

    def test_busy_timeout_ms_is_the_limit(self):
        a = self.db("a0", {"busy_timeout_ms": 100}, timeout=0)
        a.send("warm", 0)
        before = a.dump()
        self.w.rows("BEGIN IMMEDIATE")
        begin = time.monotonic()
        text = self.assertFails("msg: BUSY: ", a.enqueue, "work", 1, kind=sqlite3.OperationalError)
        self.assertIn("busy_timeout_ms", text)
        self.assertTrue(0.05 < time.monotonic() - begin < 3)
        self.w.rows("COMMIT")
        self.assertEqual(a.dump(), before)
        self.assertEqual(len(a.enqueue("work", 1)), 24)

    def test_an_interrupt_ends_the_wait_for_the_lock(self):
        a = self.db("a0", {"busy_timeout_ms": 60000}, timeout=0)
        a.send("warm", 0)
        self.w.rows("BEGIN IMMEDIATE")
        waiting = support.Background(a.enqueue, "work", 1)
        time.sleep(0.15)
        self.assertIsNone(waiting.error)
        begin = time.monotonic()
        a.con.interrupt()
        self.assertFails("interrupt", waiting.result)
        self.assertLess(time.monotonic() - begin, 1)
        self.w.rows("ROLLBACK")

    def test_readers_do_not_wait_for_a_writer_in_wal(self):
        self.w.rows("BEGIN IMMEDIATE")
        self.w.rows("SELECT msg_enqueue('work', 'not yet')")
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages"), 1)
        self.w.rows("COMMIT")
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages"), 2)

    def test_many_processes_write_at_the_same_time(self):
        for a, _, path in self.files():
            # With a rollback journal the host's own statement may meet the lock before any verb of ours runs.
            workers = [self.worker(path=path, timeout=0 if "wal" in path else 5) for _ in range(3)]
            for worker in workers:
                worker.start("""WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30)
                                SELECT msg_enqueue('many', i) FROM n""")
            ids = {row[0] for worker in workers for row in worker.result(60)}
            self.assertEqual(len(ids), 90)
            self.assertEqual(a.one("SELECT count(*) FROM msg_messages WHERE topic = 'many'"), 90)
            self.assertEqual(a.one("SELECT msg_purge('many')"), 90)


@support.local_only("on MongoDB nothing is written to the file")
class ReadOnly(support.Case):
    def setUp(self):
        super().setUp()
        a = support.Db(self.path, "a")
        self.id = a.enqueue("work", 1)
        a.send("news", 2, ttl_ms=600000)
        a.close()

    def check_reading(self, db):
        self.assertEqual(db.column("SELECT value FROM msg_messages ORDER BY seq"), [1, 2])
        self.assertEqual(db.column("SELECT topic FROM msg_topics ORDER BY 1"), ["news", "work"])
        db.rows("SELECT * FROM msg_queues")
        db.rows("SELECT * FROM msg_participants")
        db.one("SELECT msg_doctor()")

    def check_writing(self, db):
        before = db.dump()
        for sql in ("SELECT msg_send('news', 1)", "SELECT msg_enqueue('work', 1)",
                    "SELECT msg_claim('work')", "SELECT * FROM msg_claim('work', 5)",
                    "SELECT msg_purge('work')", "SELECT msg_redrive('work')",
                    "INSERT INTO msg_messages(topic, value) VALUES ('news', 1)",
                    "DELETE FROM msg_messages", "UPDATE msg_messages SET priority = 1"):
            text = self.assertFails("", db.rows, sql)
            self.assertRegex(text, "^(msg: READONLY: |attempt to write a readonly database)", sql)
        self.assertEqual(db.dump(), before)

    def test_query_only(self):
        db = self.db()
        db.rows("PRAGMA query_only = ON")
        self.check_reading(db)
        self.check_writing(db)
        db.rows("PRAGMA query_only = OFF")
        self.assertEqual(db.claim("work")["id"], self.id)

    def test_opened_read_only(self):
        db = support.Db("file:%s?mode=ro" % self.path, uri=True)
        self.addCleanup(db.close)
        db.path = self.path
        self.check_reading(db)
        self.check_writing(db)

    def test_a_read_only_file_without_messages_is_empty(self):
        path = os.path.join(self.directory, "empty.db")
        sqlite3.connect(path).execute("CREATE TABLE app(x)").connection.close()
        db = support.Db("file:%s?mode=ro" % path, uri=True)
        self.addCleanup(db.close)
        self.assertEqual(db.rows("SELECT * FROM msg_messages"), [])
        self.assertEqual(db.rows("SELECT * FROM msg_topics"), [])
        self.assertFails("READONLY", db.enqueue, "work", 1)

    def test_immutable(self):
        db = support.Db("file:%s?immutable=1" % self.path, uri=True)
        self.addCleanup(db.close)
        self.assertEqual(db.column("SELECT value FROM msg_messages ORDER BY seq"), [1, 2])


class Exclusive(support.Case):
    def test_verbs_work_in_exclusive_locking_mode(self):
        for mode in ("delete", "wal"):
            path = os.path.join(self.directory, mode + ".db")
            a = self.db(path=path)
            a.rows("PRAGMA locking_mode = EXCLUSIVE")
            a.rows("PRAGMA journal_mode = %s" % mode)
            a.enqueue("work", 1)
            self.assertEqual(a.claim("work")["value"], 1)
            a.one("SELECT msg_listen('news')")
            a.send("news", "to me", recipient=a.one("SELECT msg_open('local')"))
            self.assertEqual(a.wait("news", 1000)["value"], "to me")
            a.enqueue("work", 2, delay_ms=100)
            self.assertEqual(a.claim("work", 1000, 10000)["value"], 2)
            begin = time.monotonic()
            self.assertIsNone(a.wait("news", 150))
            self.assertLess(time.monotonic() - begin, 3)

    @support.local_only("on MongoDB the host's lock is in nobody's way")
    def test_the_extension_loads_on_a_file_that_another_holds(self):
        a = self.db()
        a.rows("PRAGMA locking_mode = EXCLUSIVE")
        a.enqueue("work", 1)
        other = self.worker(timeout=0)
        with contextlib.suppress(sqlite3.OperationalError):  # whether opening must read the file is SQLite's business
            other.one("""SELECT msg_open('local', '{"busy_timeout_ms":50}')""")
        self.assertFails("locked", other.one, "SELECT msg_enqueue('work', 2)")
        self.assertFails("locked", other.one, "SELECT count(*) FROM msg_messages")
        a.close()
        self.assertEqual(len(other.one("SELECT msg_enqueue('work', 2)")), 24)


@support.local_only("on MongoDB nothing is read from the file")
class NoDatabase(support.Case):
    def test_a_file_that_is_none_is_left_alone(self):
        text = b"This is no SQLite database, just a text of some length.\n" * 100
        with open(self.path, "wb") as file:
            file.write(text)
        db = self.db()
        for sql in ("SELECT msg_send('t', 1)", "SELECT msg_claim('t')", "SELECT count(*) FROM msg_messages"):
            self.assertFails("not a database", db.rows, sql)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), text)


@support.local_only("a database in memory has messages in the local store alone")
class Memory(support.Case):
    def test_memory_databases_work_and_are_apart(self):
        a, b = self.db(path=":memory:"), self.db(path=":memory:")
        a.enqueue("work", 1)
        self.assertIsNone(b.claim("work"))
        self.assertEqual(a.claim("work")["value"], 1)

    def test_a_wait_in_memory_ends_for_a_delay_and_at_its_time(self):
        a = self.db(path=":memory:")
        a.enqueue("work", 1, delay_ms=150)
        self.assertEqual(a.claim("work", 1000, 10000)["value"], 1)
        begin = time.monotonic()
        self.assertIsNone(a.claim("work", 1000, 200))
        self.assertTrue(0.19 < time.monotonic() - begin < 3)

    def test_two_nodes_in_one_memory_database(self):
        a = self.db("a", path=":memory:")
        a.one("SELECT msg_listen('news')")
        a.one("""SELECT msg_open('local', '{"sender_id":"b"}')""")
        a.send("news", 1)
        a.one("""SELECT msg_open('local', '{"sender_id":"a"}')""")
        self.assertEqual(a.values("news"), [1])

    def test_who_shares_a_memory_database_may_send_while_another_waits_by_the_scalar_form(self):
        for uri in ("file:%s?mode=memory&cache=shared", "file:/%s?vfs=memdb"):
            uri %= os.path.basename(self.directory)
            a, b = self.db("a", path=uri, uri=True), self.db("b", path=uri, uri=True)
            a.one("SELECT msg_listen('news')")
            for wait, put in ((lambda: a.wait("news", 15000), lambda: b.send("news", 1)),
                              (lambda: a.claim("work", 1000, 15000), lambda: b.enqueue("work", 1))):
                waiting = support.Background(wait)
                time.sleep(.1)
                put()
                self.assertEqual(waiting.result()["value"], 1, uri)

    def test_a_temp_file_database(self):
        a = self.db(path="")
        a.enqueue("work", 1)
        self.assertEqual(a.claim("work")["value"], 1)


class Life(support.Case):
    def test_closing_leaves_no_wal_behind(self):
        a = support.Db(self.path, "a", {"journal_mode": "wal"})
        a.enqueue("work", 1)
        self.assertIsNone(a.claim("other", 1000, 60))
        a.close()
        self.assertEqual(os.listdir(self.directory), ["t.db"])

    def test_open_and_close_many_times(self):
        for i in range(30):
            a = support.Db(self.path)
            a.enqueue("work", i)
            a.claim("other", 1000, 1)
            a.close()
        self.assertEqual(self.db().one("SELECT count(*) FROM msg_messages"), 30)
        self.assertEqual(self.db().one("PRAGMA integrity_check"), "ok")

    def test_msg_close_ends_the_node_until_the_next_msg_open(self):
        a = self.db("a")
        a.enqueue("work", 1)
        self.assertEqual(a.one("SELECT msg_close()"), 1)
        self.assertFails("msg_open", a.enqueue, "work", 2)
        a.one("SELECT msg_open('local')")
        id = a.enqueue("work", 2)
        self.assertNotEqual(a.one("SELECT sender FROM msg_messages WHERE id = ?", id), "a")

    @support.local_only("on MongoDB every one of these connections is opened by name")
    def test_the_environment_sets_target_and_options(self):
        saved = dict(os.environ)
        try:
            os.environ["MSG_TARGET"] = "local"
            os.environ["MSG_OPTIONS"] = json.dumps({"sender_id": "from-environment"})
            w = self.worker()
        finally:
            os.environ.clear()
            os.environ.update(saved)
        id = w.one("SELECT msg_enqueue('work', 1)")
        self.assertEqual(w.one("SELECT sender FROM msg_messages WHERE id = ?", id), "from-environment")

    def test_a_target_may_be_read_from_the_environment(self):
        saved = dict(os.environ)
        try:
            os.environ["MY_TARGET"] = "local"
            w = self.worker()
        finally:
            os.environ.clear()
            os.environ.update(saved)
        self.assertTrue(w.one("SELECT msg_open('env:MY_TARGET')"))
        self.assertFails("NO_SUCH_VARIABLE", w.one, "SELECT msg_open('env:NO_SUCH_VARIABLE')")

    def test_file_permissions_are_not_touched(self):
        a = self.db("a")
        a.rows("CREATE TABLE app(x)")
        os.chmod(self.path, 0o640)
        a.enqueue("work", 1)
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o640)


if __name__ == "__main__":
    support.main()
