"""Nodes of ours and of Java on one queue. Java's are played by threads (harness.JavaNode)."""
import json

from harness import (Background, Case, STATUS_TOPIC, date, golden, java_message, long, main,
                     now_ms, oid, until)


class Messages(Case):
    def lock(self, *messages):
        """Java_1 works on them."""
        until_at = date(now_ms() + 600000)
        self.insert(*[{"_id": m["_id"], "lock_id": "Java_1", "delete_at": until_at}
                      for m in messages], collection="msg_lck")

    def test_broadcasts_both_ways_each_once(self):
        java = self.java("Java_1", topics=["t"]).start()
        n = self.db("c-node")
        n.one("SELECT msg_listen('t')")
        for i in range(20):
            java.send("t", value="j%d" % i)
            n.send("t", "c%d" % i)
        got = []
        until(lambda: got.extend(n.values("t", 200)) or len(got) >= 20)
        until(lambda: len(java.got) >= 20)
        self.assertEqual(sorted(got), sorted("j%d" % i for i in range(20)))
        self.assertEqual(sorted(m["value"] for m in java.got), sorted("c%d" % i for i in range(20)))
        until(lambda: not self.find({"sender": "Java_1", "processed_by": {"$ne": "c-node"}}))

    def test_direct_messages_both_ways(self):
        java = self.java("Java_1").start()  # it listens to nothing
        java2 = self.java("Java_2", topics=["t"]).start()
        n = self.db("c-node")
        java.send("t", value="to c", recipients=["c-node"])
        self.assertEqual(n.wait("t", 5000)["value"], "to c")
        n.send("t", "to java", recipient="Java_2")
        until(lambda: java2.got)
        self.assertEqual([m["value"] for m in java2.got], ["to java"])
        self.assertEqual(java.got, [])

    def test_java_takes_an_exclusive_message_of_ours(self):
        java = self.java("Java_1", topics=["t"]).start()
        n = self.db("c-node")
        id = n.enqueue("t", "work")
        until(lambda: java.owned)
        until(lambda: self.document(id)["processed_by"] == ["Java_1"])
        self.assertIsNone(n.claim("t"))

    def test_what_java_has_locked_is_not_claimed(self):
        n = self.db("c-node")
        message = java_message("t", exclusive=True)
        self.insert(message)
        self.lock(message)
        self.assertIsNone(n.claim("t"))
        self.assertEqual(self.document(message["_id"]["$oid"])["processed_by"], [])
        self.admin.delete(self.database, "msg_lck", {})
        self.assertIsNotNone(n.claim("t", wait_ms=10000))

    def test_what_stands_behind_a_thousand_locked_ones_is_claimed(self):
        n = self.db("c-node")
        n.wait("#none")
        messages = [java_message("t", exclusive=True) for _ in range(1000)]
        self.insert(*messages)
        self.lock(*messages)
        self.insert(java_message("t", exclusive=True, value="free", timestamp=long(now_ms() + 1)))
        self.assertEqual(n.claim("t", wait_ms=10000)["value"], "free")

    def test_a_claim_of_ours_is_invisible_to_java_and_released_ones_are_its(self):
        n = self.db("c-node")
        id = n.enqueue("t", "work")
        claimed = n.claim("t")
        java = self.java("Java_1", topics=["t"])
        self.assertEqual(java.poll(), 0)
        n.one("SELECT msg_release(?)", claimed["id"])
        self.assertEqual(java.poll(), 1)
        self.assertEqual([m["_id"]["$oid"] for m in java.owned], [id])

    def test_both_kinds_of_locks_show(self):
        n = self.db("c-node")
        n.enqueue("t", "work")
        mine = n.claim("t")["id"]
        theirs = java_message("t", exclusive=True)
        self.insert(theirs)
        self.lock(theirs)
        self.assertEqual(sorted(n.rows("SELECT id, owner FROM msg_locks")),
                         sorted([(mine, "c-node"), (theirs["_id"]["$oid"], "Java_1")]))

    def test_a_requeue_by_an_empty_processed_by_wakes_a_claim(self):
        n = self.db("c-node")
        message = java_message("t", exclusive=True, processed_by=["Java_1"], value="again")
        self.insert(message)
        self.assertIsNone(n.claim("t"))
        waiting = Background(n.claim, "t", 30000, 15000)
        self.update(message["_id"]["$oid"], {"$set": {"processed_by": []}})
        self.assertEqual(waiting.result()["value"], "again")

    def test_a_requeue_of_what_we_have_done_comes_again(self):
        n = self.db("c-node")
        id = n.enqueue("t", "work")
        n.one("SELECT msg_ack(?)", n.claim("t")["id"])
        self.assertIsNone(n.claim("t"))
        if self.document(id):  # it stays for a minute
            self.update(id, {"$set": {"processed_by": []}})
            self.assertEqual(n.claim("t", wait_ms=10000)["id"], id)

    def test_what_java_marked_beside_us_stays_done(self):
        """However our claim ends: it had the lock before us."""
        java, n = self.java("Java_1"), self.db("c-node", {"max_attempts": 1})
        ends = [lambda m: None,  # the lease's end
                lambda m: n.one("SELECT msg_release(?, ?)", m["id"], m["token"]),
                lambda m: n.one("SELECT msg_release(?, ?, 1)", m["id"], m["token"]),
                lambda m: n.rows("DELETE FROM msg_locks WHERE id = ?", m["id"])]
        for i, end in enumerate(ends):
            id = n.enqueue("t", i)
            m = n.claim("t", 300 if i == 0 else 60000)
            self.assertTrue(java.mark("msg", {"$oid": id}))
            end(m)
            until(lambda: "state" not in self.document(id)["sq"])
            self.assertEqual(self.document(id)["processed_by"], ["Java_1"])
        self.assertEqual(n.rows("SELECT DISTINCT state FROM msg_messages"), [("processed",)])
        self.assertIsNone(n.claim("t"))

    def test_a_paused_topic_stays_unmarked(self):
        n = self.db("c-node")
        n.one("SELECT msg_listen('t')")
        n.one("SELECT msg_pause('t')")
        java = self.java("Java_1")
        id = java.send("t", value="later")
        self.assertIsNone(n.wait("t", 300))
        self.assertEqual(self.document(id)["processed_by"], [])
        n.one("SELECT msg_resume('t')")
        self.assertEqual(n.wait("t", 5000)["value"], "later")

    def test_unexpired_broadcasts_from_before_reach_a_node_with_a_given_id(self):
        self.insert(java_message("t", value="before"))
        self.assertEqual(self.db("c-node").wait("t", 5000)["value"], "before")

    def test_processed_by_null_is_repaired(self):
        n = self.db("c-node")
        n.one("SELECT msg_listen('t')")
        message = java_message("t", processed_by=None, value="old")
        self.insert(message)
        self.assertEqual(n.wait("t", 5000)["value"], "old")
        until(lambda: self.document(message["_id"]["$oid"])["processed_by"] == ["c-node"])


