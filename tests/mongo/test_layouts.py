"""Layouts multi and dual: where messages are, lanes and their life."""
import json
import sqlite3
import threading
import time

from harness import Background, Case, OwnServer, java_message, long, main, now_ms, oid, until


class Layout(Case):
    def node(self, layout, id=None, **options):
        return self.db(id, dict(options, layout=layout))

    def ids(self, collection, filter=None):
        return [m["_id"]["$oid"] for m in self.find(filter or {}, collection)]

    def collections(self):
        reply = self.admin.run(self.database, {"listCollections": 1, "nameOnly": True})
        return {c["name"] for c in reply["cursor"]["firstBatch"]}

    def indexes(self, collection):
        reply = self.admin.run(self.database, {"listIndexes": collection})
        return {i["name"] for i in reply["cursor"]["firstBatch"]}

    def drop(self, collection):
        self.admin.run(self.database, {"drop": collection})


class Places(Layout):
    """Collections as Morphium names them."""

    def test_dual(self):
        a, b = self.node("dual", "Node_A1"), self.node("dual", "FooBar")
        broadcast = a.send("order.created", "1")
        job = a.enqueue("order.created", "2", recipient="FooBar")
        direct = a.send("order.created", "3", recipients=["FooBar", "Node_A1"])
        later = a.send("order.created", "4", recipient="FooBar", delay_ms=60000)
        self.assertEqual(set(self.ids("msg")), {broadcast, job, later})
        for lane in ("msg_dm_foobar", "msg_dm_nodeA1"):
            self.assertEqual(self.ids(lane), [direct])
            self.assertIn("delete_at_1", self.indexes(lane))
        self.assertEqual(b.one("SELECT recipients FROM msg_messages WHERE id = ?", direct),
                         '["FooBar","Node_A1"]')
        self.assertEqual(b.one("SELECT count(*) FROM msg_messages WHERE id = ?", direct), 1)

    def test_multi(self):
        a, b = self.node("multi", "Node_A1"), self.node("multi", "FooBar")
        broadcast = a.send("order.created", "1")
        job = a.enqueue("order.created/x y-z", "2")
        direct = a.send("t", "3", recipient="FooBar")
        later = a.send("u", "4", delay_ms=60000)
        self.assertEqual(self.ids("msg_order_created"), [broadcast])
        self.assertEqual(self.ids("msg_order_createdxyz"), [job])
        self.assertEqual(self.ids("dm_foobar"), [direct])
        self.assertEqual(self.ids("msg_delayed"), [later])
        self.assertNotIn("msg", self.collections())
        self.assertIn("delete_at_1", self.indexes("msg_lck_order_created"))
        self.assertEqual(b.one("SELECT count(*) FROM msg_messages"), 4)

    def test_what_is_announced(self):
        names = {"standard": "StandardMessaging", "multi": "MultiCollectionMessaging",
                 "dual": "DualChannelMessaging"}
        for layout, name in names.items():
            n = self.node(layout, layout, implementation_check="ignore")
            said = self.find({"_id": layout}, "msg_participants")[0]
            self.assertEqual(said["implementation"], name)
            self.assertEqual(n.one("SELECT layout FROM msg_participants WHERE node = ?", layout),
                             layout)

    def test_topics_that_would_share_a_collection(self):
        a = self.node("multi")
        a.send("a.b", "1")
        for n in (a, self.node("multi")):
            self.assertFails("'a_b' and 'a.b'", n.send, "a_b", "2")
        self.assertFails("participants", a.send, "participants", "3")
        self.assertEqual(a.column("SELECT value FROM msg_messages"), ["1"])

    def test_ids_that_would_share_a_lane(self):
        a = self.node("dual", "Node_A1")
        self.assertFails("share lane 'msg_dm_nodeA1'", self.node, "dual", "NODE_a1")
        self.assertIsNotNone(a.send("t", "1"))

    def test_patterns_pick_up_topics_that_come_later(self):
        n, sender = self.node("multi"), self.node("multi")
        n.one("SELECT msg_listen('orders.*')")
        n.one("SELECT msg_await('orders.*', 0)")
        for topic in ("orders.new", "other", "orders.old"):
            sender.send(topic, topic)
        got = [json.loads(n.one("SELECT msg_await('orders.*', 5000)"))["value"] for _ in "12"]
        self.assertEqual(sorted(got), ["orders.new", "orders.old"])

    def test_what_is_delayed_comes_out_in_multi(self):
        n, sender = self.node("multi", "n"), self.node("multi")
        n.one("SELECT msg_listen('t')")
        sender.send("t", "all", delay_ms=500)
        sender.send("t", "mine", recipient="n", delay_ms=500)
        got = [json.loads(n.one("SELECT msg_await(NULL, 10000)"))["value"] for _ in "12"]
        self.assertEqual(sorted(got), ["all", "mine"])
        self.assertEqual(self.find({}, "msg_delayed"), [])


