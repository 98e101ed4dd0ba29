"""The tables: what they push down gives the same rows as a full scan; what they let one write."""
import itertools
import random

import support


class Differential(support.Case):
    """msg_messages against a plain copy of it, statement by statement."""

    @classmethod
    def setUpClass(cls):
        cls.directory_of_class = support.tempfile.mkdtemp(prefix="msg-test-")
        db = cls.database = support.Db(support.os.path.join(cls.directory_of_class, "t.db"), "a")
        rng = random.Random(7)
        db.rows("BEGIN")
        for i in range(120):
            options = {"priority": rng.choice([-1, 10, 1000, 1000, 2147483647]), "ttl_ms": 100000000}
            if rng.random() < 0.2:
                options["delay_ms"] = 50000000 + i
            if rng.random() < 0.2:
                options["recipient"] = rng.choice(["a", "b"])
            if rng.random() < 0.3:
                options["msg"] = rng.choice(["x", "Y", "10"])
            topic = rng.choice(["a", "A", "b.1", "b.2", "10", "zz"])
            value = rng.choice([None, i, i / 2, "v%d" % i, bytes([i])])
            if rng.random() < 0.6:
                if rng.random() < 0.3 and "recipient" not in options:
                    options["group"] = rng.choice("gh")
                db.enqueue(topic, value, **options)
            else:
                db.send(topic, value, **options)
        db.rows("COMMIT")
        for topic in ("a", "b.1"):
            for message in db.claims(topic, 3, 100000000)[:1]:
                db.one("SELECT msg_reject(?, 'bad')", message["id"])
        db.rows("CREATE TEMP TABLE copy AS SELECT * FROM msg_messages")
        cls.ids = db.column("SELECT id FROM copy")
        cls.times = db.column("SELECT DISTINCT timestamp FROM copy")

    @classmethod
    def tearDownClass(cls):
        cls.database.close()
        support.shutil.rmtree(cls.directory_of_class, True)

    def same(self, sql, *args, ordered=False):
        """The statement gives the same on the table and on its copy; {t} is the name."""
        key = (lambda rows: rows) if ordered else (lambda rows: sorted(rows, key=repr))
        got = key(self.database.rows(sql.format(t="msg_messages"), *args))
        wanted = key(self.database.rows(sql.format(t="copy"), *args))
        self.assertEqual(got, wanted, (sql, args))
        return got

    def test_the_copy_is_worth_comparing_with(self):
        states = dict(self.database.rows("SELECT state, count(*) FROM copy GROUP BY 1"))
        for state in ("ready", "delayed", "claimed", "blocked", "dead"):
            self.assertGreater(states.get(state, 0), 0, state)

    def literals(self, column):
        return {
            "id": [self.ids[0], self.ids[50], self.ids[5].upper(), self.ids[7][:10], "", 5, None, b"x"],
            "topic": ["a", "A", "b.1", "10", 10, 10.0, "nothing", "", None, b"a", "b"],
            "sender": ["a", "A", "b", None, 1],
            "state": ["ready", "READY", "claimed", "dead", "nonsense", 0, None, b"ready"],
            "timestamp": [self.times[0], str(self.times[0]), self.times[0] + 0.5, 0, -1, None, "x", 9e18],
            "deliver_at": [self.times[-1], 1e12, None, "", 9223372036854775807],
            "priority": [1000, "1000", 1000.0, 999.5, -1, 2147483647, 2147483648, -9e18, None, "abc", b"1"],
            "seq": [1, 5, 5.5, "7", None, 1000],
        }[column]

    COLUMNS = ("id", "topic", "sender", "state", "timestamp", "deliver_at", "priority", "seq")

    def test_each_comparison_with_each_literal(self):
        for column in self.COLUMNS:
            for operator, literal in itertools.product(("=", "<", "<=", ">", ">=", "<>", "IS", "IS NOT"),
                                                       self.literals(column)):
                self.same("SELECT * FROM {t} WHERE %s %s ?" % (column, operator), literal)

    def test_inlined_literals(self):
        for where in ("topic = 'a'", "topic = 10", "priority = '1000'", "priority = 1000.0", "topic IS NULL",
                      "state = 'ready' AND topic = 'a'", "priority > 999.5", "priority BETWEEN '10' AND 1000",
                      "topic > 'a' AND topic < 'c'", "topic BETWEEN 'b' AND 'b.9'", "topic >= 'b' AND topic >= 'b.2'",
                      "priority < 10 AND priority > 10", "topic = 'a' AND topic = 'b.1'", "+topic = 'a'",
                      "topic || '' = 'a'", "priority + 0 = 1000", "topic = sender", "state = 'dead' OR topic = 'a'",
                      "NOT topic = 'a'", "topic NOT IN ('a')", "topic NOT NULL", "rowid > 3 AND rowid < 30"):
            self.same("SELECT * FROM {t} WHERE " + where.replace("rowid", "seq"))

    def test_collations_and_patterns(self):
        for where in ("topic = 'A' COLLATE NOCASE", "topic COLLATE NOCASE = 'A'", "topic < 'B' COLLATE NOCASE",
                      "topic IN ('A' COLLATE NOCASE)", "topic = 'a ' COLLATE RTRIM", "state = 'READY' COLLATE NOCASE",
                      "topic LIKE 'B.%'", "topic GLOB 'b.*'", "topic LIKE 'a'", "sender = 'A' COLLATE NOCASE",
                      "topic COLLATE NOCASE IN ('A', 'ZZ')", "topic COLLATE NOCASE BETWEEN 'A' AND 'B'"):
            self.same("SELECT * FROM {t} WHERE " + where)

    def test_in_lists_and_in_subqueries(self):
        for where in ("topic IN ('a', 'zz', 'nothing', 'a')", "topic IN ()", "topic IN (NULL)", "topic IN ('a', NULL)",
                      "topic IN (10, 'b.1')", "priority IN (10, '1000', 3.0)", "state IN ('ready', 'dead')",
                      "topic IN ('a', 'b.1') AND state IN ('ready', 'claimed') AND priority IN (10, 1000)",
                      "topic IN (SELECT topic FROM copy WHERE priority = 10)",
                      "id IN (SELECT id FROM copy LIMIT 7)", "(topic, priority) IN (VALUES ('a', 1000), ('zz', 10))",
                      "topic IN (SELECT column1 FROM (VALUES ('a'), ('b.1'), (NULL)))"):
            self.same("SELECT * FROM {t} WHERE " + where)

    def test_six_executions_of_one_statement(self):
        """SQLite re-plans after the first bindings; each execution must be right on its own."""
        for column in self.COLUMNS:
            sql = "SELECT id, %s FROM {t} WHERE %s >= ? AND %s <= ? AND topic = ?" % ((column,) * 3)
            literals = [x for x in self.literals(column) if x is not None]
            for i in range(6):
                self.same(sql, literals[i % len(literals)], literals[(i * 3 + 1) % len(literals)], ("a", "zz", 10)[i % 3])

    def test_order_limit_offset(self):
        for order in ("priority, deliver_at, seq", "seq", "seq DESC", "priority DESC, seq", "id", "id DESC",
                      "topic, seq", "timestamp, seq", "deliver_at, seq", "priority, deliver_at DESC, seq",
                      "priority, seq", "topic COLLATE NOCASE, seq"):
            for where in ("", "WHERE topic = 'a'", "WHERE topic IN ('a', 'zz', '10')", "WHERE state = 'ready'",
                          "WHERE topic = 'a' AND msg = 'x'", "WHERE priority >= 10"):
                for limit in ("", "LIMIT 5", "LIMIT 5 OFFSET 3", "LIMIT 0", "LIMIT -1 OFFSET 2", "LIMIT 1000 OFFSET 1000"):
                    self.same("SELECT id FROM {t} %s ORDER BY %s %s" % (where, order, limit), ordered=True)

    def test_limit_without_order_gives_as_many(self):
        for where in ("topic = 'a'", "topic = 'a' AND msg IS NULL", "state = 'ready' AND topic LIKE 'B%'",
                      "topic IN ('a', 'b.1') AND priority = 1000"):
            for limit in ("LIMIT 3", "LIMIT 3 OFFSET 2", "LIMIT 0", "LIMIT 1000"):
                got = self.database.rows("SELECT id FROM msg_messages WHERE %s %s" % (where, limit))
                wanted = self.database.rows("SELECT id FROM copy WHERE %s %s" % (where, limit))
                self.assertEqual(len(got), len(wanted), (where, limit))
                self.assertLessEqual(set(got), set(self.database.rows("SELECT id FROM copy WHERE " + where)))
                self.assertEqual(len(set(got)), len(got))

    def test_bound_limits(self):
        for limit, offset in ((3, 0), (0, 0), (-1, 0), (5, 2), (5, 100), (-1, -1)):
            self.same("SELECT id FROM {t} WHERE topic = ? ORDER BY priority, deliver_at, seq LIMIT ? OFFSET ?",
                      "a", limit, offset, ordered=True)

    def test_aggregates_distinct_compounds(self):
        for sql in ("SELECT count(*) FROM {t}", "SELECT topic, count(*), min(priority), max(seq) FROM {t} GROUP BY topic",
                    "SELECT DISTINCT topic FROM {t}", "SELECT DISTINCT topic, state FROM {t} WHERE priority = 1000",
                    "SELECT topic FROM {t} WHERE topic = 'a' UNION SELECT topic FROM {t} WHERE state = 'dead'",
                    "SELECT id FROM {t} WHERE topic = 'a' EXCEPT SELECT id FROM {t} WHERE state = 'ready'",
                    "SELECT max(seq) FROM {t} WHERE topic = 'b.1'", "SELECT min(id) FROM {t}",
                    "SELECT topic, group_concat(seq) FROM (SELECT * FROM {t} ORDER BY seq) GROUP BY topic",
                    "SELECT seq, row_number() OVER (PARTITION BY topic ORDER BY priority, seq) FROM {t}"):
            self.same(sql)

    def test_joins_nested_loops_and_correlated_subqueries(self):
        self.database.rows("CREATE TEMP TABLE IF NOT EXISTS wanted(topic TEXT, priority)")
        self.database.rows("DELETE FROM wanted")
        self.database.rows("""INSERT INTO wanted VALUES ('a', 1000), ('zz', '10'), ('b.1', NULL), (NULL, 1000), ('a', 10.0),
                              (10, 1000), ('A', -1)""")
        for sql in ("SELECT w.rowid, m.id FROM wanted AS w JOIN {t} AS m ON m.topic = w.topic",
                    "SELECT w.rowid, m.id FROM wanted AS w CROSS JOIN {t} AS m WHERE m.topic = w.topic AND m.priority = w.priority",
                    "SELECT w.rowid, m.id FROM wanted AS w LEFT JOIN {t} AS m ON m.topic = w.topic AND m.priority >= w.priority",
                    "SELECT w.rowid, m.id FROM {t} AS m CROSS JOIN wanted AS w ON m.topic = w.topic",
                    "SELECT w.rowid, m.id FROM wanted AS w, {t} AS m WHERE m.topic IN (w.topic, 'zz')",
                    "SELECT x.id, y.id FROM {t} AS x JOIN {t} AS y ON y.topic = x.topic AND y.priority < x.priority",
                    "SELECT x.id, y.id FROM copy AS x JOIN {t} AS y ON y.id = x.id",
                    "SELECT w.rowid, (SELECT count(*) FROM {t} AS m WHERE m.topic = w.topic) FROM wanted AS w",
                    "SELECT w.rowid, (SELECT id FROM {t} AS m WHERE m.topic = w.topic ORDER BY seq LIMIT 1) FROM wanted AS w",
                    "SELECT w.rowid FROM wanted AS w WHERE EXISTS (SELECT 1 FROM {t} AS m WHERE m.topic = w.topic AND m.state = 'ready')",
                    "SELECT id FROM {t} AS m WHERE priority = (SELECT max(priority) FROM {t} AS n WHERE n.topic = m.topic)",
                    "SELECT id FROM {t} AS m WHERE seq > (SELECT avg(seq) FROM {t} AS n WHERE n.topic = m.topic AND n.state = m.state)"):
            self.same(sql)

    def test_random_conjunctions(self):
        rng = random.Random(11)
        for _ in range(400):
            terms, args = [], []
            for column in rng.sample(self.COLUMNS, rng.randint(1, 3)):
                if rng.random() < 0.25:
                    choice = [rng.choice(self.literals(column)) for _ in range(3)]
                    terms.append("%s IN (?, ?, ?)" % column)
                    args += choice
                else:
                    terms.append("%s %s ?" % (column, rng.choice(["=", "<", "<=", ">", ">=", "IS"])))
                    args.append(rng.choice(self.literals(column)))
            self.same("SELECT id FROM {t} WHERE " + " AND ".join(terms), *args)

    def test_status_tables(self):
        db = self.database
        for table in ("msg_queues", "msg_topics", "msg_locks", "msg_participants", "msg_lanes", "msg_settings"):
            db.rows("DROP TABLE IF EXISTS temp.status")
            db.rows("CREATE TEMP TABLE status AS SELECT * FROM %s" % table)
            columns = [d[0] for d in db.con.execute("SELECT * FROM status").description]
            steady = [c for c in columns if "age" not in c]
            rows = db.rows("SELECT * FROM status")
            for column in steady:
                for value in {row[columns.index(column)] for row in rows} | {None, "no such", 1}:
                    for operator in ("=", "IS", ">", "<="):
                        sql = 'SELECT %s FROM {t} WHERE "%s" %s ?' % (
                            ", ".join('"%s"' % c for c in steady), column, operator)
                        self.assertEqual(sorted(db.rows(sql.format(t=table), value), key=repr),
                                         sorted(db.rows(sql.format(t="status"), value), key=repr), (sql, value, table))