class Hidden(Case):
    """What Java must not see yet, in place: a pre-marked message."""

    def setUp(self):
        super().setUp()
        self.n = self.db("c-node")
        self.java1 = self.java("Java_1", topics=["t"])

    def test_a_delayed_message_until_it_is_due(self):
        id = self.n.enqueue("t", "later", delay_ms=600)
        self.assertEqual(self.java1.poll(), 0)
        until(lambda: self.n.one("SELECT count(*) FROM msg_messages WHERE state = 'ready'") == 1
              and self.java1.poll() == 1)
        self.assertEqual([m["_id"]["$oid"] for m in self.java1.owned], [id])

    def test_a_delayed_broadcast_until_it_is_due(self):
        self.n.send("t", "later", delay_ms=600)
        self.assertEqual(self.java1.poll(), 0)
        until(lambda: (self.n.rows("SELECT count(*) FROM msg_messages"), self.java1.poll(),
                       self.java1.got)[-1])
        self.assertEqual([m["value"] for m in self.java1.got], ["later"])

    def test_a_dead_letter_until_it_is_redriven(self):
        id = self.n.enqueue("t", "poison")
        self.n.one("SELECT msg_reject(?, 'no')", self.n.claim("t")["id"])
        self.assertEqual(self.java1.poll(), 0)
        self.assertIsNone(self.document(id)["delete_at"])
        self.n.one("SELECT msg_redrive('t')")
        self.assertEqual(self.java1.poll(), 1)

    def test_only_the_head_of_a_group_shows(self):
        ids = [self.n.enqueue("t", "g%d" % i, group="g") for i in range(3)]
        self.assertEqual(self.java1.poll(), 1)
        self.assertEqual([m["_id"]["$oid"] for m in self.java1.owned], ids[:1])

    def test_the_group_goes_on_after_a_head_that_java_processed(self):
        for i in range(3):
            self.n.enqueue("t", "g%d" % i, group="g")
        self.java1.poll()
        got = [self.n.claim("t", wait_ms=15000)["value"]]
        self.assertEqual(got, ["g1"])

    def test_a_group_goes_on_while_our_only_node_idles(self):
        """After a head that Java processed, and after one that somebody removed."""
        ids = [self.n.enqueue("t", "g%d" % i, group="g") for i in range(3)]
        self.n.wait("#none")  # its cursor runs
        self.java1.poll()
        until(lambda: self.document(ids[1])["processed_by"] == [])
        self.admin.delete(self.database, "msg", {"_id": oid(ids[1])})
        until(lambda: self.document(ids[2])["processed_by"] == [])

    def test_a_group_goes_on_where_others_sent_it(self):
        ids = [self.n.enqueue("t", "g%d" % i, group="g") for i in range(2)]
        self.n.con.close()
        idle = self.worker("c-idle")
        idle.rows("SELECT msg_await('#none', 1)")
        self.java1.poll()
        until(lambda: self.document(ids[1])["processed_by"] == [])