class Lanes(Layout):
    def orphan(self, layout="dual", lane="msg_dm_gone"):
        self.insert(java_message("t", recipients=["gone"]), collection=lane)
        self.insert({"_id": "gone", "implementation": "DualChannelMessaging", "hostname": "h",
                     "started_at": long(1), "last_seen": long(now_ms() - 100000)},
                    collection="msg_participants")
        return self.node(layout, "n")

    def test_made_on_open_dropped_on_close(self):
        n = self.node("dual")
        lane = "msg_dm_" + n.one("SELECT node FROM msg_participants")
        self.assertIn("delete_at_1", self.indexes(lane))
        n.close()
        self.assertNotIn(lane, self.collections())

    def test_of_a_given_id_stays_with_what_is_in_it(self):
        n, sender = self.node("dual", "given"), self.node("dual")
        sender.send("t", "1", recipient="given")
        n.close()
        n = self.node("dual", "given")
        self.assertEqual(json.loads(n.one("SELECT msg_await('t', 2000)"))["value"], "1")
        until(lambda: not self.find({"processed_by": []}, "msg_dm_given"))
        n.close()
        self.assertNotIn("msg_dm_given", self.collections())

    def test_as_a_table(self):
        n = self.orphan()
        rows = {r["lane"]: r for r in n.dicts("SELECT * FROM msg_lanes")}
        gone, own = rows["msg_dm_gone"], rows["msg_dm_n"]
        self.assertEqual((gone["owner"], gone["depth"], gone["owner_alive"], gone["orphan"],
                          gone["indexed"]), ("gone", 1, 0, 1, 0))
        self.assertEqual((own["owner"], own["depth"], own["owner_alive"], own["orphan"],
                          own["indexed"]), ("n", 0, 1, 0, 1))

    def test_only_an_empty_orphan_goes(self):
        n = self.orphan()
        self.assertFails("1 message", n.rows, "DELETE FROM msg_lanes WHERE lane = 'msg_dm_gone'")
        self.assertFails("alive", n.rows, "DELETE FROM msg_lanes WHERE lane = 'msg_dm_n'")
        n.rows("DELETE FROM msg_messages")
        n.rows("DELETE FROM msg_lanes WHERE lane = 'msg_dm_gone'")
        self.assertNotIn("msg_dm_gone", self.collections())
        self.assertEqual(self.find({"_id": "gone"}, "msg_participants"), [])

    def test_a_drop_races_with_senders_and_nothing_is_lost(self):
        """What is sent while its lane is dropped is in the new one: no id is missing."""
        n, stop = self.node("dual", "n"), threading.Event()
        senders, taken, dropped, end = [], set(), 0, time.time() + 6
        try:
            senders = [_Sending(self, stop) for _ in "123"]
            while time.time() < end or not dropped:
                taken |= self.take()
                dropped += self.try_to_drop(n)
        finally:
            stop.set()
            sent = {id for s in senders for id in s.join()}
        taken |= self.take()
        print("sent %d, dropped %d times, lost %d" % (len(sent), dropped, len(sent - taken)))
        self.assertEqual(sent - taken, set())
        self.assertEqual([c for c in self.collections() if "dropped" in c], [])

    def take(self):
        """What the lane's owner would do: process everything that is there."""
        ids = self.ids("msg_dm_gone", {"processed_by": []})
        for id in ids:
            self.admin.update(self.database, "msg_dm_gone", {"_id": oid(id)},
                              {"$set": {"processed_by": ["gone"]}})
        return set(ids)

    def try_to_drop(self, n):
        there = n.one("SELECT count(*) FROM msg_lanes WHERE lane = 'msg_dm_gone'")
        try:
            n.rows("DELETE FROM msg_lanes WHERE lane = 'msg_dm_gone'")
            return there
        except sqlite3.OperationalError as error:
            self.assertRegex(str(error), "holds|meanwhile|no lane")
            return 0

    def test_a_copy_is_looked_for_in_ones_own_lane(self):
        """Though this process has met another's since."""
        sender, a, b = (self.node("dual", id) for id in ("sender", "a", "b"))
        for _ in range(5):
            ids = [sender.send("t", "x", recipients=["a", "b"]) for _ in range(3)]
            got = a.column("SELECT id FROM msg_await(NULL, 0, 1)")  # the others wait in its inbox
            self.assertEqual(b.column("SELECT id FROM msg_await(NULL, 0, 10)"), ids)
            begun = time.monotonic()
            got += [json.loads(a.one("SELECT msg_await(NULL, 20000)"))["id"] for _ in "12"]
            self.assertEqual(got, ids)
            self.assertLess(time.monotonic() - begun, 15)  # not only at the end of the wait

    def test_lanes_come_and_go_under_looks(self):
        n, end, looks = self.node("dual", "n"), threading.Event(), 0

        def come_and_go():
            while not end.is_set():
                for k in range(5):
                    self.insert(java_message("t", recipients=["x"]), collection="msg_dm_x%d" % k)
                for k in range(5):
                    self.drop("msg_dm_x%d" % k)
        thread = Background(come_and_go)
        until_s = time.time() + 4
        try:
            while time.time() < until_s:
                n.rows("SELECT * FROM msg_messages")
                n.rows("SELECT * FROM msg_topics")
                n.rows("SELECT * FROM msg_lanes")
                looks += 3
        finally:
            end.set()
            thread.result()
        print("%d looks while lanes came and went" % looks)

    def test_ours_survives_a_hasty_sweep(self):
        """Quirk D12: a Java node drops live empty lanes when it starts."""
        n, sender = self.node("dual", "n"), self.node("dual")
        self.assertIsNone(n.one("SELECT msg_await('t', 300)"))
        for i in range(3):
            self.drop("msg_dm_n")
            sender.send("t", str(i), recipient="n")
            self.assertEqual(json.loads(n.one("SELECT msg_await('t', 5000)"))["value"], str(i))
        until(lambda: "delete_at_1" in self.indexes("msg_dm_n"))


