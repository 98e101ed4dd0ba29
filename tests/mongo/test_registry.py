"""The registry: who listens and who lives, as our nodes and Java's tell it; sends that are checked by it; lanes of the
gone."""
import sqlite3
import time

import harness
from harness import STATUS_TOPIC, Case, OwnServer, date, golden, java_message, long, main, now_ms, oid, until


class Registry(Case):
    def node(self, id=None, **options):
        return self.db(id, dict({"registry_enabled": True}, **options))

    def elsewhere(self, id, *patterns, **options):
        """A node of ours in a process of its own."""
        w = self.worker(id, options)
        for pattern in patterns:
            w.one("SELECT msg_listen(?)", pattern)
        return w

    def java(self, id, *topics, announced=True):
        node = StatusNode(self.database, id, topics)
        self.addCleanup(node.stop)
        if not announced:
            node.announce = lambda: None
        return node.start()

    def announce(self, id, age_ms=0, implementation="StandardMessaging"):
        self.admin.update(self.database, "msg_participants", {"_id": id}, {"$set": {
            "implementation": implementation, "hostname": "javahost", "started_at": long(now_ms()),
            "last_seen": long(now_ms() - age_ms)}}, upsert=True)

    def answer(self, sender, *topics, collection="msg"):
        """To a status request of somebody's."""
        document = golden("status_answer_messaging_only")
        document.update({"_id": oid(), "sender": sender, "delete_at": date(now_ms() + 30000)})
        document["map_value"]["message_listeners_by_name"] = {t: ["Listener"] for t in [STATUS_TOPIC, *topics]}
        self.insert(document, collection=collection)

    def sent(self):
        return [m["topic"] for m in self.find({"topic": {"$ne": STATUS_TOPIC}})]

    def warnings(self, n):
        return n.rows("SELECT item, value FROM msg_doctor WHERE item IN ('nobody listens', 'not alive') ORDER BY 1, 2")


    def refused(self, text, n, topic, **options):
        """The send fails so; the text."""
        return self.assertFails(text, lambda: n.send(topic, "x", **options))


class StatusNode(harness.JavaNode):
    """It answers status requests, as Morphium's listener does."""

    def listener(self, m, record):
        if m["topic"] == STATUS_TOPIC and not m.get("in_answer_to"):
            self.send(STATUS_TOPIC, msg=m["msg"], value=m["value"], recipients=[m["sender"]], in_answer_to=m["_id"],
                      ttl_ms=m["ttl"], priority={"$numberInt": "990"}, map_value={
                          "jvm.version": "25", "message_listeners_by_name": {t: ["x.Listener"] for t in self.topics}})
        super().listener(m, record)


