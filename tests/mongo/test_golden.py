"""Documents of a real Morphium 6.3.6, read and written; golden/ was taken from its nodes."""
import json

from harness import OURS, Case, date, golden, java_message, kind, long, main, now_ms, until


class Reading(Case):
    def setUp(self):
        super().setUp()
        self.node = self.db("c-node")
        self.node.wait("#none")  # the place exists

    def row(self, name):
        document = golden(name)
        self.insert(document)
        return document, self.node.dicts("SELECT * FROM msg_messages WHERE id = ?",
                                         document["_id"]["$oid"])[0]

    def test_a_broadcast(self):
        document, row = self.row("broadcast_new")
        self.assertEqual(row["topic"], "quiet")
        self.assertEqual(row["msg"], "text")
        self.assertEqual(row["value"], "value")
        self.assertEqual(row["sender"], "Node_A1")
        self.assertEqual(row["sender_host"], "javahost")
        self.assertEqual(row["priority"], 1000)
        self.assertEqual(row["exclusive"], 0)
        self.assertEqual(row["timing_out"], 1)
        self.assertEqual(row["ttl"], 60000)
        self.assertIsNone(row["recipients"])
        self.assertIsNone(row["in_answer_to"])
        self.assertEqual(json.loads(row["additional"]), ["add1", "add2"])
        self.assertEqual(json.loads(row["map"]), {"k1": 1, "k2": 2.5, "k4": 5, "k6": True,
                                                        "d.ot": "v", "list": [1, "a"]})
        self.assertEqual(row["state"], "ready")

    def test_text_in_unicode(self):
        _, row = self.row("umlauts")
        self.assertEqual((row["topic"], row["value"]), ("Ümläut/x-y", "Grüße-€-😀"))

    def test_an_exclusive_message_that_never_expires_is_claimed_and_acknowledged(self):
        document, row = self.row("exclusive_never_expiring")
        self.assertEqual((row["exclusive"], row["timing_out"], row["ttl"]), (1, 0, 0))
        claimed = self.node.claim("quiet")
        self.assertEqual(claimed["id"], document["_id"]["$oid"])
        self.assertEqual(self.node.one("SELECT msg_ack(?)", claimed["id"]), 1)

    def test_what_was_processed_is_not_claimed(self):
        for name in "exclusive_processed", "exclusive_running":
            document, row = self.row(name)
            self.assertEqual(json.loads(row["processed_by"]), ["Node_B2"])
            self.assertIsNone(self.node.claim(document["topic"]))

    def test_a_broadcast_that_another_has_seen_comes_all_the_same(self):
        document = golden("broadcast_processed")
        self.node.one("SELECT msg_listen('order.created')")
        self.insert(document)
        self.assertEqual(self.node.wait("order.created", 5000)["id"], document["_id"]["$oid"])
        until(lambda: "c-node" in self.document(document["_id"]["$oid"])["processed_by"])

    def test_a_direct_message_for_two(self):
        self.insert(golden("direct_two"))
        x, y = self.db("Node_X"), self.db("Node_Y")
        self.assertIsNone(self.node.wait("quiet"))
        self.assertEqual([n.wait("quiet", 5000)["value"] for n in (x, y)], ["value", "value"])

    def test_a_message_to_oneself(self):
        self.insert(golden("to_self"))
        self.assertEqual(self.db("Node_A1").wait("quiet", 5000)["value"], "value")

    def test_delete_after_processing(self):
        document, row = self.row("delete_after_processing")
        self.assertEqual(row["delete_after_processing"], 1)
        self.assertEqual(row["delete_after_processing_time"], 5000)

    def test_a_lock_shows_and_holds(self):
        lock, message = golden("lock"), golden("exclusive_running")
        message["processed_by"] = []
        message["_id"] = lock["_id"]
        lock["delete_at"] = message["delete_at"]
        self.insert(message)
        self.insert(lock, collection="msg_lck")
        self.assertIsNone(self.node.claim("slow"))
        rows = self.node.dicts("SELECT * FROM msg_locks")
        self.assertEqual([(r["id"], r["owner"]) for r in rows], [(lock["_id"]["$oid"], "Node_B2")])

    def test_a_participant(self):
        participant = golden("participant")
        participant["last_seen"] = long(now_ms())
        self.insert(participant, collection="msg_participants")
        row = self.node.dicts("SELECT * FROM msg_participants WHERE node = 'Node_A1'")[0]
        self.assertEqual((row["implementation"], row["alive"]), ("StandardMessaging", 1))

    def test_fields_of_others_stay(self):
        document = golden("exclusive_never_expiring")
        document["theirs"] = {"a": [1, {"b": None}]}
        self.insert(document)
        claimed = self.node.claim("quiet")
        self.node.one("SELECT msg_release(?)", claimed["id"])
        self.assertEqual(self.document(claimed["id"])["theirs"],
                         {"a": [{"$numberInt": "1"}, {"b": None}]})