class Refused(OwnServer, Layout):
    def test_a_lane_is_made_anew_when_the_server_refuses_at_first(self):
        n = self.node("dual", "n")
        self.assertIsNone(n.one("SELECT msg_await('t', 300)"))
        self.fail_point({"times": 2}, failCommands=["createIndexes"], errorCode=276)  # aborted
        self.drop("msg_dm_n")
        until(lambda: "msg_dm_n" in self.collections())
        self.assertIn("delete_at_1", self.indexes("msg_dm_n"))


    LOOKS = ["SELECT id FROM msg_messages", "SELECT topic, depth FROM msg_topics",
             "SELECT queue, depth FROM msg_queues", "SELECT lane, depth FROM msg_lanes",
             "SELECT msg_ack('%s')" % ("a" * 24)]

    def test_a_collection_that_goes_under_a_look_has_nothing(self):
        for layout in ("dual", "multi"):
            n, sender = self.node(layout, "n-" + layout), self.node(layout)
            sender.send("t", "1", recipient="n-" + layout)
            for sql in self.LOOKS:
                rows = n.rows(sql)
                self.fail_point({"times": 2}, failCommands=["aggregate"], errorCode=26)
                self.assertEqual(n.rows(sql), rows, sql)
                self.fail_point({"times": 100}, failCommands=["aggregate"], errorCode=26)
                self.assertFails("failpoint", n.rows, sql)  # it was asked
                self.fail_point("off")
            n.close()
            sender.close()


class _Sending:
    """Sends to the lane of nobody until told to stop."""

    def __init__(self, case, stop):
        self.case, self.stop, self.sent, self.errors = case, stop, [], []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        n = self.case.node("dual")
        while not self.stop.is_set():
            try:
                self.sent.append(n.send("t", "x", recipient="gone", timing_out=False))
            except sqlite3.OperationalError as error:  # then it counts as not sent
                self.errors.append(str(error))
            time.sleep(0.03)
        n.close()

    def join(self):
        self.thread.join()
        self.case.assertEqual([e for e in self.errors if "UNAVAILABLE" not in e], [])
        return self.sent


if __name__ == "__main__":
    main()