class Topics(Registry):
    def test_nobody_listens(self):
        n = self.node("n", registry_check_topics="throw")
        text = self.assertFails("msg: MISUSE: send on 'news': nobody alive listens to this topic", n.send, "news", "1")
        self.assertIn("msg_enqueue", text)
        self.assertEqual(self.sent(), [])

    def test_a_node_of_this_process(self):
        n, other = self.node("n", registry_check_topics="throw"), self.db("other")
        n.one("SELECT msg_listen('news')")  # nobody is handed his own
        self.refused("nobody", n, "news")
        other.one("SELECT msg_listen('new*')")
        self.assertTrue(n.send("news", "2"))
        self.assertEqual(other.values("new*", 20000, 1), ["2"])

    def test_a_node_of_another_process_is_known_at_once(self):
        n = self.node("n", registry_check_topics="throw")
        self.refused("nobody", n, "news")
        w = self.elsewhere("w", "news", "/^job/")
        self.assertTrue(n.send("news", "2"))
        self.assertTrue(n.send("jobs", "3"))
        self.assertEqual(n.column("SELECT pattern FROM msg_listeners WHERE node = 'w' ORDER BY 1"), ["/^job/", "news"])
        w.one("SELECT msg_unlisten('news')")
        self.assertEqual(n.column("SELECT pattern FROM msg_listeners WHERE node = 'w'"), ["/^job/"])
        fresh = self.node("fresh", registry_check_topics="throw")
        self.refused("nobody", fresh, "news")

    def test_a_heartbeat_repairs_what_was_lost(self):
        self.elsewhere("w", "news", registry_update_interval_s=1)
        self.admin.update(self.database, "msg_participants", {"_id": "w"}, {"$set": {"sq.listens": []}})
        until(lambda: self.find({"_id": "w", "sq.listens": ["news"]}, "msg_participants"))

    def test_one_that_was_killed_listens_no_more(self):
        self.elsewhere("w", "news").kill()
        n = self.node("n", registry_check_topics="throw")
        self.refused("nobody", n, "news")

    def test_a_java_node_tells_it_in_its_answers(self):
        n = self.node("n", registry_check_topics="throw")
        self.answer("Java_1", "news")
        self.assertTrue(n.send("news", "1"))
        self.assertEqual(n.column("SELECT alive FROM msg_participants WHERE node = 'Java_1'"), [1])

    def test_a_java_node_is_asked_when_nobody_is_known(self):
        n = self.node("n", registry_check_topics="throw")
        java = self.java("Java_1", "news")
        self.assertTrue(n.send("news", "1"))
        self.refused("nobody", n, "other")
        until(lambda: [m for m in java.got if m["topic"] == "news"])

    def test_the_registrys_answers_are_handed_out_to_nobody(self):
        n = self.node("n", registry_update_interval_s=1)
        self.java("Java_1", "news", announced=False)
        mine = {"topic": STATUS_TOPIC, "recipients": "n", "in_answer_to": {"$ne": None}}
        until(lambda: len(self.find(mine)) > 2)
        self.assertIsNone(n.wait(None, 300))
        self.assertEqual([m["processed_by"] for m in self.find(mine) if m["processed_by"]], [])
        self.assertEqual(n.one("SELECT value IS NULL FROM msg_request('morphium.status_info', 'PING', 20000)"), 0)

    def test_who_does_not_answer_is_waited_for_as_long_as_for_a_write(self):
        self.announce("Java_1")
        n = self.node("n", registry_check_topics="throw", write_timeout_ms=1000)
        begin = time.monotonic()
        self.refused("nobody", n, "news")
        self.assertGreaterEqual(time.monotonic() - begin, 0.9)

    def test_it_can_be_interrupted(self):
        self.announce("Java_1")
        n = self.node("n", registry_check_topics="throw", write_timeout_ms=60000, registry_update_interval_s=60)
        call = harness.Background(n.send, "news", "1")
        until(lambda: self.find({"topic": STATUS_TOPIC, "sender": "n", "delete_at": {"$gt": date(now_ms() + 60000)}}))
        while call.thread.is_alive():
            n.interrupt()
            time.sleep(0.02)
        self.assertRaises(sqlite3.OperationalError, call.result)
        self.assertEqual(self.sent(), [])

    def test_warn(self):
        n = self.node("n", registry_check_topics="warn")
        self.assertTrue(n.send("news", "1"))
        self.assertTrue(n.send("news", "2"))
        self.assertEqual(self.warnings(n), [("nobody listens", "news")])
        self.db("other").one("SELECT msg_listen('news')")
        self.assertTrue(n.send("news", "3"))
        self.assertEqual(self.warnings(n), [])

    def test_ignored_and_changed_at_run_time(self):
        n = self.node("n")
        self.assertTrue(n.send("news", "1"))
        self.assertEqual(self.warnings(n), [])
        n.rows("UPDATE msg_settings SET value = 'throw' WHERE name = 'registry_check_topics'")
        self.refused("nobody", n, "news")
        n.one("SELECT msg_config('registry_check_topics', 'ignore')")
        self.assertTrue(n.send("news", "3"))

    def test_in_a_transaction_the_statement_fails(self):
        n = self.node("n", registry_check_topics="throw")
        n.rows("BEGIN")
        self.refused("nobody", n, "news")
        self.assertTrue(n.enqueue("jobs", "2"))
        n.rows("COMMIT")
        self.assertEqual(self.sent(), ["jobs"])

    def test_java_registries_know_what_is_listened_to_and_claimed_here(self):
        w = self.elsewhere("w", "news")
        self.assertIsNone(w.one("SELECT msg_claim('jobs')"))
        java = self.java("Java_1")

        def told():
            id = java.send(STATUS_TOPIC, msg="status_request", value="all")
            end = time.monotonic() + 1
            while time.monotonic() < end and id not in java.answers:
                time.sleep(0.02)
            return [set(m["map_value"]["message_listeners_by_name"]) for m in java.answers.get(id, [])]

        until(lambda: {STATUS_TOPIC, "news", "jobs"} in told())