class Writes(support.Case):
    def test_insert_gives_every_option(self):
        a = self.db("a")
        a.rows("""INSERT INTO msg_messages(id, topic, value, msg, map, additional, recipients, exclusive, priority, ttl,
                                           deliver_at, key)
                  VALUES ('0123456789abcdef01234567', 't', 1, 'free', '{"k":1}', '["x"]', '["b"]', 1, 5, 60000, 0, 'k')""")
        got = a.dicts("SELECT * FROM msg_messages")[0]
        for name, value in {"id": "0123456789abcdef01234567", "topic": "t", "value": 1, "msg": "free", "map": '{"k":1}',
                            "additional": '["x"]', "recipients": '["b"]', "exclusive": 1, "priority": 5,
                            "ttl": 60000, "key": "k", "sender": "a"}.items():
            self.assertEqual(got[name], value, name)
        a.rows("""INSERT INTO msg_messages(topic, value, exclusive, "group") VALUES ('g', 1, 1, 'grp'), ('g', 2, 1, 'grp')""")
        self.assertEqual(a.column("SELECT state FROM msg_messages WHERE topic = 'g' ORDER BY seq"), ["ready", "blocked"])

    def test_insert_defaults_are_those_of_msg_send(self):
        a = self.db("a")
        a.rows("INSERT INTO msg_messages(topic, value) VALUES ('t', 1)")
        a.one("SELECT msg_send('t', 1)")
        rows = a.rows("""SELECT topic, value, exclusive, priority, ttl, timing_out, delete_at - timestamp, deliver_at - timestamp,
                         sender, state FROM msg_messages""")
        self.assertEqual(rows[0], rows[1])

    def test_insert_of_a_read_only_column_is_an_error(self):
        a = self.db("a")
        for column in ("sender", "sender_host", "processed_by", "state", "attempts", "reason", "owner", "token", "since",
                       "until", "seq"):
            self.assertFails(column, a.rows, 'INSERT INTO msg_messages(topic, "%s") VALUES (\'t\', 1)' % column)
        self.assertEqual(a.rows("SELECT * FROM msg_messages"), [])

    def test_update_of_any_other_column_is_an_error(self):
        a = self.db("a")
        a.enqueue("work", 1)
        columns = [d[0] for d in a.con.execute("SELECT * FROM msg_messages").description]
        before = a.dump()
        for column in columns:
            if column not in ("priority", "deliver_at", "ttl"):
                self.assertFails(column, a.rows, 'UPDATE msg_messages SET "%s" = \'other\'' % column)
        self.assertEqual(a.dump(), before)

    def test_who_is_marked_before_it_comes_has_seen_it(self):
        a = self.db("a")
        ids = [a.send("news", i, ttl_ms=600000) for i in range(40)]
        a.rows("UPDATE msg_messages SET processed_by = '[\"later\"]' WHERE topic = 'news' AND id <> ?", ids[7])
        later = self.db("later")
        self.assertEqual(later.column("SELECT value FROM msg_await('news', 5000, 50)"), [7])
        self.assertEqual(later.column("SELECT value FROM msg_await('news', 100, 50)"), [])

    def test_update_of_several_rows_and_columns(self):
        a = self.db("a")
        for i in range(4):
            a.enqueue("work", i)
        a.rows("UPDATE msg_messages SET priority = 1000 - value, ttl = 50000 WHERE value >= 2")
        self.assertEqual(a.column("SELECT value FROM msg_claim('work', 10)"), [3, 2, 0, 1])

    def test_delete_removes_in_any_state(self):
        a = self.db("a")
        for i in range(5):
            a.enqueue("work", i)
        a.claims("work", 1)
        a.one("SELECT msg_reject(?, 'bad')", a.claim("work")["id"])
        a.rows("DELETE FROM msg_messages WHERE value < 3")
        self.assertEqual(a.column("SELECT value FROM msg_messages ORDER BY seq"), [3, 4])
        a.rows("DELETE FROM msg_messages")
        self.assertEqual(a.rows("SELECT * FROM msg_messages"), [])

    @support.local_only("on MongoDB DELETE and UPDATE act at once")
    def test_writes_belong_to_the_transaction(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        for sql in ("DELETE FROM msg_messages", "UPDATE msg_messages SET priority = 1",
                    "INSERT INTO msg_messages(topic) VALUES ('x')"):
            before = a.rows("SELECT * FROM msg_messages")
            a.rows("BEGIN")
            a.rows(sql)
            self.assertNotEqual(a.rows("SELECT * FROM msg_messages"), before)
            a.rows("ROLLBACK")
            self.assertEqual(a.rows("SELECT * FROM msg_messages"), before)
        self.assertEqual(a.claim("work")["id"], id)

    def test_read_only_tables_say_so(self):
        a = self.db("a")
        a.enqueue("work", 1)
        a.claim("work")
        before = a.dump()
        for table in ("msg_queues", "msg_topics", "msg_locks", "msg_participants", "msg_lanes", "msg_listeners",
                      "msg_cursors", "msg_stats"):
            column = a.con.execute("SELECT * FROM %s" % table).description[0][0]
            with self.assertRaises(support.sqlite3.Error, msg=table):
                a.rows("INSERT INTO %s(%s) VALUES ('x')" % (table, column))
            if a.one("SELECT count(*) FROM %s" % table):
                with self.assertRaises(support.sqlite3.Error, msg=table):
                    a.rows("UPDATE %s SET %s = 'x'" % (table, column))
        for table in ("msg_queues", "msg_topics", "msg_listeners", "msg_cursors", "msg_stats", "msg_settings"):
            if a.one("SELECT count(*) FROM %s" % table):
                with self.assertRaises(support.sqlite3.Error, msg=table):
                    a.rows("DELETE FROM %s" % table)
        self.assertEqual(a.dump(), before)

    def test_lanes_drop_only_when_empty_and_orphaned(self):
        a = self.db("a")
        a.send("private", 1, recipient="nobody")
        self.assertFails("", a.rows, "DELETE FROM msg_lanes WHERE owner = 'nobody'")
        self.assertEqual(a.column("SELECT depth FROM msg_lanes WHERE owner = 'nobody'"), [1])


class Typed(support.Case):
    def setUp(self):
        super().setUp()
        self.a = self.db("a")
        self.a.rows("CREATE VIRTUAL TABLE orders USING msg_queue(topic='orders', customer TEXT, total REAL)")

    def test_payload_keys_are_columns_with_affinity(self):
        self.a.rows("INSERT INTO orders(customer, total) VALUES (12, '20.5')")
        self.assertEqual(self.a.rows("SELECT customer, typeof(customer), total, typeof(total) FROM orders"),
                         [("12", "text", 20.5, "real")])
        self.assertEqual(self.a.one("SELECT value FROM msg_messages"), '{"customer":"12","total":20.5}')

    def test_messages_sent_elsewhere_show(self):
        self.a.one("SELECT msg_enqueue('orders', json_object('total', '7', 'other', 1))")
        self.a.one("SELECT msg_enqueue('orders', 'not an object')")
        self.a.one("SELECT msg_enqueue('other', json_object('total', 8))")
        self.assertEqual(self.a.rows("SELECT customer, total FROM orders"), [(None, 7.0), (None, None)])

    def test_what_is_inserted_can_be_claimed(self):
        self.a.rows("INSERT INTO orders(customer, total) VALUES ('Ada', 1)")
        got = self.a.claim("orders") or self.a.one("SELECT value FROM msg_messages")
        self.assertIn("Ada", str(got))

    def test_msg_id_is_the_messages(self):
        self.a.rows("INSERT INTO orders(customer) VALUES ('Ada')")
        id = self.a.one("SELECT id FROM msg_messages")
        self.assertEqual(self.a.rows("SELECT msg_id, customer FROM orders WHERE msg_id = ?", id), [(id, "Ada")])

    def test_it_lives_in_the_file_and_works_in_the_next_connection(self):
        self.a.rows("INSERT INTO orders(customer) VALUES ('Ada')")
        self.assertEqual(self.db("b").rows("SELECT customer FROM orders"), [("Ada",)])

    def test_constraints_give_the_same_rows_as_a_copy(self):
        a = self.a
        for i in range(20):
            a.rows("INSERT INTO orders(customer, total) VALUES (?, ?)", "c%d" % (i % 4), i / 2)
        a.rows("CREATE TEMP TABLE copy AS SELECT msg_id, customer, total FROM orders")
        for where in ("total > 3", "total = '4'", "customer = 'c1' AND total < 5", "total IS NULL",
                      "msg_id = (SELECT min(msg_id) FROM copy)", "customer IN ('c1', 'c3')",
                      "msg_id IN (SELECT msg_id FROM copy LIMIT 3)", "total BETWEEN 2 AND 3",
                      "customer = 'C1' COLLATE NOCASE", "customer LIKE 'C_' ORDER BY total DESC LIMIT 3 OFFSET 1"):
            self.assertEqual(sorted(a.rows("SELECT msg_id, customer, total FROM orders WHERE " + where)),
                             sorted(a.rows("SELECT msg_id, customer, total FROM copy WHERE " + where)), where)

    def test_insert_returning_gives_null_and_sends(self):
        """SQLite asks a virtual table for nothing after the insert: ids come from the functions."""
        self.assertEqual(self.a.rows("INSERT INTO orders(customer) VALUES ('Ada') RETURNING msg_id, customer"), [(None, "Ada")])
        self.assertEqual(self.a.rows("INSERT INTO msg_messages(topic, value) VALUES ('t', 1), ('t', 2) RETURNING id"), [(None,), (None,)])
        self.assertEqual(self.a.column("SELECT customer FROM orders"), ["Ada"])
        self.assertEqual(self.a.column("SELECT value FROM msg_messages WHERE topic = 't' AND id IS NOT NULL"), [1, 2])

    def test_drop_leaves_the_messages(self):
        self.a.rows("INSERT INTO orders(customer) VALUES ('Ada')")
        self.a.rows("DROP TABLE orders")
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages"), 1)


if __name__ == "__main__":
    support.main()
