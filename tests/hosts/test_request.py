"""Requests: the first answer, n answers, time-out gives NULL, a late answer can still be awaited."""
import json
import time

import support


class Request(support.Case):
    def setUp(self):
        super().setUp()
        self.a, self.b = self.db("a"), self.db("b")
        self.a.rows("PRAGMA journal_mode = WAL")
        self.b.one("SELECT msg_listen('ask')")

    def answer(self, db, *values, **options):
        """Take one request in the background and answer it with each value."""
        def run():
            request = db.wait("ask", 15000)
            return [db.one("SELECT msg_reply(?, ?, ?)", request["id"], value, json.dumps(options))
                    for value in values]
        return support.Background(run)

    def test_the_first_answer_is_the_value(self):
        b = self.answer(self.b, "forty-two")
        self.assertEqual(self.a.one("SELECT msg_request('ask', 'what?', 15000)"), "forty-two")
        self.assertRegex(b.result()[0], "^[0-9a-f]{24}$")

    def test_values_keep_their_type(self):
        for value in (7, 2.5, "text", b"\x00\x01", None):
            b = self.answer(self.b, value)
            got = self.a.rows("SELECT value, typeof(value) FROM msg_request('ask', 'what?', 15000)")
            b.result()
            self.assertEqual(got, [(value, self.a.one("SELECT typeof(?)", value))])

    def test_the_table_form_gives_several_answers(self):
        c = self.db("c")
        c.one("SELECT msg_listen('ask')")
        answers = [self.answer(self.b, "from b"), self.answer(c, "from c")]
        got = self.a.rows("""SELECT sender, value FROM
                             msg_request('ask', 'who?', 15000, '{"answers":2}') ORDER BY 1""")
        self.assertEqual(got, [("b", "from b"), ("c", "from c")])
        for answer in answers:
            answer.result()

    def test_fewer_answers_than_wanted_are_given_at_the_time_out(self):
        answer = self.answer(self.b, "only one")
        begin = time.monotonic()
        got = self.a.column("""SELECT value FROM msg_request('ask', 'who?', 3000, '{"answers":3}')""")
        self.assertEqual(got, ["only one"])
        self.assertGreaterEqual(time.monotonic() - begin, 2.99)
        answer.result()

    def test_a_time_out_gives_null_and_no_rows(self):
        begin = time.monotonic()
        self.assertEqual(self.a.rows("SELECT msg_request('nobody', 1, 120)"), [(None,)])
        self.assertTrue(0.11 < time.monotonic() - begin < 3)
        self.assertEqual(self.a.rows("SELECT * FROM msg_request('nobody', 1, 20)"), [])

    def test_a_late_answer_can_still_be_awaited(self):
        self.assertIsNone(self.a.one("SELECT msg_request('ask', 'slow?', 30)"))
        request = self.b.wait("ask", 1000)
        self.b.one("SELECT msg_reply(?, 'late')", request["id"])
        got = self.a.wait(None, 1000)
        self.assertEqual((got["value"], got["in_answer_to"]), ("late", request["id"]))
        self.assertIsNone(self.a.wait())

    def test_an_answer_looks_as_its_request(self):
        self.assertIsNone(self.a.one("""SELECT msg_request('ask', 'q', 1, '{"msg":"text","priority":500}')"""))
        request = self.b.wait("ask")
        id = self.b.one("SELECT msg_reply(?, 'r')", request["id"])
        got = self.b.dicts("""SELECT topic, msg, sender, recipients, in_answer_to, priority, exclusive
                              FROM msg_messages WHERE id = ?""", id)[0]
        self.assertEqual(got, {"topic": "ask", "msg": "text", "sender": "b", "recipients": '["a"]',
                               "in_answer_to": request["id"], "priority": 490, "exclusive": 0})

    def test_options_of_a_reply(self):
        self.a.one("SELECT msg_request('ask', 'q', 1)")
        request = self.b.wait("ask")
        self.b.one("SELECT msg_reply(?, 'r', ?)", request["id"],
                   json.dumps({"msg": "own", "map": {"k": 1}, "additional": ["x"]}))
        got = self.a.wait()
        self.assertEqual((got["msg"], got["map"], got["additional"]), ("own", {"k": 1}, ["x"]))

    def test_ones_own_request_is_not_answered_by_oneself(self):
        self.a.one("SELECT msg_listen('ask')")
        self.assertIsNone(self.a.one("SELECT msg_request('ask', 1, 1)"))
        self.assertIsNone(self.a.wait("ask"))
        self.assertIsNotNone(self.b.wait("ask"))

    def test_an_exclusive_request_is_claimed_by_one_and_answered(self):
        c = self.db("c")
        asking = support.Background(
            self.a.one, """SELECT msg_request('job', 20, 15000, '{"exclusive":true}')""")
        claimed = self.b.claim("job", 30000, 15000)
        self.assertIsNone(c.claim("job"))
        self.b.one("SELECT msg_reply(?, ?)", claimed["id"], claimed["value"] + 1)
        self.assertEqual(self.b.one("SELECT msg_ack(?)", claimed["id"]), 1)
        self.assertEqual(asking.result(), 21)

    def test_a_message_already_acknowledged_can_be_answered_by_who_had_it(self):
        asking = support.Background(
            self.a.one, """SELECT msg_request('job', 1, 15000, '{"exclusive":true}')""")
        claimed = self.b.claim("job", 30000, 15000)
        self.b.one("SELECT msg_ack(?)", claimed["id"])
        self.b.one("SELECT msg_reply(?, 'done')", claimed["id"])
        self.assertEqual(asking.result(), "done")

    def test_requests_of_one_process_get_their_own_answers(self):
        askers = [self.db("asker-%d" % i) for i in range(4)]
        pending = [support.Background(db.one, "SELECT msg_request('ask', ?, 15000)", i)
                   for i, db in enumerate(askers)]
        requests = []
        while len(requests) < 4:
            requests += self.b.dicts("SELECT id, value FROM msg_await('ask', 5000, 10)")
        for request in reversed(requests):
            self.b.one("SELECT msg_reply(?, ?)", request["id"], "answer %d" % request["value"])
        self.assertEqual([p.result() for p in pending], ["answer %d" % i for i in range(4)])

    def test_two_requests_of_one_node_at_a_time(self):
        other = self.db("a")  # the same node on a second connection
        pending = [support.Background(db.one, "SELECT msg_request('ask', ?, 15000)", i)
                   for i, db in enumerate((self.a, other))]
        requests = []
        while len(requests) < 2:
            requests += self.b.dicts("SELECT id, value FROM msg_await('ask', 5000, 10)")
        for request in reversed(requests):
            self.b.one("SELECT msg_reply(?, ?)", request["id"], request["value"] * 10)
        self.assertEqual([p.result() for p in pending], [0, 10])

    def test_an_await_does_not_take_the_answer_of_a_waiting_request(self):
        other = self.db("a")
        awaiting = support.Background(other.wait, None, 1500)
        answer = self.answer(self.b, "mine")
        self.assertEqual(self.a.one("SELECT msg_request('ask', 1, 15000)"), "mine")
        answer.result()
        self.assertIsNone(awaiting.result())

    def test_between_processes(self):
        w = self.worker("w")
        w.rows("SELECT msg_listen('remote')")
        w.start("SELECT msg_reply(json_extract(msg_await('remote', 15000), '$.id'), 'from there')")
        self.assertEqual(self.a.one("SELECT msg_request('remote', 1, 15000)"), "from there")
        w.result()

    def test_a_reply_to_an_unknown_id_is_an_error(self):
        self.assertFails("0123456789abcdef01234567", self.b.one,
                         "SELECT msg_reply('0123456789abcdef01234567', 1)")

    def test_a_reply_belongs_to_the_transaction(self):
        self.a.one("SELECT msg_request('ask', 'q', 1)")
        request = self.b.wait("ask")
        self.b.rows("BEGIN")
        self.b.one("SELECT msg_reply(?, 'undone')", request["id"])
        self.b.rows("ROLLBACK")
        self.assertIsNone(self.a.wait())
        self.b.one("SELECT msg_reply(?, 'kept')", request["id"])
        self.assertEqual(self.a.wait()["value"], "kept")


if __name__ == "__main__":
    support.main()
