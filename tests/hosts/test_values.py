"""Values keep their SQLite type; the scalar forms show messages as JSON; all fields travel."""
import base64
import json
import math
import sqlite3

import support

VALUES = (None, 0, -1, 9223372036854775807, -9223372036854775808, 0.0, -2.5, 1e300, 5e-324,
          "", "text", "ünï©ødé 🎉", "line\nbreak \"quoted\" \\ \t", "12", "1.5", "null", "{\"not\":\"json-typed\"}",
          b"", b"\x00\xff\x10", b"text as blob")


class Types(support.Case):
    def test_tables_keep_type_and_value(self):
        a, b = self.db("a"), self.db("b")
        b.one("SELECT msg_listen('news')")
        for value in VALUES:
            a.enqueue("work", value)
            a.send("news", value)
        wanted = [(v, a.one("SELECT typeof(?)", v)) for v in VALUES]
        self.assertEqual(a.rows("SELECT value, typeof(value) FROM msg_messages WHERE exclusive ORDER BY seq"), wanted)
        self.assertEqual(b.rows("SELECT value, typeof(value) FROM msg_claim('work', 100)"), wanted)
        self.assertEqual(b.rows("SELECT value, typeof(value) FROM msg_await('news', 0, 100)"), wanted)

    def test_scalar_forms_show_json(self):
        a = self.db("a")
        for value in VALUES:
            a.enqueue("work", value)
            got = a.claim("work")["value"]
            if isinstance(value, bytes):
                value = {"$binary": base64.b64encode(value).decode()}
            self.assertEqual(got, value)
            self.assertEqual(type(got), type(value))

    def test_nul_in_a_value_survives(self):
        a, b = self.db("a"), self.db("b")
        b.one("SELECT msg_listen('news')")
        value = "x\0y"
        a.send("news", value, map={"k": value})
        self.assertEqual(b.rows("SELECT value, map FROM msg_await('news', 0)"), [(value, '{"k":"x\\u0000y"}')])
        a.enqueue("work", value)
        got = a.one("SELECT msg_claim('work')")
        self.assertEqual(json.loads(got)["value"], value)
        self.assertEqual(b.one("SELECT length(CAST(value AS BLOB)) FROM msg_messages WHERE topic = 'work'"), 3)
        self.assertEqual(a.one("SELECT msg_ack(?)", "[%s]" % got), 1)

    def test_escaped_backslashes_and_deeper_nuls_are_no_nul(self):
        a = self.db("a")
        shapes = [r'{"key":"x\\u0000"}', r'{"map":{"k":"\u0000"},"key":"\\"}', r'{"additional":["\\",{"k":"\u0000"}]}']
        if not support.MONGODB:  # no key of its documents holds a NUL
            shapes.append(r'{"map":{"k":[{"\u0000":"\u0000"}]},"msg":"\u0001"}')
        for options in shapes:
            self.assertEqual(len(a.one("SELECT msg_enqueue('t', 1, ?)", options)), 24)
        self.assertEqual(a.column("SELECT key FROM msg_messages WHERE key LIKE 'x%'"), [r"x\u0000"])

    def test_nul_in_json5_is_refused(self):
        if sqlite3.sqlite_version_info < (3, 42):
            self.skipTest("SQLite %s reads no JSON5" % sqlite3.sqlite_version)
        a = self.db("a")
        for options in (r'{/* a, */ "group\u0000x":"g"}', r'{"group":"g",/* it\'s */ "priority\u0000":7}', r"{group\u0000:'g'}",
                        r"{group:'\x00'}", r"{group:'\0'}", r"{'gr\x00oup':'g'}", r"{map:{k:'\x00'},group:'\x00'}"):
            self.assertFails("holds a NUL character", a.one, "SELECT msg_enqueue('t', 1, ?)", options)
        self.assertEqual(a.one("SELECT count(*) FROM msg_messages"), 0)
        for options in (r"{/* \u0000 */ group:'g'}", r"{map:{k:'\x00'}, group:'it\\x00'}"):
            self.assertEqual(len(a.one("SELECT msg_enqueue('t', 1, ?)", options)), 24)

    def test_nul_in_a_typed_column_is_refused(self):
        a = self.db("a")
        a.rows("CREATE VIRTUAL TABLE temp.w USING msg_queue(topic='work', a TEXT, b)")
        self.assertFails("msg: INVALID: column b holds a NUL character", a.rows,
                         "INSERT INTO w(a, b) VALUES ('x', 'y' || char(0) || 'z')")
        self.assertEqual(a.one("SELECT count(*) FROM msg_messages"), 0)

    def test_infinities(self):
        a = self.db("a")
        for value in (math.inf, -math.inf):
            a.enqueue("work", value)
            self.assertEqual(a.column("SELECT value FROM msg_claim('work')"), [value])

    def test_json_nests_and_stays_json(self):
        a, b = self.db("a"), self.db("b")
        a.one("SELECT msg_enqueue('work', json_object('n', 1, 'list', json_array(1, 'x', NULL)))")
        a.one("SELECT msg_enqueue('work', json('[1,{}]'))")
        a.one("""SELECT msg_enqueue('work', '{"n":1}')""")
        self.assertEqual([a.claim("work")["value"] for _ in range(3)],
                         [{"n": 1, "list": [1, "x", None]}, [1, {}], "{\"n\":1}"])
        a.one("SELECT msg_enqueue('work', json_object('n', 1))")
        self.assertEqual(a.one("SELECT json_array(value) FROM msg_claim('work')"), '[{"n":1}]')
        self.assertEqual(b.one("SELECT json_array(value) FROM msg_messages WHERE state = 'claimed' ORDER BY seq LIMIT 1"),
                         '[{"n":1,"list":[1,"x",null]}]')

    def test_the_scalar_result_is_json_to_sqlite(self):
        a = self.db("a")
        a.enqueue("work", 5)
        self.assertEqual(a.one("SELECT json_type(json_array(msg_claim('work')), '$[0]')"), "object")
        a.enqueue("work", 6)
        self.assertEqual(a.one("SELECT msg_claim('work') ->> 'value'"), 6)

    def test_large_values(self):
        a = self.db("a")
        for value in ("x" * 5_000_000, b"\x01" * 5_000_000):
            a.enqueue("work", value)
            self.assertEqual(a.column("SELECT value FROM msg_claim('work')"), [value])

    def test_text_with_a_nul_byte_is_not_cut(self):
        a = self.db("a")
        a.enqueue("work", "before\0after")
        self.assertEqual(a.column("SELECT hex(value) FROM msg_claim('work')"),
                         ["before\0after".encode().hex().upper()])

    def test_values_survive_a_rolled_back_settle(self):
        a = self.db("a")
        for value in VALUES:
            a.enqueue("work", value)
        ids = [m["id"] for m in a.claims("work", 100)]
        a.rows("BEGIN")
        a.one("SELECT msg_release(?)", json.dumps(ids))
        a.rows("ROLLBACK")
        a.one("SELECT msg_release(?)", json.dumps(ids))
        self.assertEqual([m["value"] for m in a.claims("work", 100)], list(VALUES))