class Writing(Case):
    """Each message of ours has the fields of Morphium's with their types, whatever the kind."""

    def check(self, id, name, null=()):
        document, model = self.document(id), golden(name)
        self.assertEqual(set(document) - OURS, set(model))
        for field in model:
            if field in null:
                self.assertIn(kind(document[field]), ("null", kind(model[field])), field)
            elif field not in ("msg", "value", "sender_host", "map_value", "additional"):
                self.assertEqual(kind(document[field]), kind(model[field]), field)
        self.assertEqual(document["name"], document["topic"])
        self.assertEqual(document["class_name"], model["class_name"])
        return document

    def test_a_broadcast(self):
        n = self.db("c-node")
        document = self.check(n.send("t", "value"), "broadcast_new")
        self.assertEqual(document["recipients"], None)
        self.assertEqual(document["processed_by"], [])
        self.assertEqual(document["in_answer_to"], None)

    def test_an_exclusive_message(self):
        n = self.db("c-node")
        document = self.check(n.enqueue("t", "value"), "exclusive_never_expiring")
        self.assertEqual(document["ttl"], long(0))
        self.assertIs(document["timing_out"], False)

    def test_a_direct_message(self):
        n = self.db("c-node")
        document = self.check(n.send("t", "value", recipients=["Node_X", "Node_Y"]), "direct_two")
        self.assertEqual(document["recipients"], ["Node_X", "Node_Y"])

    def test_an_answer(self):
        n = self.db("c-node")
        request = golden("request_processed")
        request["processed_by"] = []
        n.one("SELECT msg_listen('ask')")
        self.insert(request)
        got = n.wait("ask", 5000)
        answer = self.check(n.one("SELECT msg_reply(?, 'yes')", got["id"]), "answer_processed")
        self.assertEqual(answer["in_answer_to"], request["_id"])
        self.assertEqual(answer["recipients"], [request["sender"]])
        self.assertEqual(answer["priority"], {"$numberInt": "990"})

    def test_every_field(self):
        n = self.db("c-node")
        id = n.send("t", "value", msg="text", map={"a": 1}, additional=["x"], priority=5,
                    ttl_ms=1234567, delete_after_processing=True)
        document = self.check(id, "broadcast_new")
        self.assertEqual(document["priority"], {"$numberInt": "5"})
        self.assertEqual(document["ttl"], long(1234567))
        self.assertIs(document["delete_after_processing"], True)
        self.assertEqual((document["msg"], document["additional"]), ("text", ["x"]))

    def test_the_indexes_have_morphiums_names_and_keys(self):
        n = self.db("c-node")
        n.send("t", "value")
        for collection in "msg", "msg_lck":
            indexes = {i["name"]: i for i in self.admin.exact(
                self.database, {"listIndexes": collection})["cursor"]["firstBatch"]}
            for model in golden("indexes_" + collection):
                ours = indexes[model["name"]]
                self.assertEqual(list(ours["key"].items()), list(model["key"].items()))
                self.assertEqual(ours.get("expireAfterSeconds"), model.get("expireAfterSeconds"))

    def test_the_participant(self):
        n = self.db("c-node")
        n.send("t", "value")
        until(lambda: self.find({"_id": "c-node"}, "msg_participants"))
        ours = self.find({"_id": "c-node"}, "msg_participants", exact=True)[0]
        model = golden("participant")
        for field in model:
            self.assertEqual(kind(ours[field]), kind(model[field]), field)
        self.assertEqual(ours["implementation"], model["implementation"])
        n.close()
        self.assertEqual(self.find({"_id": "c-node"}, "msg_participants"), [])


