"""Processes: killed ones give their claims back, fork, a file replaced under a watch."""
import os
import re
import sqlite3
import time

import support

SOURCE = os.environ.get("MSG_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# On MongoDB a killed worker's claims come back when their lease ends.
LEASE_MS, COMES_BACK_S = (3000, 6) if support.MONGODB else (3600000, 5)


class Killed(support.Case):
    @support.local_only("on MongoDB they come back when their lease ends: mongo/test_differences.py")
    def test_claims_come_back_at_once_and_the_participant_is_not_alive(self):
        a, w = self.db("a"), self.worker("w")
        ids = [a.enqueue("work", i) for i in range(5)]
        self.assertEqual(len(w.rows("SELECT id FROM msg_claim('work', 5, 3600000)")), 5)
        self.assertEqual(a.rows("SELECT alive, pid FROM msg_participants WHERE node = 'w'"), [(1, w.pid)])
        self.assertEqual(a.claims("work"), [])
        w.kill()
        self.assertEqual(a.one("SELECT alive FROM msg_participants WHERE node = 'w'"), 0)
        begin = time.monotonic()
        got = support.until(lambda: a.claims("work"))
        self.assertLess(time.monotonic() - begin, 2)
        self.assertEqual([(m["id"], m["attempts"]) for m in got], [(id, 2) for id in ids])

    def test_a_sleeping_claimer_wakes(self):
        a, w = self.db("a"), self.worker("w")
        a.enqueue("work", 1)
        w.one("SELECT msg_claim('work', 1, ?)", LEASE_MS)
        waiting = support.Background(a.claim, "work", 1000, 15000)
        time.sleep(0.2)
        w.kill()
        self.assertEqual(waiting.result()["attempts"], 2)
        self.assertLess(waiting.seconds, COMES_BACK_S)

    def test_a_worker_killed_in_a_transaction_leaves_nothing(self):
        a, w = self.db("a"), self.worker("w")
        a.enqueue("work", 1)
        w.rows("BEGIN IMMEDIATE")
        w.one("SELECT msg_claim('work', 1, ?)", LEASE_MS)
        w.one("SELECT msg_enqueue('more', 1)")
        w.kill()
        self.assertEqual(support.until(lambda: a.claim("work"))["value"], 1)
        self.assertIsNone(a.claim("more"))
        self.assertEqual(a.one("PRAGMA integrity_check"), "ok")

    def test_messages_of_a_killed_sender_stay(self):
        a, w = self.db("a"), self.worker("w")
        w.one("SELECT msg_enqueue('work', 'last words')")
        w.kill()
        self.assertEqual(a.claim("work")["value"], "last words")

    def test_dead_participants_can_be_withdrawn_live_ones_not(self):
        a, w = self.db("a"), self.worker("w")
        a.enqueue("work", 1)
        w.one("SELECT msg_listen('news')")
        self.assertFails("alive", a.rows, "DELETE FROM msg_participants WHERE node = 'w'")
        w.kill()
        a.rows("DELETE FROM msg_participants WHERE node = 'w'")
        self.assertEqual(a.rows("SELECT * FROM msg_participants WHERE node = 'w'"), [])

    def test_a_lane_of_a_dead_participant_is_an_orphan(self):
        a, w = self.db("a"), self.worker("w")
        w.one("SELECT msg_listen('news')")
        a.send("private", 1, recipient="w")
        self.assertEqual(a.rows("SELECT owner, depth, owner_alive, orphan FROM msg_lanes WHERE owner = 'w'"), [("w", 1, 1, 0)])
        w.kill()
        self.assertEqual(a.rows("SELECT owner, depth, owner_alive, orphan FROM msg_lanes WHERE owner = 'w'"), [("w", 1, 0, 1)])
        self.assertFails("1 message", a.rows, "DELETE FROM msg_lanes WHERE owner = 'w'")

    def test_a_participant_that_closes_is_gone(self):
        a, w = self.db("a"), self.worker("w")
        a.enqueue("work", 1)
        w.one("SELECT msg_listen('news')")
        w.close()
        self.assertNotIn(1, a.column("SELECT alive FROM msg_participants WHERE node = 'w'"))

    def test_kill_while_it_waits(self):
        a, w = self.db("a"), self.worker("w")
        a.rows("PRAGMA journal_mode = WAL")
        w.one("SELECT msg_listen('news')")
        w.start("SELECT msg_await('news', 60000)")
        time.sleep(0.1)
        w.kill()
        a.send("news", 1)
        again = self.worker("w")
        self.assertEqual(again.one("SELECT value FROM msg_await('news', 5000)"), 1)


class Fork(support.Case):
    def in_child(self, fn):
        """What fn() gives in a forked child, as text."""
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read)
                try:
                    text = "fine: %r" % (fn(),)
                except Exception as error:
                    text = str(error)
                os.write(write, text.encode())
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        return text

    def test_the_child_gets_a_clear_error(self):
        a = self.db("a")
        a.enqueue("work", 1)
        for sql in ("SELECT msg_enqueue('work', 2)", "SELECT msg_claim('work')", "SELECT msg_await('x', 5000)",
                    "SELECT * FROM msg_claim('work', 2)", "SELECT count(*) FROM msg_messages",
                    "SELECT msg_open('local')"):
            text = self.in_child(lambda: a.one(sql))
            self.assertTrue(text.startswith("msg: FORKED: "), (sql, text))
            self.assertIn("open", text)
        self.assertEqual(a.claim("work")["value"], 1)  # the parent goes on
        self.assertIsNone(a.claim("work"))

    def test_with_a_cursor_thread_running(self):
        a, b = self.db("a"), self.db("b")
        a.rows("PRAGMA journal_mode = WAL")
        a.one("SELECT msg_listen('news')")
        waiting = support.Background(a.wait, "news", 15000)
        time.sleep(0.1)
        self.assertTrue(self.in_child(lambda: b.enqueue("work", 2)).startswith("msg: FORKED: "))
        b.send("news", 1)
        self.assertEqual(waiting.result()["value"], 1)

    def test_a_new_connection_in_the_child_gets_the_error_or_works(self):
        """SQLite itself forbids to carry a connection over; a fresh one in the child is a new start."""
        a = self.db("a")
        a.enqueue("work", 1)
        text = self.in_child(lambda: support.Db(self.path, "child").enqueue("work", 2))
        self.assertRegex(text, r"^(fine: '[0-9a-f]{24}'|msg: FORKED: )")


