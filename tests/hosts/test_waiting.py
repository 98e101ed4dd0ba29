"""Waiting: two connections, threads, processes; interrupt; close; what a wait costs others."""
import os
import signal
import sqlite3
import subprocess
import time

import support

SOON_S = 3  # generous for a loaded machine, far below the waits' own 15 s


class Wake(support.Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.db("a"), self.db("b")
        self.a.rows("PRAGMA journal_mode = WAL")
        self.a.one("SELECT msg_listen('news')")

    def test_a_time_out_gives_null_and_no_rows(self):
        begin = time.monotonic()
        self.assertEqual(self.a.rows("SELECT msg_await('news', 100)"), [(None,)])
        self.assertEqual(self.a.rows("SELECT msg_claim('work', 1, 1000, 100)"), [(None,)])
        self.assertEqual(self.a.rows("SELECT * FROM msg_await('news', 100)"), [])
        self.assertEqual(self.a.rows("SELECT * FROM msg_claim('work', 1, 1000, 100)"), [])
        self.assertTrue(0.39 < time.monotonic() - begin < 0.4 + SOON_S)

    def test_await_waits_1_s_by_default(self):
        begin = time.monotonic()
        self.assertEqual(self.a.rows("SELECT msg_await('news')"), [(None,)])
        self.assertTrue(0.95 < time.monotonic() - begin < 1 + SOON_S)
        self.a.one("SELECT msg_config('await_timeout_ms', 50)")
        begin = time.monotonic()
        self.assertEqual(self.a.rows("SELECT msg_await('news')"), [(None,)])
        self.assertLess(time.monotonic() - begin, 0.9)

    def test_claim_does_not_wait_by_default(self):
        begin = time.monotonic()
        self.assertEqual(self.a.rows("SELECT msg_claim('work')"), [(None,)])
        self.assertLess(time.monotonic() - begin, 0.9)

    def test_another_thread_wakes_an_await(self):
        waiting = support.Background(self.a.wait, "news", 15000)
        time.sleep(0.1)
        self.b.send("news", 1)
        self.assertEqual(waiting.result()["value"], 1)
        self.assertLess(waiting.seconds, SOON_S)

    def test_another_thread_wakes_a_claim(self):
        waiting = support.Background(self.a.claim, "work", 1000, 15000)
        time.sleep(0.1)
        self.b.enqueue("work", 1)
        self.assertEqual(waiting.result()["value"], 1)
        self.assertLess(waiting.seconds, SOON_S)

    def test_another_process_wakes_both(self):
        for mode in ("wal", "delete"):
            path = self.path + "." + mode
            a = self.db("a", path=path)
            a.rows("PRAGMA journal_mode = %s" % mode)
            a.one("SELECT msg_listen('news')")
            w = self.worker(path=path)
            for wait, sql in ((lambda: a.wait("news", 15000), "SELECT msg_send('news', 1)"),
                              (lambda: a.claim("work", 1000, 15000), "SELECT msg_enqueue('work', 1)")):
                waiting = support.Background(wait)
                time.sleep(0.1)
                w.one(sql)
                self.assertEqual(waiting.result()["value"], 1)
                self.assertLess(waiting.seconds, SOON_S)

    def test_a_wait_ends_at_the_commit_not_at_the_send(self):
        waiting = support.Background(self.a.wait, "news", 15000)
        self.b.rows("BEGIN")
        self.b.send("news", 1)
        time.sleep(0.15)
        self.assertTrue(waiting.thread.is_alive())
        self.b.rows("COMMIT")
        self.assertEqual(waiting.result()["value"], 1)

    def test_commits_that_bring_nothing_do_not_end_it(self):
        waiting = support.Background(self.a.wait, "news", 600)
        for i in range(30):
            self.b.send("other", i)
        self.assertIsNone(waiting.result())
        self.assertGreaterEqual(waiting.seconds, 0.59)

    def test_a_released_message_wakes_a_claim(self):
        id = self.b.enqueue("work", 1)
        self.b.claim("work")
        waiting = support.Background(self.a.claim, "work", 1000, 15000)
        time.sleep(0.1)
        self.b.one("SELECT msg_release(?)", id)
        self.assertEqual(waiting.result()["attempts"], 2)
        self.assertLess(waiting.seconds, SOON_S)

    def test_a_group_that_becomes_free_wakes_a_claim(self):
        self.b.enqueue("work", 1, group="g")
        self.b.enqueue("work", 2, group="g")
        head = self.b.claim("work")
        waiting = support.Background(self.a.claim, "work", 1000, 15000)
        time.sleep(0.1)
        self.b.one("SELECT msg_ack(?)", head["id"])
        self.assertEqual(waiting.result()["value"], 2)
        self.assertLess(waiting.seconds, SOON_S)

    def test_many_threads_wait_and_each_gets_one(self):
        waiters = [support.Background(self.db().claim, "work", 30000, 15000) for _ in range(6)]
        time.sleep(0.1)
        for i in range(6):
            self.b.enqueue("work", i)
        self.assertEqual(sorted(w.result()["value"] for w in waiters), list(range(6)))

    def test_many_nodes_wait_and_all_get_it(self):
        nodes = [self.db("n%d" % i) for i in range(6)]
        for db in nodes:
            db.one("SELECT msg_listen('news')")
        waiters = [support.Background(db.wait, "news", 15000) for db in nodes]
        time.sleep(0.1)
        self.b.send("news", "all")
        self.assertEqual([w.result()["value"] for w in waiters], ["all"] * 6)

    def test_a_resumed_topic_ends_the_wait(self):
        self.a.one("SELECT msg_pause('news')")
        self.b.send("news", 1)
        other = self.db("a")
        waiting = support.Background(self.a.wait, "news", 15000)
        time.sleep(0.1)
        self.assertTrue(waiting.thread.is_alive())
        other.one("SELECT msg_resume('news')")
        self.assertEqual(waiting.result()["value"], 1)
        self.assertLess(waiting.seconds, SOON_S)

    def test_a_wait_holds_no_read_transaction(self):
        """Neither a checkpoint nor another writer has to wait for it."""
        w = self.worker(timeout=0)
        for sql in ("SELECT msg_await('news', 15000)", "SELECT * FROM msg_await('news', 15000)",
                    "SELECT * FROM msg_claim('news', 1, 1000, 15000)"):
            waiting = support.Background(self.a.rows, sql)
            time.sleep(0.1)
            w.rows("CREATE TABLE IF NOT EXISTS other(x)")
            w.rows("INSERT INTO other VALUES (1)")
            # its looks are short reads: a checkpoint gets through between them
            support.until(lambda: w.rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0] == 0, 3)
            w.rows("SELECT msg_send('news', 1)")
            if "claim" in sql:
                w.rows("SELECT msg_enqueue('news', 1)")
            self.assertEqual(len(waiting.result()), 1)

    def test_waiting_writes_nothing(self):
        self.a.wait("news", 1)
        before = self.b.one("PRAGMA data_version")
        size = os.path.getsize(self.path + "-wal")
        for _ in range(3):
            self.a.wait("news", 50)
            self.a.claim("work", 1000, 50)
        self.assertEqual(self.b.one("PRAGMA data_version"), before)
        self.assertEqual(os.path.getsize(self.path + "-wal"), size)


