"""Nodes of several layouts on one queue: who is warned or refused, whose answers arrive, and what the caller is told
if none can."""
import json
import threading

from harness import Case, long, main, now_ms

NAMES = {"standard": "StandardMessaging", "multi": "MultiCollectionMessaging", "dual": "DualChannelMessaging"}
OTHERS = [*NAMES.values(), "SomethingMessaging"]

# Whose answers arrive, to a request for everybody and to one for the answerer alone: (asker, answerer).
TO_ALL = {("standard", "standard"), ("multi", "multi"), ("dual", "dual"), ("dual", "standard")}
TO_ONE = {("standard", "standard"), ("multi", "multi"), ("dual", "dual")}


class Mixed(Case):
    def node(self, layout, id=None, **options):
        return self.db(id, dict(options, layout=layout))

    def java(self, implementation, id="Java_1"):
        self.admin.delete(self.database, "msg_participants", {"_id": id})
        self.insert({"_id": id, "implementation": implementation, "hostname": "h", "started_at": long(now_ms()),
                     "last_seen": long(now_ms())}, collection="msg_participants")

    def announced(self, id):
        return [p["implementation"] for p in self.find({"_id": id}, "msg_participants")]

    def told(self, node):
        """What the doctor says of the layout."""
        return node.one("SELECT value FROM msg_doctor WHERE item = 'layout'")


class Check(Mixed):
    """implementation_check, as Morphium's: the names announced are compared."""

    def each(self, fn):
        """fn(layout, name announced, another node's name, id), for all of them."""
        for layout, own in NAMES.items():
            for other in OTHERS:
                with self.subTest(layout=layout, other=other):
                    self.java(other)
                    fn(layout, own, other, layout + "-" + other)

    def refuses(self, why, layout, id):
        self.assertFails(why, lambda: self.node(layout, id, implementation_check="throw"))
        self.assertEqual(self.announced(id), [])

    def test_warn(self):
        def check(layout, own, other, id):
            n = self.node(layout, id)
            self.assertEqual(self.announced(id), [own])
            self.assertEqual(self.told(n), layout if own == other else
                             "1 node of another layout on queue 'msg', such as 'Java_1' (%s): messages get lost "
                             "between layouts" % other)
            n.close()
        self.each(check)

    def test_throw(self):
        def check(layout, own, other, id):
            if own == other:
                self.node(layout, id, implementation_check="throw").close()
            else:
                self.refuses("node 'Java_1' lays queue 'msg' out as " + other, layout, id)
        self.each(check)

    def test_ignore(self):
        def check(layout, own, _, id):
            n = self.node(layout, id, implementation_check="ignore")
            self.assertEqual(self.announced(id), [own])
            self.assertEqual(self.told(n), layout)
            n.close()
        self.each(check)

    def test_among_ours(self):
        for layout in NAMES:
            first = self.node(layout, "first-" + layout)
            for other in NAMES:
                with self.subTest(layout=layout, other=other):
                    if other == layout:
                        self.node(other, "n", implementation_check="throw").close()
                    else:
                        self.refuses("'first-%s' lays queue 'msg' out as %s" % (layout, NAMES[layout]), other,
                                     "%s-at-%s" % (other, layout))
            first.close()

    def test_one_that_is_gone_counts_no_more(self):
        self.java(NAMES["multi"])
        self.admin.update(self.database, "msg_participants", {"_id": "Java_1"},
                          {"$set": {"last_seen": long(now_ms() - 100000)}})
        self.assertEqual(self.told(self.node("dual", "n", implementation_check="throw")), "dual")

    def test_a_refused_node_is_not_open_and_can_be_opened_otherwise(self):
        self.node("multi", "other")
        n = self.node("multi", "mine")
        self.assertFails("MultiCollectionMessaging", n.open, "n",
                         {"layout": "dual", "implementation_check": "throw"})
        self.assertEqual(self.sender(n), "mine")
        n.open("n", {"layout": "dual", "implementation_check": "ignore"})
        self.assertEqual(self.sender(n), "n")

    def sender(self, n):
        return n.one("SELECT sender FROM msg_messages WHERE id = ?", n.send("t"))