GONE = object()  # a field left out


class Tolerance(Case):
    """Section 2.3: foreign documents, one field varied at a time. Delivered once, or not at all, or
    (where Morphium's own layouts differ) either; never in the way of the message behind it."""

    def next(self, n, exclusive):
        m = n.claim("t", wait_ms=5000) if exclusive else n.wait("t", 5000)
        return m and m["value"]

    def deliver(self, exclusive, expected, fields):
        n = self.db("c-node")
        if not exclusive:
            n.one("SELECT msg_listen('t')")
        n.send("warm", "up")
        varied = {**java_message("t", value="varied", exclusive=exclusive), **fields}
        self.insert({k: v for k, v in varied.items() if v is not GONE})
        self.insert(java_message("t", value="after", exclusive=exclusive,
                                 timestamp=long(now_ms() + 1)))
        got = [self.next(n, exclusive)]
        if expected is True or (expected is None and got != ["after"]):
            got.append(self.next(n, exclusive))
        self.assertIn("after", got)
        if expected is True:
            self.assertEqual(sorted(got), ["after", "varied"])
        if expected is not None:
            self.assertIsNone(n.claim("t") if exclusive else n.wait("t"))
        for table in "msg_messages", "msg_topics", "msg_queues":
            n.rows("SELECT * FROM " + table)


def variation(what, expected=True, kinds=(False, True), **fields):
    for exclusive in kinds:
        def test(self, exclusive=exclusive):
            self.deliver(exclusive, expected, fields)
        setattr(Tolerance, "test_%s_%s" % (what, "exclusive" if exclusive else "broadcast"), test)


variation("class_name_absent", class_name=GONE)
variation("class_name_msg", class_name="msg")
variation("class_name_of_a_subclass", class_name="com.example.OurMsg")
variation("processed_by_absent", processed_by=GONE)
variation("processed_by_null", processed_by=None)
variation("recipients_absent", recipients=GONE)
variation("timing_out_absent", timing_out=GONE)
variation("exclusive_absent", kinds=(False,), exclusive=GONE)
variation("priority_absent", priority=GONE)
variation("sender_host_absent", sender_host=GONE)
variation("delete_at_absent", delete_at=GONE)
variation("delete_after_processing_absent", delete_after_processing=GONE,
          delete_after_processing_time=GONE)
variation("ttl_int32", ttl={"$numberInt": "60000"})
variation("ttl_double", ttl={"$numberDouble": "60000.0"})
variation("timestamp_double", timestamp={"$numberDouble": "%d.0" % now_ms()})
variation("priority_int64", priority={"$numberLong": "1000"})
variation("priority_double", priority={"$numberDouble": "1000.0"})
variation("name_only", topic=GONE)
variation("topic_only", name=GONE)
variation("unknown_field", extra={"a": [1]})
variation("older_than_ttl", expected=False, timestamp=long(now_ms() - 3600000),
          delete_at=date(now_ms() - 3540000))
variation("recipients_empty", expected=None, recipients=[])
variation("ttl_absent", expected=None, ttl=GONE)
variation("timestamp_absent", expected=None, timestamp=GONE)
variation("timestamp_date", expected=None, timestamp=date(now_ms()))
variation("sender_absent", expected=None, sender=GONE)
variation("value_a_number", expected=None, value={"$numberInt": "7"})
variation("id_text", expected=None, _id="no-object-id")

if __name__ == "__main__":
    main()