class Fields(support.Case):
    def test_every_field_of_a_send(self):
        a = self.db("a")
        id = a.one("""SELECT msg_send('t', 'v', json_object('msg', 'free', 'map', json('{"k":[1,2]}'),
            'additional', json('["x",1,null]'), 'priority', -7, 'ttl_ms', 1000000, 'recipients', json('["b","c"]'),
            'in_answer_to', '0123456789abcdef01234567', 'delete_after_processing', json('true'),
            'delete_after_processing_ms', 5000, 'key', 'the key', 'id', 'ffffffffffffffffffffffff'))""")
        self.assertEqual(id, "ffffffffffffffffffffffff")
        got = a.dicts("SELECT * FROM msg_messages")[0]
        for name, value in {
                "id": id, "topic": "t", "value": "v", "msg": "free", "map": '{"k":[1,2]}',
                "additional": '["x",1,null]', "sender": "a", "recipients": '["b","c"]',
                "in_answer_to": "0123456789abcdef01234567", "processed_by": "[]", "exclusive": 0,
                "priority": -7, "ttl": 1000000, "timing_out": 1, "delete_after_processing": 1,
                "delete_after_processing_time": 5000, "key": "the key", "group": None, "state": "ready",
                "attempts": 0, "reason": None, "owner": None, "token": None}.items():
            self.assertEqual(got[name], value, name)
        self.assertEqual(got["delete_at"], got["timestamp"] + 1000000)
        self.assertEqual(got["deliver_at"], got["timestamp"])
        self.assertTrue(got["sender_host"])

    def test_defaults(self):
        a = self.db("a")
        a.one("SELECT msg_send('t', 'v')")
        got = a.dicts("SELECT * FROM msg_messages")[0]
        for name, value in {"priority": 1000, "ttl": 30000, "timing_out": 1, "exclusive": 0, "recipients": None,
                            "msg": None, "map": None, "additional": None, "in_answer_to": None,
                            "delete_after_processing": 0, "delete_after_processing_time": 0}.items():
            self.assertEqual(got[name], value, name)

    def test_ids_are_object_ids_in_order(self):
        a = self.db("a")
        ids = [a.enqueue("work", i) for i in range(50)]
        for id in ids:
            self.assertRegex(id, "^[0-9a-f]{24}$")
        self.assertEqual(ids, sorted(ids))
        self.assertEqual(len(set(ids)), 50)

    def test_ids_are_taken_in_upper_case_too(self):
        a = self.db("a")
        id = a.enqueue("work", 1)
        a.claim("work")
        self.assertEqual(a.one("SELECT msg_ack(?)", id.upper()), 1)

    def test_the_scalar_json_leaves_out_what_is_null(self):
        a = self.db("a")
        a.enqueue("work", None)
        got = a.claim("work")
        for absent in ("msg", "map", "additional", "recipients", "in_answer_to", "delete_at", "key", "group"):
            self.assertNotIn(absent, got)
        self.assertIn("value", got)
        self.assertIsNone(got["value"])
        self.assertEqual(set(got) - {"id", "topic", "value", "sender", "sender_host", "exclusive", "priority",
                                     "timestamp", "deliver_at", "token", "attempts", "until"}, set())

    def test_topics_in_unicode(self):
        a = self.db("a")
        longest = 200 if support.LAYOUT == "multi" else 255  # there it names a collection
        for topic in ("größe/über", "a b", "日本語", "x" * longest):
            a.enqueue(topic, topic)
            self.assertEqual(a.claim(topic)["topic"], topic)


