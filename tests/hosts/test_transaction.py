"""A send or an ack belongs to your transaction: each fact of the design, on whatever SQLite the host has."""
import json
import sqlite3

import support

UNSENT = "on MongoDB a send is not seen before COMMIT, by nobody"
ELSEWHERE = "on MongoDB messages are no part of the host's snapshot"


class Commit(support.Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.db("a"), self.db("b")
        self.a.rows("PRAGMA journal_mode = WAL")
        self.a.rows("CREATE TABLE app(id INTEGER PRIMARY KEY, note TEXT NOT NULL UNIQUE)")
        self.b.one("SELECT msg_listen('news')")

    def waiting(self):
        return self.b.column("SELECT value FROM msg_messages ORDER BY seq")

    def test_a_send_takes_effect_at_commit(self):
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.a.send("news", "broadcast")
        self.a.enqueue("work", "job")
        self.assertEqual(self.b.values("news"), [])
        self.assertEqual(self.waiting(), [])
        self.a.rows("COMMIT")
        self.assertEqual(self.b.values("news"), ["broadcast"])
        self.assertEqual(self.b.claim("work")["value"], "job")

    def test_a_send_vanishes_on_rollback(self):
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.a.send("news", 1)
        self.a.rows("ROLLBACK")
        self.assertEqual(self.waiting(), [])
        self.assertEqual(self.b.values("news"), [])
        self.assertEqual(self.a.rows("SELECT * FROM app"), [])

    def test_outside_a_transaction_it_is_done_at_once(self):
        self.a.send("news", 1)
        self.assertFalse(self.a.con.in_transaction)
        self.assertEqual(self.b.values("news"), [1])

    def test_savepoints(self):
        a = self.a
        a.rows("BEGIN")
        a.enqueue("work", "kept 1")
        a.rows("SAVEPOINT one")
        a.enqueue("work", "undone 1")
        a.rows("SAVEPOINT two")
        a.enqueue("work", "undone 2")
        a.rows("RELEASE two")
        a.rows("ROLLBACK TO one")
        a.enqueue("work", "kept 2")
        a.rows("RELEASE one")
        a.rows("SAVEPOINT three")
        a.enqueue("work", "kept 3")
        a.rows("RELEASE three")
        a.rows("COMMIT")
        self.assertEqual(self.waiting(), ["kept 1", "kept 2", "kept 3"])

    def test_a_savepoint_outside_begin_is_a_transaction(self):
        self.a.rows("SAVEPOINT s")
        self.a.enqueue("work", 1)
        self.assertEqual(self.waiting(), [])
        self.a.rows("RELEASE s")
        self.assertEqual(self.waiting(), [1])

    def test_an_ack_vanishes_on_rollback(self):
        id = self.a.enqueue("work", 1)
        self.a.claim("work")
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app(note) VALUES ('done')")
        self.assertEqual(self.a.one("SELECT msg_ack(?)", id), 1)
        self.assertEqual(self.a.one("SELECT msg_ack(?)", id), 0)
        self.a.rows("ROLLBACK")
        self.assertEqual(self.a.state(id), "claimed")
        self.assertEqual(self.a.one("SELECT msg_ack(?)", id), 1)

    def test_claim_work_and_ack_in_one_transaction(self):
        id = self.a.enqueue("work", 1)
        self.a.rows("BEGIN IMMEDIATE")
        got = self.a.claim("work")
        self.a.rows("INSERT INTO app(note) VALUES ('done')")
        self.assertEqual(self.a.one("SELECT msg_ack(?, ?)", id, got["token"]), 1)
        self.a.rows("COMMIT")
        self.assertEqual(self.waiting(), [])

    def test_a_claim_rolled_back_is_ready_at_once(self):
        id = self.a.enqueue("work", 1)
        self.a.rows("BEGIN")
        self.a.claim("work", 3600000)
        self.a.rows("ROLLBACK")
        self.assertEqual(self.b.claim("work")["id"], id)

    @support.local_only("on MongoDB an await counts at once")
    def test_a_seen_mark_rolled_back_comes_again(self):
        self.a.send("news", 1)
        self.b.rows("BEGIN")
        self.assertEqual(self.b.values("news"), [1])
        self.b.rows("ROLLBACK")
        self.assertEqual(self.b.values("news"), [1])

    def test_release_extend_and_reject_vanish_too(self):
        id = self.a.enqueue("work", 1)
        self.a.claim("work", 60000)
        before = self.a.rows("SELECT state, until, attempts, reason FROM msg_messages")
        for verb in ("msg_release(?)", "msg_extend(?, 900000)", "msg_reject(?, 'bad')"):
            self.a.rows("BEGIN")
            self.assertEqual(self.a.one("SELECT " + verb, id), 1)
            self.a.rows("ROLLBACK")
            self.assertEqual(self.a.rows("SELECT state, until, attempts, reason FROM msg_messages"),
                             before, verb)

    @support.local_only(UNSENT)
    def test_the_first_verb_of_all_may_be_rolled_back(self):
        path = self.path + "2"
        db = self.db(path=path)
        for _ in range(3):
            db.rows("BEGIN")
            db.enqueue("work", 1)
            self.assertEqual(db.claim("work")["value"], 1)
            db.rows("ROLLBACK")
            self.assertEqual(db.rows("SELECT name FROM sqlite_schema"), [])
        db.enqueue("work", 2)
        self.assertEqual(db.claim("work")["value"], 2)

    @support.local_only(UNSENT)
    def test_tables_in_temp_come_back_after_a_rollback(self):
        db = self.db(path=self.path + "2")
        db.rows("BEGIN")
        db.enqueue("work", 1)
        self.assertEqual(db.one("SELECT count(*) FROM msg_messages"), 1)
        db.rows("ROLLBACK")
        self.assertEqual(db.one("SELECT count(*) FROM msg_messages"), 0)
        db.rows("INSERT INTO msg_messages(topic, value, exclusive) VALUES ('work', 1, 1)")
        self.assertEqual(len(db.claims("work")), 1)

    def test_last_insert_rowid_stays_the_hosts(self):
        self.a.rows("INSERT INTO app(id, note) VALUES (77, 'x')")
        self.a.send("news", 1)
        self.a.enqueue("work", 1)
        id = self.a.claim("work")["id"]
        self.a.one("SELECT msg_ack(?)", id)
        self.a.rows("INSERT INTO msg_messages(topic, value) VALUES ('news', 2)")
        self.assertEqual(self.a.one("SELECT last_insert_rowid()"), 77)


class Triggers(support.Case):
    def setUp(self):
        super().setUp()
        self.a = self.db("a")
        self.a.rows("CREATE TABLE app(id INTEGER PRIMARY KEY, note TEXT)")
        self.a.rows("""CREATE TRIGGER app_sends AFTER INSERT ON app BEGIN
                       SELECT msg_enqueue('work', json_object('id', new.id, 'note', new.note)); END""")

    def ids(self):
        return self.a.column("SELECT value ->> 'id' FROM msg_messages ORDER BY seq")

    def test_a_trigger_sends(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x'), ('y')")
        self.assertEqual(self.ids(), [1, 2])

    def test_and_its_send_is_rolled_back(self):
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.a.rows("ROLLBACK")
        self.a.rows("INSERT INTO app(note) VALUES ('y')")
        self.assertEqual(self.ids(), [1])
        self.assertEqual(self.a.one("SELECT value ->> 'note' FROM msg_messages"), "y")

    def test_a_trigger_may_insert_into_msg_messages(self):
        self.a.rows("DROP TRIGGER app_sends")
        self.a.rows("""CREATE TEMP TRIGGER app_inserts AFTER INSERT ON main.app BEGIN
                       INSERT INTO msg_messages(topic, value, exclusive) VALUES ('work', new.note, 1); END""")
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.assertEqual(self.a.claim("work")["value"], "x")

    def test_raise_abort_undoes_the_statements_sends(self):
        self.a.rows("""CREATE TRIGGER app_refuses AFTER INSERT ON app WHEN new.note = 'bad' BEGIN
                       SELECT RAISE(ABORT, 'refused'); END""")
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app(note) VALUES ('good')")
        self.assertFails("refused", self.a.rows, "INSERT INTO app(note) VALUES ('fine'), ('bad')")
        self.a.rows("COMMIT")
        self.assertEqual(self.ids(), [1])
        self.assertEqual(self.a.column("SELECT note FROM app"), ["good"])

    def test_raise_fail_keeps_what_was_done(self):
        self.a.rows("""CREATE TRIGGER app_refuses BEFORE INSERT ON app WHEN new.note = 'bad' BEGIN
                       SELECT RAISE(FAIL, 'refused'); END""")
        self.a.rows("BEGIN")
        self.assertFails("refused", self.a.rows, "INSERT INTO app(note) VALUES ('fine'), ('bad')")
        self.a.rows("COMMIT")
        self.assertEqual(self.ids(), [1])

    def test_an_untrusted_schema_may_not_send_but_temp_triggers_may(self):
        self.a.rows("PRAGMA trusted_schema = OFF")
        self.assertFails("unsafe use of msg_enqueue()", self.a.rows,
                         "INSERT INTO app(note) VALUES ('x')")
        self.a.rows("DROP TRIGGER app_sends")
        self.a.rows("""CREATE TEMP TRIGGER app_sends AFTER INSERT ON main.app BEGIN
                       SELECT msg_enqueue('work', json_object('id', new.id)); END""")
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.assertEqual(self.ids(), [1])

    def test_a_schema_may_not_consume_block_or_administer(self):
        direct_only = ("msg_open('local')", "msg_close()", "msg_config('lease_ms')", "msg_purge('x')",
                       "msg_redrive('x')", "msg_await('x', 0)", "msg_claim('x')",
                       "msg_request('x', 1, 0)")
        for call in direct_only:
            self.a.rows("CREATE VIEW v AS SELECT %s" % call)
            self.assertFails("unsafe use of " + call.split("(")[0], self.a.rows, "SELECT * FROM v")
            self.a.rows("DROP VIEW v")
        for call in ("msg_await('x', 0)", "msg_claim('x')", "msg_request('x', 1, 0)"):
            self.a.rows("CREATE VIEW v AS SELECT * FROM %s" % call)
            self.assertFails("unsafe use of", self.a.rows, "SELECT * FROM v")
            self.a.rows("DROP VIEW v")

    def test_a_schema_may_send_settle_and_look(self):
        id = self.a.enqueue("work", 1)
        self.a.claim("work")
        self.a.rows("CREATE VIEW v AS SELECT topic, state FROM msg_messages")
        self.a.rows("CREATE VIEW w AS SELECT topic, claimed FROM msg_topics")
        self.assertEqual(self.a.rows("SELECT * FROM v"), [("work", "claimed")])
        self.assertEqual(self.a.rows("SELECT * FROM w"), [("work", 1)])
        self.a.rows("CREATE TABLE done(id TEXT)")
        self.a.rows("CREATE TRIGGER acks AFTER INSERT ON done BEGIN SELECT msg_ack(new.id); END")
        self.a.rows("INSERT INTO done VALUES (?)", id)
        self.assertIsNone(self.a.state(id))


class HalfWay(support.Case):
    """Statements that fail half-way: what SQLite undoes, and what it keeps."""

    def setUp(self):
        super().setUp()
        self.a = self.db("a")
        self.a.rows("CREATE TABLE app(id INTEGER PRIMARY KEY, note TEXT NOT NULL UNIQUE)")

    def waiting(self):
        return self.a.column("SELECT value FROM msg_messages ORDER BY seq")

    def test_a_select_that_fails_keeps_its_earlier_sends(self):
        sql = "SELECT msg_enqueue(column2, column1) FROM (VALUES (1, 'ok'), (2, 'ok'), (3, 'not*ok'), (4, 'ok'))"
        self.assertFails("not*ok", self.a.rows, sql)
        self.assertEqual(self.waiting(), [1, 2])
        self.a.rows("BEGIN")
        self.assertFails("not*ok", self.a.rows, sql)
        self.assertTrue(self.a.con.in_transaction)
        self.a.rows("COMMIT")
        self.assertEqual(self.waiting(), [1, 2, 1, 2])

    def test_an_insert_select_into_msg_messages_is_all_or_nothing(self):
        self.assertFails("not*ok", self.a.rows, """INSERT INTO msg_messages(value, topic)
            VALUES (1, 'ok'), (2, 'ok'), (3, 'not*ok')""")
        self.assertEqual(self.waiting(), [])
        self.a.rows("BEGIN")
        self.a.enqueue("ok", 0)
        self.assertFails("not*ok", self.a.rows, """INSERT INTO msg_messages(value, topic)
            VALUES (1, 'ok'), (2, 'ok'), (3, 'not*ok')""")
        self.a.rows("COMMIT")
        self.assertEqual(self.waiting(), [0])

    def test_a_multi_row_insert_that_fails_undoes_its_sends(self):
        for begin, commit in (("BEGIN", "COMMIT"), ("SELECT 1", "SELECT 1")):
            self.a.rows(begin)
            self.assertFails("UNIQUE constraint failed", self.a.rows, """INSERT INTO app(note)
                SELECT iif(msg_enqueue('work', column1) IS NULL, '', column1)
                FROM (VALUES ('x'), ('y'), ('x'))""")
            self.a.rows(commit)
            self.assertEqual(self.waiting(), [])
            self.assertEqual(self.a.rows("SELECT * FROM app"), [])

    def test_a_single_row_insert_that_fails_in_begin_keeps_its_send(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        sql = "INSERT INTO app(note) VALUES (iif(msg_enqueue('work', 1) IS NULL, '', 'x'))"
        self.a.rows("BEGIN")
        self.assertFails("UNIQUE constraint failed", self.a.rows, sql)
        self.a.rows("COMMIT")
        self.assertEqual(self.waiting(), [1])

    def test_in_autocommit_a_failed_single_row_insert_leaves_no_send(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.assertFails("UNIQUE constraint failed", self.a.rows,
                         "INSERT INTO app(note) VALUES (iif(msg_enqueue('work', 1) IS NULL, '', 'x'))")
        self.assertEqual(self.waiting(), [])

    def test_an_update_that_fails_undoes_its_sends(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x'), ('y'), ('z')")
        self.a.rows("BEGIN")
        self.assertFails("UNIQUE constraint failed", self.a.rows, """UPDATE app SET note =
            iif(msg_enqueue('work', id) IS NULL, '', iif(id = 3, 'x', note))""")
        self.a.rows("COMMIT")
        self.assertEqual(self.waiting(), [])

    def test_insert_or_rollback_takes_everything_with_it(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x')")
        self.a.rows("BEGIN")
        self.a.enqueue("work", 1)
        self.assertFails("UNIQUE constraint failed", self.a.rows,
                         "INSERT OR ROLLBACK INTO app(note) VALUES ('x')")
        self.assertFalse(self.a.con.in_transaction)
        self.assertEqual(self.waiting(), [])

    def test_a_multi_row_insert_into_another_schema_undoes_its_sends_too(self):
        self.a.rows("ATTACH ? AS other", self.path + ".other")
        self.a.rows("CREATE TABLE other.app(note TEXT UNIQUE)")
        self.a.rows("BEGIN")
        self.assertFails("UNIQUE constraint failed", self.a.rows, """INSERT INTO other.app
            SELECT iif(msg_enqueue('work', column1) IS NULL, '', column1) FROM (VALUES ('x'), ('x'))""")
        self.a.rows("COMMIT")
        self.assertEqual(self.a.rows("SELECT * FROM other.app"), [])
        self.assertEqual(self.waiting(), [])

    def test_insert_select_sends_a_whole_table(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x'), ('y'), ('z')")
        self.a.rows("""INSERT INTO msg_messages(topic, value, exclusive, priority)
                       SELECT 'work', note, 1, id FROM app ORDER BY note DESC""")
        self.assertEqual([m["value"] for m in self.a.claims("work")], ["x", "y", "z"])

    def test_a_verb_as_top_level_column_runs_once_a_row(self):
        self.a.rows("INSERT INTO app(note) VALUES ('x'), ('y')")
        self.assertEqual(len(self.a.rows("SELECT msg_enqueue('work', note) FROM app")), 2)
        self.a.rows("""WITH sent AS MATERIALIZED (SELECT msg_enqueue('work', note) AS id FROM app)
                       SELECT id, id FROM sent WHERE id IS NOT NULL""")
        self.assertEqual(len(self.waiting()), 4)


@support.local_only("schemas hold messages in the local store alone")
class Attached(support.Case):
    def setUp(self):
        super().setUp()
        self.other = self.path + ".other"
        self.a = self.db()
        self.a.rows("ATTACH ? AS aux", self.other)
        self.a.rows("CREATE TABLE app(x)")

    def test_messages_live_in_the_schema_that_was_opened(self):
        self.a.one("SELECT msg_open('local:aux')")
        self.a.enqueue("work", 1)
        self.assertEqual(self.a.column("SELECT name FROM main.sqlite_schema"), ["app"])
        self.assertIn("msg_store_message", self.a.column("SELECT name FROM aux.sqlite_schema"))
        self.assertEqual(self.db(path=self.other).claim("work")["value"], 1)

    def test_one_transaction_spans_both(self):
        self.a.one("SELECT msg_open('local:aux')")
        other = self.db(path=self.other)
        for end, expected in (("ROLLBACK", 0), ("COMMIT", 1)):
            self.a.rows("BEGIN")
            self.a.rows("INSERT INTO app VALUES (1)")
            self.a.enqueue("work", 1)
            self.a.rows(end)
            self.assertEqual(self.a.one("SELECT count(*) FROM app"), expected)
            self.assertEqual(other.one("SELECT count(*) FROM msg_messages"), expected)

    def test_two_schemas_are_two_stores(self):
        self.a.one("""SELECT msg_open('local', '{"sender_id":"in-main"}')""")
        self.a.one("""SELECT msg_open('local:aux', '{"sender_id":"in-aux"}')""")
        self.a.enqueue("work", "main", node="in-main")
        self.a.enqueue("work", "aux", node="in-aux")
        self.assertEqual(self.a.column("SELECT value FROM msg_claim('work', 10)"), ["aux"])
        self.a.one("""SELECT msg_open('local', '{"sender_id":"in-main"}')""")
        self.assertEqual(self.a.column("SELECT value FROM msg_claim('work', 10)"), ["main"])

    def test_one_name_in_two_schemas_means_neither(self):
        for target, value in (("local", "main"), ("local:aux", "aux")):
            self.assertEqual(self.a.one("SELECT msg_open(?, ?)", target, '{"sender_id":"me"}'), "me")
            self.a.enqueue("work", value)
        twice = "node 'me' is open twice, on queue 'msg' of local:main and on queue 'msg' of local:aux: close the current one"
        for sql in ("SELECT msg_send('t', 1, '{\"node\":\"me\"}')", "SELECT msg_close('me')",
                    "SELECT msg_listen('t', '{\"node\":\"me\"}')", "SELECT * FROM msg_messages WHERE node = 'me'",
                    "SELECT * FROM msg_await('t', 0, 1, 'me')", "SELECT * FROM msg_claim('work', 1, 9, 0, 'me')",
                    "INSERT INTO msg_messages(topic, value, node) VALUES ('t', 1, 'me')"):
            self.assertFails(twice, self.a.rows, sql)
        self.assertEqual(self.a.column("SELECT value FROM msg_messages"), ["aux"])
        self.a.rows("UPDATE msg_messages SET priority = 5")
        self.assertEqual(self.a.column("SELECT priority FROM aux.msg_store_message"), [5])
        self.assertEqual(self.a.column("SELECT priority FROM main.msg_store_message"), [1000])
        self.a.rows("DELETE FROM msg_messages")
        self.assertEqual(self.a.column("SELECT count(*) FROM aux.msg_store_message"), [0])
        self.assertEqual(self.a.column("SELECT count(*) FROM main.msg_store_message"), [1])
        self.assertEqual(self.a.one("SELECT msg_config('lease_ms', 77)"), 77)
        self.assertEqual(self.a.one("SELECT msg_close()"), 1)
        self.assertEqual(self.a.column("SELECT value FROM msg_messages WHERE node = 'me'"), ["main"])
        self.assertEqual(self.a.one("SELECT msg_open('local', '{\"sender_id\":\"me\"}')"), "me")
        self.assertEqual(self.a.one("SELECT msg_config('lease_ms')"), 30000)
        self.assertEqual(self.a.one("SELECT msg_close('me')"), 1)

    def test_a_schema_with_an_odd_name(self):
        self.a.rows("""ATTACH ? AS "my ""odd"" @ schema" """, self.path + ".odd")
        self.a.one("""SELECT msg_open('local:my "odd" @ schema')""")
        self.a.enqueue("work", 1)
        self.assertEqual(self.a.claim("work")["value"], 1)
        self.assertEqual(self.db(path=self.path + ".odd").one("SELECT count(*) FROM msg_messages"), 1)

    def test_temp_and_unknown_schemas_are_refused(self):
        self.assertFails("temp", self.a.one, "SELECT msg_open('local:temp')")
        self.assertFails("nowhere", self.a.one, "SELECT msg_open('local:nowhere')")

    def test_a_detached_schema_gives_a_clear_error(self):
        self.a.one("SELECT msg_open('local:aux')")
        self.a.enqueue("work", 1)
        self.a.rows("DETACH aux")
        self.assertFails("aux", self.a.enqueue, "work", 2)
        self.a.one("SELECT msg_open('local')")
        self.assertEqual(len(self.a.enqueue("work", 3)), 24)


class HostSettings(support.Case):
    def test_callbacks_of_the_host_stay(self):
        a = self.db("a")
        steps, actions = [], []
        a.con.set_progress_handler(lambda: steps.append(1) and 0, 100)
        a.con.set_authorizer(lambda *args: actions.append(args) or sqlite3.SQLITE_OK)
        a.rows("CREATE TABLE app(x)")
        a.enqueue("work", 1)
        a.claim("work")
        before = len(actions)
        a.rows("SELECT x FROM app")
        self.assertGreater(len(actions), before)
        a.rows("WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT sum(i) FROM n")
        self.assertTrue(steps)

    @support.local_only("the authorizer is asked about the host's tables")
    def test_an_authorizer_that_forbids_writing_is_obeyed(self):
        a = self.db("a")
        a.enqueue("work", 1)
        before = a.dump()

        def forbid(action, table, *_):
            writes = (sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE)
            ours = (table or "").startswith("msg_store")
            return sqlite3.SQLITE_DENY if ours and action in writes else sqlite3.SQLITE_OK

        fresh = self.db()
        fresh.con.set_authorizer(forbid)
        self.assertFails("msg: AUTH: ", fresh.one, "SELECT msg_enqueue('work', 2)")
        fresh.con.set_authorizer(None)
        self.assertEqual(a.dump(), before)

    def test_pragmas_that_change_what_a_statement_does_or_gives_do_not_matter(self):
        """Within BEGIN, where every statement runs on the host's connection."""
        for n, pragmas in enumerate((
                ("foreign_keys = ON", "recursive_triggers = ON", "case_sensitive_like = ON"),
                ("reverse_unordered_selects = ON", "automatic_index = OFF"), ("count_changes = ON",),
                ("full_column_names = ON", "short_column_names = OFF"), ("ignore_check_constraints = ON",))):
            a = self.db("a", path="%s-%d" % (self.path, n))
            for pragma in pragmas:
                a.rows("PRAGMA " + pragma)
            with self.subTest(pragmas):
                self.work_within_begin(a, "work%d" % n, "direct%d" % n)

    def work_within_begin(self, a, work, direct):
        def claim(count, attempts):
            a.rows("BEGIN")
            rows = a.rows("SELECT id, value, attempts FROM msg_claim(?, ?)", work, count)
            self.assertEqual([row[1:] for row in rows], list(enumerate(attempts)))
            return json.dumps([row[0] for row in rows])

        for i in range(6):
            a.enqueue(work, i)
        claim(4, [1] * 4)
        a.rows("ROLLBACK")
        self.assertEqual(a.one("SELECT msg_release(?)", claim(4, [2] * 4)), 4)
        a.rows("COMMIT")
        self.assertEqual(a.one("SELECT msg_ack(?)", claim(9, [3] * 4 + [1] * 2)), 6)
        a.send(direct, "to both", recipients=["a", "b"])
        a.rows("COMMIT")
        self.assertEqual(a.values(direct), ["to both"])
        self.assertEqual(a.rows("SELECT DISTINCT topic, recipients FROM msg_messages WHERE topic IN (?, ?)", work, direct),
                         [(direct, '["a","b"]')])

    def test_options_of_a_message_may_be_a_bound_json_value(self):
        a = self.db()
        id = a.one("SELECT msg_send('t', ?, json_object('priority', ?))", "v", 3)
        self.assertEqual(a.one("SELECT priority FROM msg_messages WHERE id = ?", id), 3)

    def test_hosts_that_are_always_in_begin(self):
        """Python's own default: an implicit BEGIN before writing; here before everything."""
        a = self.db(isolation_level="DEFERRED")
        b = self.db("b")
        b.rows("PRAGMA journal_mode = WAL")
        a.rows("BEGIN")
        a.one("SELECT msg_listen('news')")
        a.con.commit()
        for i in range(5):
            a.rows("BEGIN")
            a.enqueue("work", i)
            a.con.commit()
            a.rows("BEGIN")
            got = a.claim("work")
            self.assertEqual(a.one("SELECT msg_ack(?)", got["id"]), 1)
            a.con.commit()
            a.rows("BEGIN")
            b.send("news", i)
            self.assertEqual(a.wait("news", 5000)["value"], i)
            a.con.commit()
        self.assertEqual(b.one("SELECT count(*) FROM msg_messages WHERE exclusive"), 0)


@support.local_only("on MongoDB the host's lock is in nobody's way")
class WaitingForAWriter(support.Case):
    """Inside BEGIN a verb that another writer holds up waits for it: it has read nothing that could grow stale."""

    ID = "00000000000000000000abcd"
    VERBS = (
        "SELECT msg_send('t', 1)", "SELECT msg_enqueue('t', 1)", "SELECT msg_reply('%s', 1)" % ID,
        "SELECT msg_ack('%s')" % ID, "SELECT msg_release('%s')" % ID, "SELECT msg_extend('%s', 10)" % ID,
        "SELECT msg_reject('%s', 'why')" % ID, "SELECT msg_listen('more')", "SELECT msg_listen('news')",
        "SELECT msg_unlisten('news')", "SELECT msg_unlisten('nothing')", "SELECT msg_purge('work')",
        "SELECT msg_redrive('work')", "SELECT msg_claim('work')", "SELECT * FROM msg_claim('work', 5)",
        "SELECT msg_await('news', 0)", "SELECT msg_await('more', 0)", "SELECT msg_request('t', 1, 0)",
        "SELECT msg_open('local', '{\"sender_id\":\"other\"}')", "SELECT msg_close()",
        "DELETE FROM msg_participants WHERE node = 'dead'", "DELETE FROM msg_lanes WHERE owner = 'dead'",
        "DELETE FROM msg_locks", "DELETE FROM msg_messages", "UPDATE msg_messages SET priority = 5",
        "INSERT INTO msg_messages(topic, value) VALUES ('t', 1)")

    def check(self, verb, mode):
        path = support.os.path.join(self.directory, "%s-%d.db" % (mode, len(self.dbs)))
        a = self.db("a", {"busy_timeout_ms": 60000}, path, timeout=0)
        a.rows("PRAGMA journal_mode = " + mode)
        a.one("SELECT msg_listen('news')")
        a.enqueue("work", 1, id=self.ID)
        a.enqueue("work", 2)
        a.claim("work")
        writer = support.connect(path, load=False, timeout=60)
        self.addCleanup(writer.close)
        writer.execute("INSERT INTO msg_store_node SELECT queue, 'dead', 'elsewhere', 1, 'gone', implementation, layout, 0, 1, 1"
                       " FROM msg_store_node WHERE node = 'a'")
        writer.execute("CREATE TABLE app(x)")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO app VALUES (1)")
        a.rows("BEGIN")
        waiting = support.Background(a.rows, verb)
        support.time.sleep(0.05)
        writer.execute("COMMIT")
        with self.subTest(verb=verb, mode=mode):
            waiting.result()
            a.rows("COMMIT")

    def test_with_wal(self):
        for verb in self.VERBS:
            self.check(verb, "wal")

    def test_with_a_rollback_journal(self):
        for verb in self.VERBS:
            self.check(verb, "delete")

    def test_a_typed_table_of_a_node_elsewhere(self):
        a = self.db("a", {"busy_timeout_ms": 60000})
        a.rows("ATTACH ? AS aux", self.path + ".aux")
        a.one("SELECT msg_open('local:aux', '{\"sender_id\":\"b\",\"busy_timeout_ms\":60000}')")
        a.enqueue("work", 1)
        a.one("SELECT msg_open('local', '{\"sender_id\":\"a\"}')")
        a.rows("CREATE VIRTUAL TABLE temp.w USING msg_queue(topic='work', node='b', x)")
        writer = support.connect(self.path + ".aux", load=False, timeout=60)
        self.addCleanup(writer.close)
        writer.execute("CREATE TABLE app(x)")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO app VALUES (1)")
        a.rows("BEGIN")
        waiting = support.Background(a.rows, "DELETE FROM w")
        support.time.sleep(0.05)
        writer.execute("COMMIT")
        waiting.result()
        a.rows("COMMIT")
        self.assertEqual(writer.execute("SELECT count(*) FROM msg_store_message").fetchone(), (0,))

    def test_what_listening_returns(self):
        a, b = self.db("a"), self.db("a")
        self.assertEqual([a.one("SELECT msg_listen('n')"), a.one("SELECT msg_listen('n')"), b.one("SELECT msg_listen('n')"),
                          b.one("SELECT msg_unlisten('n')"), a.one("SELECT msg_unlisten('n')")], [1, 0, 0, 1, 0])


class InsideBegin(support.Case):
    """Waits and requests look at the state of the message schema."""

    def setUp(self):
        super().setUp()
        self.a, self.b = self.db("a"), self.db("b")
        self.a.rows("PRAGMA journal_mode = WAL")
        self.a.rows("CREATE TABLE app(x)")
        self.a.one("SELECT msg_listen('news')")

    @support.local_only(ELSEWHERE)
    def test_a_wait_after_a_write_names_the_cure(self):
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app VALUES (1)")
        for sql in ("SELECT msg_await('news', 60000)", "SELECT msg_claim('work', 1, 1000, 60000)",
                    "SELECT msg_request('ask', 1, 60000)", "SELECT * FROM msg_await('news', 60000)",
                    "SELECT * FROM msg_claim('work', 5, 1000, 60000)"):
            self.assertIn("COMMIT", self.assertFails("msg: MISUSE: ", self.a.rows, sql).upper(), sql)
        self.a.rows("COMMIT")
        self.assertEqual(self.a.rows("SELECT * FROM app"), [(1,)])

    @support.local_only(ELSEWHERE)
    def test_a_wait_after_a_read_names_the_cure(self):
        self.a.rows("BEGIN")
        self.a.rows("SELECT * FROM app")
        for sql in ("SELECT msg_await('news', 60000)", "SELECT msg_claim('work', 1, 1000, 60000)"):
            self.assertIn("COMMIT", self.assertFails("msg: MISUSE: ", self.a.rows, sql).upper(), sql)
        self.a.rows("COMMIT")

    def test_what_is_there_already_is_handed_out_all_the_same(self):
        self.b.send("news", 1)
        self.b.enqueue("work", 2)
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app VALUES (1)")
        self.assertEqual(self.a.wait("news", 60000)["value"], 1)
        self.assertEqual(self.a.claim("work", 1000, 60000)["value"], 2)
        self.a.rows("COMMIT")

    def test_looking_once_is_always_allowed(self):
        self.a.rows("BEGIN")
        self.a.rows("INSERT INTO app VALUES (1)")
        self.assertIsNone(self.a.wait("news", 0))
        self.assertIsNone(self.a.claim("work"))
        self.a.rows("COMMIT")

    def test_a_wait_in_an_untouched_begin_sees_what_comes(self):
        w = self.worker("w")
        self.a.rows("BEGIN")
        waiting = support.Background(self.a.wait, "news", 15000)
        w.rows("SELECT msg_send('news', 'from outside')")
        self.assertEqual(waiting.result()["value"], "from outside")
        self.assertTrue(self.a.con.in_transaction)
        self.a.rows("COMMIT")
        self.assertIsNone(self.a.wait("news"))

    def test_a_wait_in_an_untouched_begin_holds_no_lock(self):
        path = self.path + ".delete"  # a rollback journal: a lock held would keep the other process from committing
        a, w = self.db("a", path=path), self.worker("w", path=path, timeout=1)
        w.rows("CREATE TABLE other(x)")
        a.rows("BEGIN")
        waiting = support.Background(a.claim, "work", 1000, 15000)
        for i in range(20):
            w.rows("INSERT INTO other VALUES (?)", i)
        w.rows("SELECT msg_enqueue('work', 1)")
        self.assertEqual(waiting.result()["value"], 1)
        a.rows("ROLLBACK")
        self.assertEqual(a.one("SELECT state FROM msg_messages"), "ready")

    def test_a_claim_that_waited_in_begin_is_rolled_back_with_it(self):
        w = self.worker("w")
        self.a.rows("BEGIN")
        waiting = support.Background(self.a.claim, "work", 60000, 15000)
        w.rows("SELECT msg_enqueue('work', 1)")
        self.assertEqual(waiting.result()["attempts"], 1)
        self.a.rows("ROLLBACK")
        self.assertEqual(self.b.claim("work")["value"], 1)

    def test_a_request_in_an_untouched_begin_leaves_at_once(self):
        w = self.worker("w")
        w.rows("SELECT msg_listen('ask')")
        self.a.rows("BEGIN")
        w.start("SELECT msg_reply(json_extract(msg_await('ask', 15000), '$.id'), 'the answer')")
        self.assertEqual(self.a.one("SELECT msg_request('ask', 'q', 15000)"), "the answer")
        w.result()
        self.a.rows("ROLLBACK")

    @support.local_only(ELSEWHERE)
    def test_a_stale_snapshot_names_the_cure(self):
        self.a.enqueue("work", 0)
        self.a.rows("BEGIN")
        self.a.rows("SELECT * FROM app")
        self.b.rows("INSERT INTO app VALUES (9)")
        for fn in (lambda: self.a.enqueue("work", 1), lambda: self.a.claim("work")):
            text = self.assertFails("msg: BUSY: ", fn)
            self.assertIn("BEGIN IMMEDIATE", text)
        self.a.rows("ROLLBACK")
        self.a.enqueue("work", 1)
        self.assertEqual(len(self.a.claims("work")), 2)

    @support.local_only(ELSEWHERE)
    def test_a_stale_reading_statement_names_the_cure(self):
        self.a.rows("INSERT INTO app VALUES (1), (2), (3)")
        cursor = self.a.con.execute("SELECT x, iif(x > 1, msg_enqueue('work', x), 0) FROM app")
        self.b.rows("INSERT INTO app VALUES (9)")
        text = self.assertFails("msg: BUSY: ", cursor.fetchall)
        self.assertIn("finish", text)


if __name__ == "__main__":
    support.main()