class Recipients(Registry):
    def test_not_alive(self):
        n = self.node("n", registry_check_recipients="throw")
        text = self.refused("MISUSE: send on 't': recipient 'gone' is not alive", n, "t", recipient="gone")
        self.assertIn("msg_participants", text)
        self.db("here")
        self.assertTrue(n.send("t", "2", recipient="here"))
        self.assertTrue(n.send("t", "3", recipient="n"))
        self.refused("'gone'", n, "t", recipients=["here", "gone"])
        self.refused("'gone'", n, "t", recipient="gone", exclusive=True)
        self.assertEqual(self.sent(), ["t", "t"])

    def test_one_that_was_killed(self):
        w = self.elsewhere("w")
        n = self.node("n", registry_check_recipients="throw")
        w.kill()
        self.refused("'w'", n, "t", recipient="w")

    def test_java_nodes_live_by_heartbeat_or_by_answers(self):
        self.announce("silent", age_ms=100000)
        n = self.node("n", registry_check_recipients="throw")
        self.refused("'silent'", n, "t", recipient="silent")
        self.announce("beats")
        self.assertTrue(n.send("t", "2", recipient="beats"))
        self.answer("answers")
        self.assertTrue(n.send("t", "3", recipient="answers"))

    def test_warn_and_topics_that_nobody_listens_to(self):
        n = self.node("n", registry_check_recipients="warn", registry_check_topics="warn")
        self.assertTrue(n.send("t", "1", recipient="gone"))
        self.assertTrue(n.send("t", "2"))
        self.assertEqual(self.warnings(n), [("nobody listens", "t"), ("not alive", "gone")])

    def test_an_answer_to_one_who_is_gone(self):
        n, asks = self.node("n", registry_check_recipients="throw"), self.db("asks")
        n.one("SELECT msg_listen('ask')")
        self.assertIsNone(asks.one("SELECT msg_request('ask', 'q', 1)"))
        request = n.wait("ask", 20000)
        asks.close()
        self.assertFails("'asks'", n.one, "SELECT msg_reply(?, 'r')", request["id"])

    def test_what_was_reached_is_taken_for_granted_until_the_next_update(self):
        n, other = self.node("n", registry_check_recipients="throw", registry_update_interval_s=1), self.db("other")
        self.assertTrue(n.send("t", "1", recipient="other"))
        other.close()

        def refused():
            try:
                n.send("t", "2", recipient="other")
            except sqlite3.OperationalError as error:
                return str(error)
        self.assertIn("'other'", until(refused))


class Lanes(Registry):

    def node(self, id=None, **options):
        return super().node(id, **dict({"layout": "dual", "registry_update_interval_s": 1}, **options))

    def collections(self):
        reply = self.admin.run(self.database, {"listCollections": 1, "nameOnly": True})
        return {c["name"] for c in reply["cursor"]["firstBatch"]}

    def lane(self, owner, *documents):
        name = "msg_dm_" + owner
        self.admin.run(self.database, {"create": name})
        if documents:
            self.insert(*documents, collection=name)
        return name

    def indexes(self, collection):
        reply = self.admin.run(self.database, {"listIndexes": collection})
        return {i["name"] for i in reply["cursor"]["firstBatch"]}


