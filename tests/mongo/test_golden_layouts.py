"""Documents of real Morphium 6.3.6 nodes of layouts multi and dual, read and written, each in its
place; golden/LAYOUT/ was taken from them. Layout standard: test_golden.py."""
import time

from harness import (OURS, Background, Case, golden, home, kind, lane, locks, long, main, now_ms,
                     oid, until)


class Layout:
    """The tests of both."""

    def golden(self, name):
        return golden("%s/%s" % (self.layout, name))

    def home(self, topic):
        return home(topic, self.layout)

    def lane(self, node):
        return lane(node, self.layout)

    def locks(self, topic):
        return locks(topic, self.layout)

    def node(self, id="c-node"):
        return self.db(id, {"layout": self.layout})

    def put(self, name, collection, **change):
        document = dict(self.golden(name), **change)
        self.insert(document, collection=collection)
        return document

    def there(self, id, collection):
        return self.find({"_id": {"$oid": id}}, collection, exact=True)[0]

    # -- reading

    def test_a_broadcast(self):
        n = self.node()
        n.one("SELECT msg_listen('quiet')")
        document = self.put("broadcast_new", self.home("quiet"))
        got = n.wait("quiet", 5000)
        self.assertEqual((got["id"], got["value"], got["sender"]),
                         (document["_id"]["$oid"], "value", "Node_A1"))
        self.assertEqual(got["map"], {"k1": 1, "k2": 2.5, "k4": 5, "k6": True, "d.ot": "v",
                                      "list": [1, "a"]})
        until(lambda: self.there(got["id"], self.home("quiet"))["processed_by"] == ["c-node"])

    def test_a_broadcast_that_another_has_seen_comes_all_the_same(self):
        n = self.node()
        n.one("SELECT msg_listen('order.created')")
        document = self.put("broadcast_processed", self.home("order.created"))
        self.assertEqual(document["processed_by"], ["Node_B2"])
        self.assertEqual(n.wait("order.created", 5000)["id"], document["_id"]["$oid"])

    def test_an_exclusive_message_is_claimed_and_acknowledged(self):
        n = self.node()
        document = self.put("exclusive_never_expiring", self.home("quiet"))
        claimed = n.claim("quiet", wait_ms=5000)
        self.assertEqual(claimed["id"], document["_id"]["$oid"])
        self.assertEqual(n.one("SELECT msg_ack(?)", claimed["id"]), 1)

    def test_what_was_processed_is_not_claimed(self):
        n = self.node()
        self.put("exclusive_processed", self.home("order.created"))
        self.assertIsNone(n.claim("order.created"))
        self.assertEqual(n.column("SELECT state FROM msg_messages"), ["processed"])

    def test_what_runs_there_is_not_claimed(self):
        """Dual has marked it, Multi only locked it."""
        n = self.node()
        running = self.put("exclusive_running", self.home("slow"))
        lock = self.put("lock", self.locks("slow"), delete_at=running["delete_at"])
        self.assertEqual(running["processed_by"], self.marked_while_it_runs)
        self.assertIsNone(n.claim("slow"))
        rows = n.dicts("SELECT id, owner FROM msg_locks")
        self.assertEqual(rows, [{"id": lock["_id"]["$oid"], "owner": "Node_B2"}])

    def test_what_ran_there_and_was_rolled_back_is_claimed(self):
        n = self.node()
        running = self.put("exclusive_running", self.home("slow"), processed_by=[])
        self.put("lock", self.locks("slow"), delete_at=running["delete_at"])
        self.assertIsNone(n.claim("slow"))
        self.admin.delete(self.database, self.locks("slow"), {"_id": running["_id"]})
        self.assertEqual(n.claim("slow", wait_ms=5000)["id"], running["_id"]["$oid"])

    def test_each_recipient_has_a_copy(self):
        for node, name in ("Node_X", "direct_two_first"), ("Node_Y", "direct_two_second"):
            self.put(name, self.lane(node))
        x, y = self.node("Node_X"), self.node("Node_Y")
        id = x.wait("quiet", 5000)["id"]
        until(lambda: self.there(id, self.lane("Node_X"))["processed_by"] == ["Node_X"])
        self.assertEqual(self.there(id, self.lane("Node_Y"))["processed_by"], [])
        self.assertEqual(y.wait("quiet", 5000)["id"], id)
        self.assertEqual(x.one("SELECT count(*) FROM msg_messages"), 1)

    def test_a_direct_exclusive_message_is_claimed(self):
        x = self.node("Node_X")
        document = self.put("direct_exclusive", self.lane("Node_X"))
        claimed = x.claim("quiet", wait_ms=5000)
        self.assertEqual(claimed["id"], document["_id"]["$oid"])
        self.assertEqual(x.one("SELECT msg_ack(?)", claimed["id"]), 1)

    def test_what_was_processed_in_a_lane_stays_there(self):
        self.put("direct_processed", self.lane("Node_B2"))
        b = self.node("Node_B2")
        self.assertIsNone(b.wait("order.created", 300))

    def test_a_message_to_oneself(self):
        self.put("to_self", self.lane("Node_A1"))
        self.assertEqual(self.node("Node_A1").wait("quiet", 5000)["value"], "value")

    def test_an_answer_ends_a_request(self):
        a = self.node("Node_A1")
        asking = Background(a.one, "SELECT msg_request('ask', 'question', 20000)")
        request = until(lambda: self.find({"topic": "ask"}, self.home("ask"), exact=True))[0]
        self.put("answer_processed", self.lane("Node_A1"), in_answer_to=request["_id"],
                 processed_by=[])
        self.assertEqual(asking.result(), "re:question")
        until(lambda: self.find({"processed_by": "Node_A1"}, self.lane("Node_A1")))

    def test_a_participant(self):
        n = self.node()
        self.put("participant", "msg_participants", last_seen=long(now_ms()))
        row = n.dicts("SELECT layout, implementation, alive FROM msg_participants "
                      "WHERE node = 'Node_A1'")[0]
        self.assertEqual(row, {"layout": self.layout, "alive": 1,
                               "implementation": self.golden("participant")["implementation"]})

    # -- writing

    def check(self, document, name):
        model = self.golden(name)
        self.assertEqual(set(document) - OURS, set(model))
        for field in set(model) - {"msg", "value", "sender_host", "map_value", "additional"}:
            self.assertEqual(kind(document[field]), kind(model[field]), field)
        self.assertEqual(document["class_name"], model["class_name"])
        return document

    def test_ours_are_where_theirs_are(self):
        n = self.node()
        home = self.home("quiet")
        self.check(self.there(n.send("quiet", "v"), home), "broadcast_new")
        self.check(self.there(n.enqueue("quiet", "v"), home), "exclusive_never_expiring")
        id = n.send("quiet", "v", recipients=["Node_X", "Node_Y"])
        for node, name in ("Node_X", "direct_two_first"), ("Node_Y", "direct_two_second"):
            document = self.check(self.there(id, self.lane(node)), name)
            self.assertEqual(document["recipients"], self.golden(name)["recipients"])

    def test_our_answer_is_in_the_askers_lane(self):
        n = self.node()
        n.one("SELECT msg_listen('ask')")
        request = self.put("request_processed", self.home("ask"), processed_by=[])
        id = n.one("SELECT msg_reply(?, 'yes')", n.wait("ask", 5000)["id"])
        answer = self.check(self.there(id, self.lane("Node_A1")), "answer_processed")
        self.assertEqual((answer["in_answer_to"], answer["recipients"], answer["priority"]),
                         (request["_id"], ["Node_A1"], {"$numberInt": "990"}))

    def test_a_ping_is_answered(self):
        n = self.node()
        n.one("SELECT msg_await('quiet', 0)")
        answer = until(self.ping)[0]
        self.check(answer, "status_answer_ping")
        self.assertEqual(answer["map_value"], {})

    def ping(self):
        """Its answer, if there is one soon: not before the cursor thread reads."""
        request = self.put("status_request_ping", self.home("morphium.status_info"), _id=oid(),
                           processed_by=[])
        for _ in range(100):
            found = self.find({"in_answer_to": request["_id"]}, self.lane("Node_A1"), exact=True)
            if found:
                return found
            time.sleep(0.01)

    def test_the_participant_is_written_as_theirs(self):
        self.node()
        ours = self.find({"_id": "c-node"}, "msg_participants", exact=True)[0]
        model = self.golden("participant")
        self.assertEqual({f: kind(ours[f]) for f in model}, {f: kind(model[f]) for f in model})
        self.assertEqual(ours["implementation"], model["implementation"])

    def test_the_indexes_have_their_names(self):
        """Where Java nodes look, that is: not in a lane of ours."""
        n, b = self.node("Node_A1"), self.node("Node_B2")
        for topic in "order.created", "ask", "slow", "morphium.status_info":
            n.enqueue(topic, "v")
            b.claim(topic)
        n.send("t", "v", recipient="Node_X")
        lanes = [self.lane(name) for name in ("Node_A1", "Node_B2", "Node_X", "Node_Y")]
        for collection, names in self.golden("indexes").items():
            if collection not in ("msg_quiet", *lanes):
                self.assertEqual(set(names) - self.indexes(collection), set(), collection)
        for lane in lanes[:3]:
            self.assertEqual({name for name in self.indexes(lane) if not name.startswith("sq_")},
                             {"_id_", "delete_at_1"}, lane)

    def indexes(self, collection):
        reply = self.admin.exact(self.database, {"listIndexes": collection})
        return {i["name"] for i in reply["cursor"]["firstBatch"]}


class Dual(Layout, Case):
    layout, marked_while_it_runs = "dual", ["Node_B2"]


class Multi(Layout, Case):
    layout, marked_while_it_runs = "multi", []


if __name__ == "__main__":
    main()
