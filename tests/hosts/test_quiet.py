#!/usr/bin/python3
"""The background thread is in nobody's way: with a rollback journal and no busy time-out, the host's own commits never
meet it."""
import os
import sqlite3
import tempfile
import threading
import unittest


class Quiet(unittest.TestCase):
    def test_a_host_without_busy_timeout_never_meets_the_cursor_thread(self):
        with tempfile.TemporaryDirectory() as folder:
            db = sqlite3.connect(os.path.join(folder, "quiet.db"), isolation_level=None, timeout=0)
            db.enable_load_extension(True)
            db.execute("SELECT load_extension(?)", (os.environ["MSG_SO"],))
            db.execute("PRAGMA synchronous = OFF")
            db.execute("CREATE TABLE t(a)")
            for i in range(120):
                self.assertIsNone(db.execute("SELECT msg_await('quiet', 3)").fetchone()[0])
                for j in range(10):
                    db.execute("INSERT INTO t VALUES(?)", (j,))
            self.assertEqual(db.execute("SELECT state FROM msg_cursors").fetchone()[0], "running")
            self.assertEqual(db.execute("SELECT count(*) FROM t").fetchone()[0], 1200)
            db.close()

    def test_a_wait_after_quiet_times_still_wakes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "wake.db")
            both = []
            for _ in range(2):
                db = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)
                db.enable_load_extension(True)
                db.execute("SELECT load_extension(?)", (os.environ["MSG_SO"],))
                both.append(db)
            a, b = both
            a.execute("SELECT msg_await('wake', 1)")
            for i in range(20):
                timer = threading.Timer(0.02, b.execute, ("SELECT msg_send('wake', ?)", (i,)))
                timer.start()
                self.assertEqual(a.execute("SELECT value FROM msg_await('wake', 5000, 1)").fetchone(), (i,))
                timer.join()
            for db in both:
                db.close()


if __name__ == "__main__":
    unittest.main()
