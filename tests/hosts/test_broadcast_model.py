"""Broadcasts and directs under overlapping patterns against a model: each once, one by one in delivery order, whatever
was sent late or early, made due, or given another priority or time in between. The seeds are fixed."""
import fnmatch
import random
import time

import support

NODES = ("n0", "n1", "n2")
TOPICS = ("a", "a.x", "a.y", "b", "t0", "t1", "t2", "t3")
PATTERNS = ("a", "a.*", "*", "b", "t*", "t1", "a*")
PRIORITIES = (1, 1000, 1000, 1000, 5000)
TABLE = "msg_messages" if support.MONGODB else "msg_store_message"  # the latter changes nothing
LIFE_MS = 10 ** 8
FAR_MS = 10 ** 7
STEPS = ["send"] * 4 + ["wait"] * 6 + ["listen", "prioritize", "prioritize", "move", "move", "remove", "direct",
                                      "direct", "delay", "early"]


class Model:
    """What each node has still to see. A message: topic, priority, deliver_at, sender, waiting (directs: nodes; else
    {node: patterns that hear it}), due."""

    def __init__(self):
        self.messages = {}
        self.patterns = {node: set() for node in NODES}

    def hear(self, m):
        m["waiting"] = {node: {p for p in self.patterns[node] if fnmatch.fnmatchcase(m["topic"], p)}
                        for node in NODES if node != m["sender"]}

    def listen(self, node, pattern):
        """Nodes with a given id catch up."""
        if pattern not in self.patterns[node]:
            self.patterns[node].add(pattern)
            for m in self.messages.values():
                if m["due"] and not m["direct"] and node in m["waiting"] and fnmatch.fnmatchcase(m["topic"], pattern):
                    m["waiting"][node].add(pattern)

    def waits(self, m, node, pattern):
        if not m["due"] or node not in m["waiting"]:
            return False
        if m["direct"]:
            return pattern is None or fnmatch.fnmatchcase(m["topic"], pattern)
        heard = m["waiting"][node]
        return bool(heard) if pattern is None else pattern in heard

    def take(self, node, pattern, most, seqs):
        order = sorted((id for id, m in self.messages.items() if self.waits(m, node, pattern)),
                       key=lambda id: (self.messages[id]["priority"], self.messages[id]["deliver_at"], seqs[id]))
        for id in order[:most]:
            del self.messages[id]["waiting"][node]
        return order[:most]


class Broadcasts(support.Case):
    WINDOWS = (2, 5)

    def run_seed(self, seed, steps, window=None):
        """window: what is sent comes many at once, and is told before it is waited for."""
        self.random = random.Random(seed)
        self.model = Model()
        self.window = window
        path = "%s-%d" % (self.path, seed)
        queue = {"queue": "q%d" % seed}
        if window:
            queue["window_size"] = window
        self.nodes = {node: self.db(node, queue, path=path) for node in NODES}
        self.raw = self.db(None, queue, path) if support.MONGODB else self.db(path=path, load=False)
        self.raw.rows("PRAGMA journal_mode = WAL")
        for db in self.nodes.values():
            db.rows("PRAGMA synchronous = OFF")
        for step in range(steps):
            node = self.random.choice(NODES)
            verb = self.random.choice(STEPS)
            self.at = "seed %d, step %d" % (seed, step)
            getattr(self, verb)(node, self.nodes[node])
        for db in self.nodes.values():
            db.close()
        if support.MONGODB:  # layout multi: the lanes are those of all queues
            self.drop_database()

    def now(self):
        return int(time.time() * 1000)

    def pick(self):
        return self.random.choice(list(self.model.messages) or [None])

    def put(self, node, db, recipients=None, at=None):
        many = self.random.random() < (.6 if self.window else .3)
        for _ in range(self.random.choice((1, self.window or 1, 3, 20 * (self.window or 1)) if many else (1, 3))):
            topic, priority = self.random.choice(TOPICS), self.random.choice(PRIORITIES)
            options = {"ttl_ms": LIFE_MS, "priority": priority}
            if recipients:
                options["recipients"] = recipients
            if at is not None:
                options["deliver_at"] = at
            id = db.send(topic, **options)
            m = {"topic": topic, "priority": priority, "sender": node, "direct": bool(recipients),
                 "due": at is None or at <= self.now(), "waiting": set(recipients or ()),
                 "deliver_at": db.one("SELECT deliver_at FROM msg_messages WHERE id = ?", id)}
            if recipients:
                m["waiting"] = dict.fromkeys(recipients)
            elif m["due"]:
                self.model.hear(m)
            self.model.messages[id] = m

    def send(self, node, db):
        self.put(node, db)

    def direct(self, node, db):
        self.put(node, db, recipients=self.random.sample(NODES, self.random.choice((1, 2))))

    def delay(self, node, db):
        self.put(node, db, at=self.now() + FAR_MS)

    def early(self, node, db):
        self.put(node, db, at=self.now() - self.random.choice((5, 1000, 100000)))

    def listen(self, node, db):
        pattern = self.random.choice(PATTERNS)
        db.one("SELECT msg_listen(?)", pattern)
        self.model.listen(node, pattern)

    def wait(self, node, db):
        pattern = self.random.choice([None, None] + sorted(self.model.patterns[node]))
        most = self.random.choice((1, 1, 2, 5, 100))
        limit = " LIMIT %d" % most if self.random.random() < .5 else ""
        waits = bool(self.window) and any(self.model.waits(m, node, pattern) for m in self.model.messages.values())
        time.sleep(.15 if waits else 0)
        got = db.column("SELECT id FROM msg_await(?, ?, ?)" + limit, pattern, 300 if waits else 0, most)
        seqs = dict(self.raw.rows("SELECT id, seq FROM " + TABLE))
        self.assertEqual(got, self.model.take(node, pattern, most, seqs),
                         "%s: %s waits for %s, at most %d" % (self.at, node, pattern, most))

    def prioritize(self, node, db):
        id, priority = self.pick(), self.random.choice((1, 500, 1000, 5000))
        if id:
            db.rows("UPDATE msg_messages SET priority = ? WHERE id = ?", priority, id)
            self.model.messages[id]["priority"] = priority

    def move(self, node, db):
        """Earlier; what was delayed becomes due."""
        id, at = self.pick(), self.now() - self.random.choice((5, 1000, 100000, FAR_MS))
        if id:
            m = self.model.messages[id]
            db.rows("UPDATE msg_messages SET deliver_at = ? WHERE id = ?", at, id)
            m["deliver_at"] = at
            if not m["due"]:
                m["due"] = True
                self.model.hear(m)

    def remove(self, node, db):
        id = self.pick()
        if id and self.random.random() < .5:
            db.rows("DELETE FROM msg_messages WHERE id = ?", id)
            del self.model.messages[id]

    def test_each_once_and_in_order(self):
        for seed in range(1, 9):
            self.run_seed(seed, 300)

    def test_and_by_small_windows(self):
        for seed in (4, 5):
            self.run_seed(seed, 80, window=self.WINDOWS[seed % 2])


if __name__ == "__main__":
    support.main()
