#!/usr/bin/python3
"""Faults that were found and mended: circles, scans that feed themselves, followers of buried heads, listening undone
with its transaction."""
import os
import sqlite3
import time

import support


class Regressions(support.Case):
    def connect(self, options="{}", timeout=0):
        db = support.connect(self.path, timeout)
        self.addCleanup(db.close)
        db.execute("PRAGMA journal_mode = wal")
        db.execute("SELECT msg_open(?, ?)", (support.target_of(self.path), options))
        return db

    @support.local_only("the trigger is on the local store's table")
    def test_a_trigger_that_sends_in_a_circle_is_an_error(self):
        db = self.connect()
        db.execute("SELECT msg_enqueue('x', 1)")
        db.execute("CREATE TRIGGER circle AFTER INSERT ON msg_store_message BEGIN SELECT msg_enqueue('x', 1); END")
        with self.assertRaisesRegex(sqlite3.OperationalError, "msg: BACKEND: msg_enqueue: called from within itself 16 times"):
            db.execute("SELECT msg_enqueue('x', 1)").fetchall()
        db.execute("DROP TRIGGER circle")
        self.assertEqual(db.execute("SELECT msg_enqueue('x', 2) IS NOT NULL").fetchone(), (1,))
        self.assertEqual(db.execute("PRAGMA integrity_check").fetchone(), ("ok",))

    def test_a_scan_does_not_see_what_is_sent_during_it(self):
        db = self.connect()
        db.execute("SELECT msg_enqueue('u', value) FROM json_each('[1,2,3]')").fetchall()
        self.assertEqual(len(db.execute("SELECT msg_enqueue('u', value) FROM msg_messages WHERE topic = 'u'").fetchall()), 3)
        self.assertEqual(db.execute("SELECT count(*) FROM msg_messages").fetchone(), (6,))

    def test_a_claim_leases_nothing_that_it_does_not_return(self):
        db = self.connect('{"max_attempts":2}')
        for value, options in (("A", '{"group":"g"}'), ("B", '{"group":"g"}'), ("C", "{}"), ("D", "{}")):
            db.execute("SELECT msg_enqueue('t', ?, ?)", (value, options))
        for _ in range(2):
            db.execute("BEGIN")
            db.execute("SELECT * FROM msg_claim('t')").fetchall()
            db.execute("ROLLBACK")
        got = [row[0] for row in db.execute("SELECT value FROM msg_claim('t', 3)")]
        state = dict(db.execute("SELECT value, state FROM msg_messages"))
        self.assertEqual(state["A"], "dead")
        self.assertEqual(sorted(v for v, s in state.items() if s == "claimed"), sorted(got))

    def test_listening_begun_by_an_await_is_undone_with_its_transaction_and_begins_again(self):
        db = self.connect()
        db.execute("BEGIN")
        db.execute("SELECT msg_enqueue('x', 1)")
        db.execute("SELECT msg_await('t', 0)").fetchall()
        db.execute("ROLLBACK")
        self.assertIsNone(db.execute("SELECT msg_await('t', 0)").fetchone()[0])
        self.assertEqual(db.execute("SELECT pattern FROM msg_listeners").fetchall(), [("t",)])
        self.connect().execute("SELECT msg_send('t', 'heard')")
        self.assertEqual(db.execute("SELECT value FROM msg_await('t', 2000, 1)").fetchone(), ("heard",))

    def test_a_topic_that_a_pattern_covers_has_been_listened_to_since_then(self):
        db, other = self.connect(), self.connect()
        db.execute("SELECT msg_listen('n.*')")
        other.execute("SELECT msg_send('n.1', 1)")
        other.execute("SELECT msg_send('n.2', 2)")
        other.execute("SELECT msg_send('m', 0)")
        self.assertEqual(db.execute("SELECT value FROM msg_await('n.*', 100, 1)").fetchall(), [(1,)])
        self.assertEqual(db.execute("SELECT value FROM msg_await('n.1', 0, 9)").fetchall(), [])
        self.assertEqual(db.execute("SELECT value FROM msg_await('n.2', 0, 9)").fetchall(), [(2,)])
        self.assertEqual(db.execute("SELECT value FROM msg_await('m', 0, 9)").fetchall(), [])

    def test_the_first_verb_may_be_a_table_form_that_waits(self):
        for mode in ("wal", "delete"):
            self.path = os.path.join(self.directory, mode + ".db")
            first = self.connect()
            first.execute("PRAGMA journal_mode = " + mode)
            for form in ("msg_claim('t', 1, 1000, 50)", "msg_await('t', 50)", "msg_request('t', 1, 50)"):
                db = support.connect(self.path)
                self.addCleanup(db.close)
                self.assertEqual(db.execute("SELECT value FROM " + form).fetchall(), [], (mode, form))

    @support.local_only("on MongoDB the host's lock is in nobody's way")
    def test_a_due_message_behind_a_lock_is_an_error_not_nothing(self):
        db, other = self.connect('{"busy_timeout_ms":200}'), self.connect()
        self.assertEqual(db.execute("SELECT * FROM msg_claim('late')").fetchall(), [])
        db.execute("SELECT msg_enqueue('late', 1, '{\"delay_ms\":30}')")
        time.sleep(0.05)
        other.execute("BEGIN IMMEDIATE")
        with self.assertRaisesRegex(sqlite3.OperationalError, "msg: BUSY: "):
            db.execute("SELECT * FROM msg_claim('late')").fetchall()
        other.execute("COMMIT")
        self.assertEqual(len(db.execute("SELECT * FROM msg_claim('late')").fetchall()), 1)

    @support.local_only("on MongoDB the host's lock is in nobody's way")
    def test_the_hosts_busy_time_out_is_not_added_for_each_statement(self):
        db, other = self.connect('{"busy_timeout_ms":100}', 1), self.connect()
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with self.assertRaisesRegex(sqlite3.OperationalError, "msg: BUSY: "):
            db.execute("SELECT msg_enqueue('x', 1)").fetchall()
        self.assertLess(time.monotonic() - began, 2.9)
        other.execute("COMMIT")


if __name__ == "__main__":
    support.main()