class Interrupt(support.Case):
    CALLS = ("SELECT msg_await('news', 60000)", "SELECT msg_claim('work', 1, 1000, 60000)",
             "SELECT msg_request('ask', 1, 60000)", "SELECT * FROM msg_await('news', 60000)",
             "SELECT * FROM msg_claim('work', 5, 1000, 60000)",
             "SELECT * FROM msg_request('ask', 1, 60000)")

    def latency(self, db, sql):
        waiting = support.Background(db.rows, sql)
        time.sleep(0.06)
        begin = time.monotonic()
        db.con.interrupt()
        waiting.thread.join(support.PATIENCE_S)
        seconds = time.monotonic() - begin
        self.assertIsInstance(waiting.error, sqlite3.OperationalError, sql)
        self.assertIn("interrupt", str(waiting.error))
        return seconds

    def test_within_100_ms(self):
        a = self.db("a")
        a.one("SELECT msg_listen('news')")
        for sql in self.CALLS:  # the best of up to 5: other tests run beside this one
            best = self.latency(a, sql)
            for _ in range(4):
                if best < 0.1:
                    break
                best = self.latency(a, sql)
            self.assertLess(best, 0.1, sql)

    def test_also_inside_begin_which_goes_on(self):
        a = self.db("a")
        a.rows("CREATE TABLE app(x)")
        a.rows("BEGIN")
        self.latency(a, "SELECT msg_await('news', 60000)")
        self.assertTrue(a.con.in_transaction)
        a.rows("INSERT INTO app VALUES (1)")
        a.rows("COMMIT")
        self.assertEqual(a.rows("SELECT * FROM app"), [(1,)])

    def test_nothing_is_lost_by_it(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        self.latency(a, "SELECT msg_await('news', 60000)")
        b.send("news", 1)
        self.assertEqual(a.values("news"), [1])

    def test_ctrl_c_in_the_shell(self):
        shell = subprocess.Popen(
            [support.SQLITE3, "-batch", "-cmd", '.load "%s"' % support.MSG_SO, self.path],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(shell.stdout.close)
        self.addCleanup(shell.kill)
        shell.stdin.write("SELECT msg_listen('news');\nSELECT msg_await('news', 60000);\n")
        shell.stdin.close()
        other = self.db()
        support.until(lambda: other.one("SELECT max(listeners) FROM msg_topics") or
                      other.one("SELECT max(alive) FROM msg_participants WHERE pid = ?", shell.pid))
        time.sleep(0.2)
        self.assertIsNone(shell.poll())
        begin = time.monotonic()
        shell.send_signal(signal.SIGINT)
        support.until(lambda: "interrupt" in shell.stdout.readline())
        self.assertLess(time.monotonic() - begin, 1)
        shell.wait(support.PATIENCE_S)
        if not support.MONGODB:  # there it still takes leave of the server
            self.assertLess(time.monotonic() - begin, 1)


class Closing(support.Case):
    def test_interrupt_then_close_during_a_wait(self):
        a = support.Db(self.path, "a")
        waiting = support.Background(a.wait, "news", 60000)
        time.sleep(0.1)
        a.con.interrupt()
        with self.assertRaises(sqlite3.Error):
            waiting.result()
        a.close()

    def test_close_during_a_wait(self):
        """In C: Python's own sqlite3 module crashes when closed under a running statement."""
        host = os.path.join(os.environ.get("MSG_BUILD", ""), "tests", "bin", "host_close")
        if not os.path.exists(host):
            self.skipTest("host_close is not built")
        done = subprocess.run([host, self.path], timeout=60, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "ok\n"))
        self.assertEqual(os.listdir(self.directory), ["t.db"])

    def test_the_node_of_another_connection_goes_on_when_one_closes(self):
        one, two, b = support.Db(self.path, "shared"), self.db("shared"), self.db("b")
        two.one("SELECT msg_listen('news')")
        waiting = support.Background(two.wait, "news", 15000)
        time.sleep(0.1)
        one.close()
        b.send("news", 1)
        self.assertEqual(waiting.result()["value"], 1)
        self.assertLess(waiting.seconds, SOON_S)

    def test_exit_without_close(self):
        for how in ("sys.exit(0)", "os._exit(0)", "pass", "raise SystemExit(0)"):
            code = ("import os, sys; sys.path.insert(0, %r); import support\n"
                    "db = support.Db(%r, 'gone'); db.enqueue('work', 1)\n"
                    "t = support.Background(db.wait, 'news', 60000); support.time.sleep(0.1)\n%s\n"
                    % (os.path.dirname(os.path.abspath(__file__)), self.path, how))
            begin = time.monotonic()
            done = subprocess.run([support.sys.executable, "-c", code], timeout=support.PATIENCE_S,
                                  stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 0, (how, done.stderr))
            self.assertLess(time.monotonic() - begin, 8, how)
        self.assertEqual(self.db().one("SELECT count(*) FROM msg_messages"), 4)


if __name__ == "__main__":
    support.main()
