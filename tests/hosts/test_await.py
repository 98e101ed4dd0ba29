"""Await observes: broadcasts once for each listening node, direct messages for their recipients, never one's own."""
import json

import support


class Broadcast(support.Case):
    def test_every_listening_node_gets_each_message_once(self):
        listeners = [self.db(name) for name in ("a", "b", "c")]
        for db in listeners:
            db.one("SELECT msg_listen('news')")
        sender = self.db("sender")
        for i in range(3):
            sender.send("news", i)
        for db in listeners:
            self.assertEqual(db.values("news"), [0, 1, 2])
            self.assertEqual(db.values("news"), [])

    def test_scalar_form_gives_one_message_as_json_then_null(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        id = b.send("news", "hello", msg="free text", map={"k": 1}, additional=["x"], priority=7)
        got = a.wait("news")
        self.assertEqual(
            (got["id"], got["topic"], got["value"], got["sender"], got["msg"], got["map"],
             got["additional"], got["priority"]),
            (id, "news", "hello", "b", "free text", {"k": 1}, ["x"], 7))
        self.assertFalse(got["exclusive"])
        self.assertIsNone(a.wait("news"))

    def test_a_listener_that_was_busy_gets_what_was_sent_meanwhile(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        b.send("news", "first")
        self.assertEqual(a.wait("news")["value"], "first")
        a.rows("CREATE TABLE work(x)")  # busy with its own things
        with a.con:
            a.rows("INSERT INTO work VALUES (1)")
        b.send("news", "while busy")
        a.rows("INSERT INTO work VALUES (2)")
        b.send("news", "still busy")
        self.assertEqual(a.values("news"), ["while busy", "still busy"])

    def test_never_ones_own(self):
        a, b = self.db("a"), self.db("b")
        for db in (a, b):
            db.one("SELECT msg_listen('news')")
        a.send("news", "from a")
        self.assertEqual(a.values("news"), [])
        self.assertEqual(b.values("news"), ["from a"])

    def test_listening_begins_with_the_first_await(self):
        a, b = self.db(), self.db("b")
        b.send("news", "before")
        self.assertIsNone(a.wait("news"))
        b.send("news", "after")
        self.assertEqual(a.values("news"), ["after"])

    def test_a_node_with_a_given_id_catches_up(self):
        self.db("b").send("news", "before")
        self.assertEqual(self.db("given").values("news"), ["before"])

    def test_catch_up_can_be_chosen(self):
        self.db("b").send("news", "before")
        self.assertEqual(self.db("given", {"catch_up": False}).values("news"), [])
        self.assertEqual(self.db(options={"catch_up": True}).values("news"), ["before"])

    def test_catch_up_can_be_chosen_for_one_listen(self):
        self.db("b").send("news", "before")
        automatic, given = self.db(), self.db("given")
        automatic.one("SELECT msg_listen('news', ?)", json.dumps({"catch_up": True}))
        given.one("SELECT msg_listen('news', ?)", json.dumps({"catch_up": False}))
        self.assertEqual(automatic.values("news"), ["before"])
        self.assertEqual(given.values("news"), [])

    def test_a_given_id_goes_on_where_it_stopped(self):
        b = self.db("b")
        a = support.Db(self.path, "a")
        b.send("news", 1)
        self.assertEqual(a.values("news"), [1])
        a.close()
        b.send("news", 2)
        self.assertEqual(self.db("a").values("news"), [2])

    def test_automatic_ids_differ_and_name_host_program_and_process(self):
        ids = [self.db().open() for _ in range(3)]
        self.assertEqual(len(set(ids)), 3)
        for id in ids:
            self.assertRegex(id, r"^[a-z0-9.-]+-python3[a-z0-9.-]*-%d-[0-9]+$" % support.os.getpid())

    def test_connections_with_one_sender_id_share_one_node(self):
        one, two, b = self.db("shared"), self.db("shared"), self.db("b")
        one.one("SELECT msg_listen('news')")
        for i in range(4):
            b.send("news", i)
        got = [one.wait("news")["value"], two.wait("news")["value"], two.wait("news")["value"],
               one.wait("news")["value"]]
        self.assertEqual(got, [0, 1, 2, 3])
        self.assertIsNone(one.wait("news"))
        self.assertIsNone(two.wait("news"))

    def test_what_msg_open_refuses_changes_nothing_for_those_who_share_the_node(self):
        a, b, c = self.db("same"), self.db("other"), self.db()
        refused = {"default_ttl_ms": 5000, "busy_timeout_ms": 7}  # fixed while the node is open
        for db in (a, b, c):
            self.assertFails("busy_timeout_ms", db.open, "same", refused)
        a.send("news", 1, node="same")
        self.assertEqual(a.one("SELECT msg_config('default_ttl_ms')"), 30000)
        b.send("news", 2)
        self.assertEqual(b.column("SELECT sender FROM msg_messages ORDER BY value"), ["same", "other"])
        b.one("SELECT msg_close()")
        self.assertEqual(b.open("other"), "other")
        self.assertFails("node 'same' was closed", b.rows, "SELECT msg_send('news', 3, '{\"node\": \"same\"}')")

    def test_a_shared_node_that_another_connection_closed_can_be_opened_again(self):
        a, b = self.db("same"), self.db("same")
        b.one("SELECT msg_close()")
        self.assertFails("node 'same' is closed: open it again", a.send, "news", 1)
        a.open("same")
        a.send("news", 2, node="same")
        self.assertEqual(a.one("SELECT count(DISTINCT node) FROM msg_stats"), 1)
        self.assertEqual(a.one("SELECT msg_close('same')"), 1)
        self.assertEqual(a.one("SELECT msg_close('same')"), 0)

    @support.local_only("on MongoDB both may get the same: mongo.seen")
    def test_processes_with_one_sender_id_share_its_messages(self):
        b = self.db("b")
        b.rows("PRAGMA journal_mode = WAL")
        workers = [self.worker("shared") for _ in range(2)]
        for worker in workers:
            worker.one("SELECT msg_listen('news')")
        b.rows("BEGIN")
        for i in range(60):
            b.send("news", i)
        b.rows("COMMIT")
        for worker in workers:
            worker.start("SELECT value FROM msg_await('news', 0, 100)")
        got = [value for worker in workers for (value,) in worker.result()]
        for worker in workers:  # what one lost to the other in its look is gone for both
            got += [value for (value,) in worker.rows("SELECT value FROM msg_await('news', 0, 100)")]
        self.assertEqual(sorted(got), list(range(60)))

    def test_one_connection_can_hold_several_nodes(self):
        db = self.db("a")
        db.one("SELECT msg_listen('news')")
        self.assertEqual(db.open("b"), "b")
        db.send("news", "from b")
        db.send("news", "from a", node="a")
        self.assertEqual(db.values("news"), ["from b", "from a"][1:])  # b is current
        self.assertEqual(db.open("a"), "a")
        self.assertEqual(db.values("news"), ["from b"])

    def test_an_exclusive_message_is_not_awaited(self):
        a = self.db("a")
        a.one("SELECT msg_listen('work')")
        self.db("b").enqueue("work", 1)
        self.assertEqual(a.values("work"), [])
        self.assertEqual(a.claim("work")["value"], 1)

    def test_processed_by_names_who_has_seen(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        id = b.send("news", 1)
        self.assertEqual(b.one("SELECT processed_by FROM msg_messages WHERE id = ?", id), "[]")
        a.wait("news")
        self.assertEqual(b.one("SELECT processed_by FROM msg_messages WHERE id = ?", id), '["a"]')

    def test_delete_after_processing_removes_what_was_seen(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        id = b.send("news", 1, delete_after_processing=True)
        self.assertEqual(a.values("news"), [1])
        self.assertIsNone(b.state(id))

    def test_many_messages_and_gaps_are_seen_once(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('*')")
        b.rows("BEGIN")
        for i in range(300):
            b.send("t%d" % (i % 7), i, priority=1000 + i % 3)
        b.rows("COMMIT")
        got = []
        for topic in ("t3", "t5", "t3", None, "t1", None):
            got += a.values(topic, 0, 40)
        got += a.values(None, 0, 1000)
        self.assertEqual(sorted(got), list(range(300)))
        self.assertEqual(a.values(None), [])


class Direct(support.Case):
    def test_only_the_recipient_gets_it_and_needs_not_listen(self):
        a, b, c = self.db("a"), self.db("b"), self.db("c")
        c.one("SELECT msg_listen('private')")
        b.send("private", 1, recipient="a")
        self.assertEqual(c.values(), [])
        self.assertEqual(a.values(), [1])
        self.assertEqual(a.values(), [])

    def test_several_recipients_each_get_it_once(self):
        nodes = {name: self.db(name) for name in ("a", "b", "c", "d")}
        nodes["d"].send("private", 1, recipients=["a", "b", "a"])
        self.assertEqual({n: db.values("private") for n, db in nodes.items()},
                         {"a": [1], "b": [1], "c": [], "d": []})

    def test_the_topic_asked_for_must_match(self):
        a = self.db("a")
        self.db("b").send("private", 1, recipient="a")
        self.assertEqual(a.values("other"), [])
        self.assertEqual(a.values("priv*"), [1])

    def test_one_may_write_to_oneself(self):
        a = self.db("a")
        a.send("note", "to me", recipient="a")
        self.assertEqual(a.values(), ["to me"])

    def test_a_direct_message_waits_for_a_recipient_not_there_yet(self):
        self.db("b").send("private", 1, recipient="later")
        self.assertEqual(self.db("later", {"catch_up": False}).values(), [1])

    def test_a_direct_message_leaves_the_lane_when_taken(self):
        a, b = self.db("a"), self.db("b")
        id = b.send("private", 1, recipient="a")
        self.assertEqual(b.rows("SELECT owner, depth FROM msg_lanes WHERE depth"), [("a", 1)])
        a.values()
        self.assertEqual(b.one("SELECT coalesce(sum(depth), 0) FROM msg_lanes"), 0)
        self.assertIn(b.state(id), (None, "processed"))

    def test_an_exclusive_message_with_recipients_is_claimed_by_them_only(self):
        a, b = self.db("a"), self.db("b")
        b.enqueue("work", 1, recipient="a")
        self.assertIsNone(b.claim("work"))
        self.assertEqual(a.claim("work")["value"], 1)


class Patterns(support.Case):
    def setUp(self):
        super().setUp()
        self.b = self.db("b")

    def send_all(self):
        for topic in ("orders", "orders.eu", "orders.us", "Orders.eu", "reorders.eu"):
            self.b.send(topic, topic)

    def test_glob(self):
        a = self.db("a")
        a.one("SELECT msg_listen('orders.*')")
        self.send_all()
        self.assertEqual(a.values(), ["orders.eu", "orders.us"])

    def test_glob_class_and_single_character(self):
        a = self.db("a")
        self.send_all()
        self.assertEqual(a.values("orders.[e]?"), ["orders.eu"])

    def test_regular_expression(self):
        a = self.db("a")
        a.one("SELECT msg_listen('/^(re)?orders[.]e/')")
        self.send_all()
        self.assertEqual(a.values(), ["orders.eu", "reorders.eu"])

    def test_a_message_that_two_patterns_match_comes_once(self):
        a = self.db("a")
        for pattern in ("orders.*", "orders.eu", "/eu$/"):
            a.one("SELECT msg_listen(?)", pattern)
        self.send_all()
        got = [a.wait("orders.eu")["value"]] + a.values()
        self.assertEqual(sorted(got), ["Orders.eu", "orders.eu", "orders.us", "reorders.eu"])

    def test_claims_take_patterns_too(self):
        for topic in ("jobs.a", "jobs.b", "other"):
            self.b.enqueue(topic, topic)
        self.assertEqual([m["value"] for m in self.b.claims("jobs.*")], ["jobs.a", "jobs.b"])
        self.assertEqual([m["value"] for m in self.b.claims("/^oth/")], ["other"])

    def test_listen_and_unlisten_say_whether_they_changed_something(self):
        a = self.db("a")
        self.assertEqual(a.one("SELECT msg_listen('x.*')"), 1)
        self.assertEqual(a.one("SELECT msg_listen('x.*')"), 0)
        self.assertEqual(a.column("SELECT pattern FROM msg_listeners WHERE node = 'a'"), ["x.*"])
        self.assertEqual(a.one("SELECT msg_unlisten('x.*')"), 1)
        self.assertEqual(a.one("SELECT msg_unlisten('x.*')"), 0)
        self.assertEqual(a.column("SELECT pattern FROM msg_listeners WHERE node = 'a'"), [])

    def test_after_unlisten_nothing_more_comes(self):
        a = self.db("a")
        a.one("SELECT msg_listen('x')")
        a.one("SELECT msg_unlisten('x')")
        self.b.send("x", 1)
        self.assertEqual(a.values(), [])


class Rows(support.Case):
    def test_a_row_is_marked_when_it_is_handed_out_not_before(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        for i in range(5):
            b.send("news", i)
        cursor = a.con.execute("SELECT value FROM msg_await('news', 0, 10)")
        self.assertEqual(cursor.fetchone(), (0,))
        cursor.close()  # the rest was not handed out (Python reads one row ahead at most)
        rest = a.values("news")
        self.assertIn(rest, ([1, 2, 3, 4], [2, 3, 4]))

    def test_limit_reaches_max(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        for i in range(5):
            b.send("news", i)
        self.assertEqual(a.column("SELECT value FROM msg_await('news', 0, 100) LIMIT 2"), [0, 1])
        self.assertEqual(a.values("news"), [2, 3, 4])

    def test_a_filter_of_sqlite_does_not_cut_before_it(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_listen('news')")
        for i in range(6):
            b.send("news", i)
        self.assertEqual(
            a.column("SELECT value FROM msg_await('news', 0, 100) WHERE value % 2 = 1 LIMIT 2"), [1, 3])

    def run_again(self, path):
        a, b = self.db("a", path=path), self.db("b", path=path)
        a.one("SELECT msg_listen('news')")
        for i in range(3):
            b.send("news", i)
        got = a.rows("""SELECT n.column1, m.value FROM (VALUES (10), (20)) AS n
                        CROSS JOIN msg_await('news', 0, 10) AS m""")
        self.assertEqual(got, [(10, 0), (10, 1), (10, 2), (20, 0), (20, 1), (20, 2)])
        self.assertEqual(a.values("news"), [])

    def test_a_cursor_run_again_gives_the_same_rows(self):
        self.run_again(self.path)

    @support.local_only("on MongoDB the host's file is of no account")
    def test_a_cursor_run_again_in_a_database_of_utf_16(self):
        path = self.path + "-16"
        plain = self.db(path=path, load=False)
        plain.rows("PRAGMA encoding = 'UTF-16'")
        plain.rows("CREATE TABLE app(x)")
        self.run_again(path)


class Pausing(support.Case):
    def test_a_paused_topic_waits_for_this_node_only(self):
        a, b, c = self.db("a"), self.db("b"), self.db("c")
        for db in (a, c):
            db.one("SELECT msg_listen('news')")
        self.assertEqual(a.one("SELECT msg_pause('news')"), 1)
        b.send("news", 1)
        self.assertEqual(a.values(), [])
        self.assertEqual(c.values(), [1])
        self.assertEqual(a.one("SELECT paused FROM msg_topics WHERE topic = 'news'"), 1)
        self.assertEqual(a.one("SELECT msg_resume('news')"), 1)
        self.assertEqual(a.one("SELECT msg_resume('news')"), 0)
        self.assertEqual(a.values(), [1])

    def test_claims_leave_paused_topics_alone(self):
        a = self.db("a")
        a.enqueue("jobs.a", 1)
        a.enqueue("jobs.b", 2)
        a.one("SELECT msg_pause('jobs.a')")
        self.assertEqual([m["value"] for m in a.claims("jobs.*")], [2])
        a.one("SELECT msg_resume('jobs.a')")
        self.assertEqual([m["value"] for m in a.claims("jobs.*")], [1])


if __name__ == "__main__":
    support.main()