@support.local_only("the file is the store")
class Replaced(support.Case):
    def replace(self):
        new = self.path + ".new"
        support.Db(new).close()
        sqlite3.connect(new).execute("CREATE TABLE replaced(x)").connection.close()
        os.replace(new, self.path)

    def test_verbs_on_the_old_file_say_so(self):
        a = self.db("a")
        a.enqueue("work", 1)
        self.replace()
        text = self.assertFails("msg: UNAVAILABLE: ", a.enqueue, "work", 2)
        self.assertIn("main", text)
        self.assertIn("open it again", text)

    def test_a_wait_on_the_old_file_ends_and_the_new_file_works(self):
        a = self.db("a")
        a.one("SELECT msg_listen('news')")
        waiting = support.Background(a.wait, "news", 4000)
        time.sleep(0.2)
        self.replace()
        try:
            self.assertIsNone(waiting.result())
        except sqlite3.Error as error:
            self.assertIn("msg: UNAVAILABLE: ", str(error))
        b, c = self.db("b"), self.db("c")
        b.one("SELECT msg_listen('news')")
        waiting = support.Background(b.wait, "news", 15000)
        time.sleep(0.1)
        c.send("news", "on the new file")
        self.assertEqual(waiting.result()["value"], "on the new file")
        self.assertLess(waiting.seconds, 3)

    def test_removed(self):
        a = self.db("a")
        a.enqueue("work", 1)
        os.remove(self.path)
        self.assertFails("msg: UNAVAILABLE: ", a.enqueue, "work", 2)

    def test_the_same_file_under_two_names_is_one_store(self):
        a = self.db("a")
        a.rows("PRAGMA journal_mode = WAL")
        a.enqueue("work", 1)
        link = os.path.join(self.directory, "link.db")
        os.symlink(self.path, link)
        b = self.db("b", path=link)
        b.one("SELECT msg_listen('news')")
        waiting = support.Background(b.wait, "news", 15000)
        time.sleep(0.1)
        a.send("news", 1)
        self.assertEqual(waiting.result()["value"], 1)
        self.assertLess(waiting.seconds, 3)

    def test_a_copy_carries_live_messages(self):
        a = self.db("a")
        a.enqueue("work", 1)
        copy = os.path.join(self.directory, "copy.db")
        a.rows("VACUUM INTO ?", copy)
        b = self.db("b", path=copy)
        self.assertEqual(b.claim("work")["value"], 1)
        self.assertEqual(a.claim("work")["value"], 1)

    def test_a_copy_without_messages(self):
        """The recipe of README.md leaves nothing but the tables."""
        a, b = self.db("a"), self.db("b")
        a.rows("CREATE TABLE app AS SELECT 1 AS x")
        for value in range(3):
            a.enqueue("work", value, key="k%d" % value)
        a.rows("SELECT * FROM msg_claim('work', 2)")
        b.one("SELECT msg_listen('news')")
        for _ in range(200):
            a.send("news", 1)
        a.send("news", 1, recipient="b")
        b.rows("SELECT * FROM msg_await('news', 0, 150)")
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as file:
            into, recipe = re.search(r"`(VACUUM INTO 'copy.db')`, then in the copy `([^`]*)`", file.read()).groups()
        copy = os.path.join(self.directory, "copy.db")
        a.rows(into.replace("copy.db", copy))
        con = sqlite3.connect(copy)
        tables = [name for name, in con.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'msg!_store%' ESCAPE '!'")]
        filled = [name for name in tables if con.execute("SELECT count(*) FROM %s" % name).fetchone()[0]]
        self.assertEqual(sorted(set(tables) - set(filled)), [])
        before = con.execute("SELECT version, store_id FROM msg_store").fetchall()
        con.executescript(recipe)
        self.assertEqual([name for name in tables if con.execute("SELECT count(*) FROM %s" % name).fetchone()[0]], ["msg_store"])
        after = con.execute("SELECT version, store_id FROM msg_store").fetchall()
        self.assertEqual(after[0][0], before[0][0])
        self.assertNotEqual(after[0][1], before[0][1])
        con.close()
        c = self.db("b", path=copy)
        self.assertEqual(c.column("SELECT x FROM app"), [1])
        self.assertEqual(c.rows("SELECT * FROM msg_messages"), [])
        self.assertEqual(c.one("SELECT msg_await('news', 0)"), None)
        c.enqueue("work", 9, key="k0")
        self.assertEqual(c.column("SELECT value FROM msg_claim('work', 9)"), [9])
        self.assertEqual(a.column("SELECT value FROM msg_claim('work', 9)"), [2])

    def test_backup_over_an_open_file(self):
        a = self.db("a")
        a.enqueue("work", "old")
        source = support.connect(os.path.join(self.directory, "source.db"), load=False)
        source.execute("CREATE TABLE app(x)")
        source.backup(a.con)
        source.close()
        self.assertEqual(a.rows("SELECT value FROM msg_messages"), [])
        self.assertEqual(len(a.enqueue("work", "new")), 24)
        self.assertEqual(a.claim("work")["value"], "new")


if __name__ == "__main__":
    support.main()