class Configuration(support.Case):
    def test_settings_with_default_and_unit(self):
        a = self.db("a")
        rows = {r["name"]: r for r in a.dicts("SELECT * FROM msg_settings")}
        for name, value, unit in (("lease_ms", 30000, "ms"), ("default_ttl_ms", 30000, "ms"), ("max_attempts", 20, None),
                                  ("busy_timeout_ms", 5000, "ms"), ("key_window_ms", 300000, "ms"), ("queue", "msg", None)):
            self.assertEqual(str(rows[name]["value"]), str(value), name)
            self.assertEqual(str(rows[name]["default"]), str(value), name)
            if unit:
                self.assertEqual(rows[name]["unit"], unit, name)

    def test_update_of_msg_settings_is_msg_config(self):
        a = self.db("a")
        a.rows("UPDATE msg_settings SET value = 1234 WHERE name = 'lease_ms'")
        self.assertEqual(a.one("SELECT msg_config('lease_ms')"), 1234)
        a.one("SELECT msg_config('lease_ms', 4321)")
        self.assertEqual(a.one("SELECT value FROM msg_settings WHERE name = 'lease_ms'"), 4321)

    def test_version_and_doctor(self):
        a = self.db("a")
        self.assertRegex(a.one("SELECT msg_version()"), r"\d+\.\d+\.\d+")
        doctor = a.one("SELECT msg_doctor()")
        self.assertIn(a.one("SELECT sqlite_version()"), doctor)
        self.assertIn("topology" if support.MONGODB else "journal", doctor)
        if not support.MONGODB:
            a.rows("PRAGMA journal_mode = WAL")
            self.assertIn("wal", a.one("SELECT msg_doctor()"))

    def test_counters(self):
        a = self.db("a")
        a.enqueue("work", 1)
        a.enqueue("work", 2, key="k")
        a.enqueue("work", 2, key="k")
        got = a.claim("work")
        a.one("SELECT msg_ack(?)", got["id"])
        a.one("SELECT msg_ack(?)", got["id"])
        stats = dict(a.rows("SELECT name, value FROM msg_stats WHERE node = 'a'"))
        for name, value in {"sent": 2, "deduplicated": 1, "claimed": 1, "acked": 1, "late": 1}.items():
            self.assertEqual(stats[name], value, name)

    def test_participants_show_this_process(self):
        a = self.db("a")
        a.enqueue("work", 1)
        got = a.dicts("SELECT * FROM msg_participants WHERE node = 'a'")[0]
        self.assertEqual((got["pid"], got["alive"]), (support.os.getpid(), 1))


if __name__ == "__main__":
    support.main()