class Requests(Mixed):
    def ask(self, asker, answerer, **options):
        a = self.node(asker, "asker")
        with _Answering(self, answerer):
            try:
                options = json.dumps(options)
                if (asker, answerer) in (TO_ONE if "recipient" in options else TO_ALL):
                    return a.one("SELECT msg_request('ask', 'q', 20000, ?)", options)
                return self.assertFails("MISUSE", a.one, "SELECT msg_request('ask', 'q', 500, ?)", options)
            finally:
                a.close()

    def check(self, answers, **options):
        for asker in NAMES:
            for answerer in NAMES:
                with self.subTest(asker=asker, answerer=answerer):
                    got = self.ask(asker, answerer, **options)
                    if (asker, answerer) in answers:
                        self.assertEqual(got, "yes")
                    else:
                        self.assertIn("no answer came, and none can come from node 'answerer', which lays queue "
                                      "'msg' out as '%s', not '%s'" % (answerer, asker), got)

    def test_of_everybody(self):
        self.check(TO_ALL)

    def test_of_one(self):
        self.check(TO_ONE, recipient="answerer")

    def test_java_nodes_too(self):
        self.java(NAMES["dual"])
        n = self.node("standard")
        text = self.assertFails("'Java_1'", n.one, "SELECT msg_request('ask', 'q', 1)")
        self.assertIn("as 'dual', not 'standard'", text)
        self.assertFails("'Java_1'", n.rows, "SELECT * FROM msg_request('ask', 'q', 1)")
        self.assertEqual(n.one("SELECT value FROM msg_stats WHERE name = 'timeouts'"), 2)

    def test_an_answer_that_only_is_late_gives_null(self):
        self.java(NAMES["dual"], "Java_2")
        self.java(NAMES["standard"])
        dual, standard = self.node("dual"), self.node("standard")
        self.assertIsNone(dual.one("SELECT msg_request('ask', 'q', 1)"))
        for_one = "SELECT msg_request('ask', 'q', 1, '{\"recipient\":\"Java_1\"}')"
        self.assertIsNone(standard.one(for_one))
        self.assertFails("'Java_1'", dual.one, for_one)

    def test_who_ignores_other_layouts_gets_null(self):
        self.java(NAMES["dual"])
        n = self.node("standard", implementation_check="ignore")
        self.assertIsNone(n.one("SELECT msg_request('ask', 'q', 1)"))

    def test_what_came_is_given_though_more_cannot_come(self):
        self.java(NAMES["dual"], "Java_2")
        a = self.node("standard")
        with _Answering(self, "standard"):
            rows = a.column("SELECT value FROM msg_request('ask', 'q', 3000, '{\"answers\":2}')")
        self.assertEqual(rows, ["yes"])

    def test_dual_takes_what_standard_sends(self):
        dual, standard = self.node("dual", "dual"), self.node("standard", "std")
        dual.one("SELECT msg_listen('t')")
        standard.send("t", "all")
        standard.send("t", "direct", recipient="dual")
        standard.enqueue("t", "job")
        got = [json.loads(dual.one("SELECT msg_await(NULL, 20000)"))["value"] for _ in "12"]
        self.assertEqual(sorted(got), ["all", "direct"])
        self.assertEqual(json.loads(dual.one("SELECT msg_claim('t')"))["value"], "job")


class _Answering:
    """A node that answers, in a thread of its own."""

    def __init__(self, case, layout):
        self.case, self.layout, self.stop = case, layout, threading.Event()
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        n = self.case.node(self.layout, "answerer")
        n.one("SELECT msg_listen('ask')")
        self.ready.set()
        while not self.stop.is_set():
            m = n.one("SELECT msg_await('ask', 200)")
            if m:
                n.one("SELECT msg_reply(?, 'yes')", json.loads(m)["id"])
        n.close()

    def __enter__(self):
        self.thread.start()
        self.ready.wait(30)
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


if __name__ == "__main__":
    main()