class Requests(Case):
    def test_java_answers(self):
        self.java("Java_1", topics=["ask"], answer=lambda m: "re:" + m["value"]).start()
        n = self.db("c-node")
        self.assertEqual(n.one("SELECT msg_request('ask', 'q', 10000)"), "re:q")

    def test_java_answers_an_exclusive_request_once(self):
        nodes = [self.java("Java_%d" % i, topics=["ask"], answer=lambda m: "yes").start()
                 for i in range(3)]
        n = self.db("c-node")
        options = '{"exclusive": true}'
        self.assertEqual(n.one("SELECT msg_request('ask', 'q', 10000, ?)", options), "yes")
        self.assertEqual(sum(len(j.owned) for j in nodes), 1)

    def test_several_java_nodes_answer_a_broadcast_request(self):
        for i in range(3):
            self.java("Java_%d" % i, topics=["ask"], answer=lambda m, i=i: "yes%d" % i).start()
        n = self.db("c-node")
        values = n.column("SELECT value FROM msg_request('ask', 'q', 10000, '{\"answers\": 3}')")
        self.assertEqual(sorted(values), ["yes0", "yes1", "yes2"])

    def test_we_answer_java(self):
        n = self.db("c-node")
        n.one("SELECT msg_listen('ask')")
        java = self.java("Java_1").start()
        id = java.send("ask", value="q")
        got = n.wait("ask", 5000)
        n.one("SELECT msg_reply(?, 'a')", got["id"])
        until(lambda: java.answers.get(id))
        self.assertEqual([(m["value"], m["sender"]) for m in java.answers[id]], [("a", "c-node")])

    def test_the_answer_is_the_waiters_before_it_is_marked(self):
        """A mark that cannot be written does not hold the answer back."""
        self.java("Java_1", topics=["ask"], answer=lambda m: "a").start()
        n = self.db("c-node")
        self.assertEqual(n.one("SELECT msg_request('ask', 'q', 10000)"), "a")
        until(lambda: self.find({"in_answer_to": {"$ne": None}, "processed_by": "c-node"}))