class Sweep(Lanes):
    """Orphans of layout dual: with the registry on, empty, of nobody who lives."""

    def swept(self):
        """Until a lane that is made now is gone, which takes a whole sweep."""
        lane = self.lane("probe%d" % time.monotonic_ns())
        until(lambda: lane not in self.collections(), 60)

    def test_only_empty_lanes_of_the_gone(self):
        gone = self.lane("gone")
        full = self.lane("full", java_message("t", recipients=["full"]))
        done = self.lane("done", java_message("t", recipients=["done"], processed_by=["done"]))
        beats, folded, answers = self.lane("beats"), self.lane("nodeA1"), self.lane("answers")
        self.announce("beats", implementation="DualChannelMessaging")
        self.announce("Node_A1", implementation="DualChannelMessaging")
        self.announce("gone", age_ms=100000, implementation="DualChannelMessaging")
        n = self.node("n")
        self.answer("answers", collection="msg_dm_n")
        self.swept()
        self.swept()
        left = self.collections()
        self.assertNotIn(gone, left)
        for lane in (full, done, beats, folded, answers, "msg_dm_n"):
            self.assertIn(lane, left)
        self.assertIn("delete_at_1", self.indexes("msg_dm_n"))
        self.assertEqual(n.one("SELECT count(*) FROM msg_lanes WHERE lane = 'msg_dm_full' AND orphan"), 1)

    def test_not_without_the_registry_nor_where_it_is_off(self):
        lane = self.lane("gone")
        for options in ({"registry_enabled": False}, {"dm_cleanup_orphans_on_startup": False}, {"layout": "multi"}):
            options.setdefault("implementation_check", "ignore")
            n = self.node(**options)
            for _ in range(3):  # some beats of its
                seen = self.find({}, "msg_participants", sort={"last_seen": -1})[0]["last_seen"]
                until(lambda: self.find({"last_seen": {"$gt": long(seen)}}, "msg_participants"))
            n.close()
        self.assertIn(lane, self.collections())

    def test_races_with_owners_that_come(self):
        """They open, find their lane with its index, are sent something and close, while two processes sweep."""
        for i in range(2):
            self.worker("sweeper-%d" % i, {"layout": "dual", "registry_enabled": True,
                                           "registry_update_interval_s": 1}).one("SELECT msg_listen('t')")
        sender, end, opened = self.node("sender", registry_enabled=False), time.monotonic() + 8, 0
        while time.monotonic() < end:
            name = "owner%d" % opened
            lane = self.lane(name)  # an orphan, until its owner comes
            owner = self.node(name, registry_enabled=False)
            id = sender.send("t", "x", recipient=name)
            got = owner.wait(None, 20000)
            self.assertEqual(got and got["id"], id)
            until(lambda: "delete_at_1" in self.indexes(lane))
            owner.close()
            opened += 1
        print("opened %d, lost 0" % opened)


class Slow(Lanes, OwnServer):
    """The owner comes, and is sent something, between the sweeper's look at him and its rename of his lane."""

    def sweep_slowly(self):
        """Until the sweeper has seen an orphan, and is about to rename it; the lane."""
        lane = self.lane("owner")
        self.fail_point({"times": 1}, failCommands=["renameCollection"], blockConnection=True, blockTimeMS=4000)
        self.node("sweeper")
        until(self.renames)
        return lane

    def test_a_java_nodes_lane_goes_back(self):
        lane = self.sweep_slowly()
        uuid = self.uuid(lane)
        self.announce("owner", implementation="DualChannelMessaging")
        message = java_message("t", recipients=["owner"])
        self.insert(message, collection=lane)
        until(lambda: not self.renames())
        until(lambda: self.uuid(lane) == uuid)
        self.assertEqual([m["_id"] for m in self.find({}, lane)], [message["_id"]])

    def test_one_of_ours_goes_on(self):
        lane = self.sweep_slowly()
        owner, sender = self.node("owner", registry_enabled=False), self.node("sender", registry_enabled=False)
        id = sender.send("t", "x", recipient="owner")
        until(lambda: not self.renames())
        self.assertEqual(owner.wait(None, 20000)["id"], id)
        until(lambda: lane in self.collections() and "delete_at_1" in self.indexes(lane))

    def uuid(self, collection):
        reply = self.admin.run(self.database, {"listCollections": 1, "filter": {"name": collection}})
        return [c["info"]["uuid"] for c in reply["cursor"]["firstBatch"]]

    def renames(self):
        reply = self.admin.run("admin", {"currentOp": 1, "$all": True, "command.renameCollection": {"$exists": True}})
        return reply["inprog"]


if __name__ == "__main__":
    main()