class Participants(Case):
    def test_each_sees_the_other(self):
        java = self.java("Java_1", topics=["t"]).start()
        n = self.db("c-node")
        n.one("SELECT msg_listen('t')")
        row = n.dicts("SELECT * FROM msg_participants WHERE node = 'Java_1'")[0]
        self.assertEqual((row["alive"], row["implementation"]), (1, "StandardMessaging"))
        until(lambda: java.admin.find(self.database, "msg_participants", {"_id": "c-node"}))

    def test_a_stale_one_is_not_alive(self):
        self.insert(dict(golden("participant"), last_seen=long(now_ms() - 70000)),
                    collection="msg_participants")
        n = self.db("c-node")
        self.assertEqual(n.one("SELECT alive FROM msg_participants WHERE node = 'Node_A1'"), 0)

    def foreign(self):
        self.insert(dict(golden("participant"), last_seen=long(now_ms()),
                         implementation="MultiCollectionMessaging"), collection="msg_participants")

    def test_another_layout_is_warned_of_and_the_warning_can_be_queried(self):
        self.foreign()
        n = self.db("c-node")
        n.send("t", "x")
        rows = until(lambda: [r for r in n.dicts("SELECT * FROM msg_doctor")
                              if "MultiCollectionMessaging" in json.dumps(r)])
        self.assertIn("Node_A1", json.dumps(rows))

    def test_another_layout_is_an_error_where_asked_for(self):
        self.foreign()
        options = {"implementation_check": "throw"}
        self.assertFails("MultiCollectionMessaging",
                         lambda: self.db("c-node", options).send("t", "x"))
        self.assertEqual(self.find({"_id": "c-node"}, "msg_participants"), [])

    def test_another_layout_is_ignored_where_asked_for(self):
        self.foreign()
        n = self.db("c-node", {"implementation_check": "ignore"})
        n.send("t", "x")
        self.assertNotIn("MultiCollectionMessaging", json.dumps(n.rows("SELECT * FROM msg_doctor")))


class Status(Case):
    def ask(self, level):
        n = self.db("c-node")
        n.one("SELECT msg_listen('t')")
        n.send("warm", "up")
        java = self.java("Java_1").start()
        id = java.send(STATUS_TOPIC, msg="status", value=level)
        until(lambda: java.answers.get(id))
        self.assertEqual([m["sender"] for m in java.answers[id]], ["c-node"])
        return java.answers[id][0]

    def test_ping(self):
        answer = self.ask("PING")
        self.assertEqual(answer["map_value"], {})
        self.assertEqual((answer["topic"], answer["value"]), (STATUS_TOPIC, "PING"))
        self.assertEqual((answer["priority"], answer["recipients"]), (990, ["Java_1"]))

    def check(self, level):
        answer = self.ask(level)
        model = golden("status_answer_messaging_only")["map_value"]
        for key in model:
            if key.startswith("messag"):
                self.assertIn(key, answer["map_value"])
        names = answer["map_value"]["message_listeners_by_name"]
        self.assertIn("t", names)  # non-empty keys: alive in a registry
        self.assertTrue(all(isinstance(v, list) and v for v in names.values()))

    def test_messaging_only(self):
        self.check("MESSAGING_ONLY")

    def test_all(self):
        self.check("ALL")

    def test_the_request_of_a_registry(self):
        answer = self.ask("all")
        self.assertIn("message_listeners_by_name", answer["map_value"])


if __name__ == "__main__":
    main()
