"""Exclusive messages against a model, and the store's tables against each other after every step: states, owners,
tokens, attempts; the order of claims; batches over several leases; groups; lanes; ends of leases and lives; an
operator's verbs; transactions and savepoints undone. The seeds are fixed. And verbs that the host stops."""
import collections
import copy
import json
import random
import sqlite3
import time

import support

NODES = ("n0", "n1", "n2")
TOPICS = ("a", "a.x", "b")
PATTERNS = ("a", "a", "b", "a.x", "a*", "*")
PRIORITIES = (1, 1000, 1000, 1000, 5000)
FAR_MS = 10 ** 8
STEPS = (["enqueue"] * 5 + ["claim"] * 6 + ["ack"] * 3 + ["release", "extend", "reject", "end_leases"] * 2 +
         ["free", "prioritize", "move", "live", "end_lives", "remove", "purge", "redrive", "redrive", "broadcast"])

# Each gives a row for what must not be.
WRONG = {
    "ready is what is ready": """
        SELECT * FROM (SELECT queue, topic, priority, deliver_at, seq FROM msg_store_message AS m WHERE state = 1
            AND NOT EXISTS(SELECT 1 FROM msg_store_claim AS c WHERE c.seq = m.seq)
          EXCEPT SELECT queue, topic, priority, deliver_at, seq FROM msg_store_ready)
        UNION ALL SELECT * FROM (SELECT queue, topic, priority, deliver_at, seq FROM msg_store_ready
          EXCEPT SELECT queue, topic, priority, deliver_at, seq FROM msg_store_message AS m WHERE state = 1
            AND NOT EXISTS(SELECT 1 FROM msg_store_claim AS c WHERE c.seq = m.seq))""",
    "no ready message expires": "SELECT id FROM msg_store_message WHERE state = 1 AND"
                                " (delete_at IS NOT NULL OR recipients IS NOT NULL OR NOT exclusive)",
    "a claim is of a message": "SELECT seq, lease FROM msg_store_claim WHERE seq >= 0 AND seq NOT IN"
                               " (SELECT seq FROM msg_store_message WHERE state IN (1, 6))",
    "what is claimed has a claim": "SELECT id FROM msg_store_message WHERE state = 6"
                                   " AND seq NOT IN (SELECT seq FROM msg_store_claim)",
    "a claim has a lease": "SELECT seq, lease FROM msg_store_claim WHERE seq >= 0"
                           " AND lease IS NOT (SELECT l.seq FROM msg_store_claim AS l WHERE l.seq < 0 AND l.seq = msg_store_claim.lease)",
    "a row is of a message or a lease": """
        SELECT * FROM msg_store_claim WHERE iif(seq < 0, (lease, attempts) IS NOT (NULL, NULL)
          OR owner + token + holder + since + messages + first + last IS NULL,
          lease + attempts IS NULL
          OR (owner, token, holder, since, messages, first, last) IS NOT (NULL, NULL, NULL, NULL, NULL, NULL, NULL))""",
    "a lease has a holder": "SELECT seq FROM msg_store_claim WHERE seq < 0"
                            " AND holder NOT IN (SELECT process FROM msg_store_holder)",
    "a lease knows its messages": """
        SELECT l.seq, l.messages, l.first, l.last, count(c.seq), min(c.seq), max(c.seq) FROM msg_store_claim AS l
        LEFT JOIN msg_store_claim AS c ON c.lease = l.seq WHERE l.seq < 0 GROUP BY l.seq
        HAVING count(c.seq) <> l.messages OR count(c.seq) = 0 OR min(c.seq) < l.first OR max(c.seq) > l.last""",
    "lanes are of what waits in them": """
        SELECT l.seq, l.node FROM msg_store_lane AS l LEFT JOIN msg_store_message AS m USING (seq)
        WHERE m.seq IS NULL OR (m.state, l.exclusive) NOT IN (VALUES (3, 1), (9, 0))
        OR (l.queue, l.topic, l.priority, l.deliver_at) <> (m.queue, m.topic, m.priority, m.deliver_at)
        OR l.node NOT IN (SELECT value FROM json_each(m.recipients))""",
    "who may claim has it in the lane": """
        SELECT m.id, r.value FROM msg_store_message AS m, json_each(m.recipients) AS r WHERE m.state = 3
        AND NOT EXISTS(SELECT 1 FROM msg_store_lane AS l WHERE l.seq = m.seq AND l.node = r.value)""",
    "a group has one head, the oldest unless it is claimed": """
        SELECT queue, topic, grp, heads, head, next FROM (
          SELECT queue, topic, grp, sum(state <> 5) AS heads, min(iif(state <> 5, seq, NULL)) AS head,
          min(iif(state = 5, seq, NULL)) AS next FROM msg_store_message WHERE grp IS NOT NULL AND state <> 7
          GROUP BY queue, topic, grp)
        WHERE heads <> 1 OR (next < head AND head NOT IN (SELECT seq FROM msg_store_claim))""",
    "what is delayed becomes due": "SELECT id FROM msg_store_message WHERE (state = 4) <> (due IS NOT NULL)"
                                   " OR due <> deliver_at",
}


class Message:
    def __init__(self, topic, exclusive, priority=1000, group=None, recipients=(), deliver_at=0):
        self.topic, self.exclusive, self.priority, self.group = topic, exclusive, priority, group
        self.recipients, self.deliver_at = recipients, deliver_at
        self.state, self.owner, self.token = None, None, None
        self.attempts, self.rolled_back = 0, False


class Model:
    """What there is, and what becomes of it. Messages by id, the oldest first."""

    def __init__(self, max_attempts):
        self.messages, self.max_attempts = {}, max_attempts

    def group(self, m):
        return [o for o in self.messages.values() if o is not m and m.group and o.exclusive and
                (o.topic, o.group) == (m.topic, m.group) and o.state not in ("dead", None)]

    def place(self, m):
        m.owner = m.token = None
        m.state = "delayed" if m.deliver_at > time.time() * 1000 else "ready"

    def send(self, id, m):
        self.messages[id] = m
        self.place(m)
        if self.group(m):
            m.state = "blocked"

    def promote(self, gone):
        """The oldest follower, when no head is left."""
        followers = self.group(gone)
        if followers and all(f.state == "blocked" for f in followers):
            self.place(followers[0])

    def free(self, m):
        """Back to its place: the oldest of a group is its head unless another is claimed."""
        others, age = self.group(m), list(self.messages.values()).index
        m.state, m.owner, m.token = "blocked", None, None
        if any(o.state == "claimed" for o in others):
            return
        for o in others:
            o.state = "blocked"
        self.place(min(others + [m], key=age))

    def bury(self, m):
        m.state, m.owner, m.token = "dead", None, None
        self.promote(m)

    def give_back(self, m, delay_ms=0):
        if m.attempts >= self.max_attempts:
            return self.bury(m)
        if delay_ms:
            m.deliver_at = time.time() * 1000 + delay_ms
        self.free(m)

    def drop(self, id):
        m = self.messages.pop(id)
        m.state = None
        self.promote(m)

    def take(self, node, pattern, count, order):
        """Poison is buried on the way, and what it was in front of taken too."""
        taken, buried = [], True
        while buried and len(taken) < count:
            found = sorted((id for id, m in self.messages.items() if m.exclusive and m.state == "ready" and
                            matches(m.topic, pattern) and (not m.recipients or node in m.recipients)), key=order)
            buried = False
            for id in found[:count - len(taken)]:
                m = self.messages[id]
                if m.attempts >= self.max_attempts:
                    self.bury(m)
                    buried = True
                else:
                    m.state, m.owner, m.attempts = "claimed", node, m.attempts + 1
                    taken.append(id)
        return sorted(taken, key=order)


def matches(topic, pattern):
    return topic == pattern or (pattern[-1] == "*" and topic.startswith(pattern[:-1]))


class Store(support.Case):
    def run_seed(self, seed, steps):
        self.random = random.Random(seed)
        self.undo = seed % 2 == 0  # deliveries that were rolled back count: then nothing becomes poison
        self.model = Model(1000 if self.undo else 3)
        self.gone = ["%024x" % 1]
        path = "%s-%d" % (self.path, seed)
        self.nodes = {node: self.db(node, {"max_attempts": self.model.max_attempts}, path=path) for node in NODES}
        for db in self.nodes.values():
            db.rows("PRAGMA synchronous = OFF")
        if self.random.random() < .5:
            self.nodes["n0"].rows("PRAGMA journal_mode = WAL")
        while steps > 0:
            self.node = self.random.choice(NODES)
            self.one = self.nodes[self.node]
            if self.undo and self.random.random() < .15:
                steps -= self.transaction(seed, steps)
            else:
                self.step("seed %d, %d to go" % (seed, steps))
                steps -= 1
        self.assertEqual(self.one.column("PRAGMA integrity_check"), ["ok"])
        for db in self.nodes.values():
            db.close()

    def step(self, at):
        verb = self.random.choice(STEPS)
        self.at = "%s: %s of %s" % (at, verb, self.node)
        getattr(self, verb)()
        self.check()

    def transaction(self, seed, steps):
        """One that comes to nothing, or whose second half does."""
        n, undone = self.random.randrange(1, 6), self.random.choice(("ROLLBACK", "ROLLBACK TO half", "COMMIT"))
        self.one.rows("BEGIN IMMEDIATE")
        before = copy.deepcopy(self.model)
        for i in range(n):
            if i == n // 2 and undone == "ROLLBACK TO half":
                self.one.rows("SAVEPOINT half")
                before = copy.deepcopy(self.model)
            self.step("seed %d, %d to go, in a transaction" % (seed, steps - i))
        self.one.rows(undone)
        self.at += ", then " + undone
        if undone != "COMMIT":
            for id, m in before.messages.items():
                now = self.model.messages.get(id)
                m.rolled_back = m.rolled_back or not now or now.attempts != m.attempts or now.rolled_back
            self.model = before
            self.check()
        if self.one.con.in_transaction:
            self.one.rows("COMMIT")
        return n

    # What there is.

    def check(self):
        for what, sql in WRONG.items():
            self.assertEqual(self.one.rows(sql), [], "%s: %s" % (self.at, what))
        found = self.one.rows("SELECT id, state, owner, token, priority, attempts, deliver_at FROM msg_messages")
        shown = {row[0]: row[1:5] for row in found}
        self.assertEqual(len(found), len(shown), self.at)
        model = {id: (m.state, m.owner, m.token, m.priority) for id, m in self.model.messages.items()}
        self.assertEqual(shown, model, self.at)
        for id, _, _, _, _, attempts, deliver_at in found:
            m = self.model.messages[id]
            m.deliver_at = deliver_at
            if not m.rolled_back:
                self.assertEqual(attempts, m.attempts, "%s: attempts of %s" % (self.at, id))
        self.check_counts()

    def check_counts(self):
        """By topic, and what a browse by topic or state gives."""
        states = ("ready", "claimed", "delayed", "blocked", "dead")
        want = collections.defaultdict(lambda: dict.fromkeys(states, 0))
        for m in self.model.messages.values():
            want[m.topic][m.state] += 1
        got = {row[0]: dict(zip(states, row[1:])) for row in
               self.one.rows("SELECT topic, ready, claimed, delayed, blocked, dead FROM msg_topics")}
        self.assertEqual(got, want, self.at)
        topic, state = self.random.choice(TOPICS), self.random.choice(states)
        ids = [id for id, m in self.model.messages.items() if m.topic == topic]
        self.assertEqual(sorted(self.one.column("SELECT id FROM msg_messages WHERE topic = ?", topic)), sorted(ids),
                         self.at)
        count = self.one.one("SELECT count(*) FROM msg_messages WHERE topic = ? AND state = ?", topic, state)
        self.assertEqual(count, want[topic][state] if topic in want else 0, self.at)
        held = sorted((id, m.owner) for id, m in self.model.messages.items() if m.state == "claimed")
        self.assertEqual(sorted(self.one.rows("SELECT id, owner FROM msg_locks")), held, self.at)

    # Picking.

    def pick(self, *states):
        return self.random.choice([id for id, m in self.model.messages.items() if not states or m.state in states]
                                  or [None])

    def some(self):
        """Mostly what is claimed, mostly by this node; ids twice, and of what is no more."""
        mine = [id for id, m in self.model.messages.items() if m.owner == self.node]
        ids = self.random.sample(mine, self.random.randrange(len(mine) + 1))
        for source in (list(self.model.messages), self.gone, ids):
            if source and self.random.random() < .3:
                ids += [self.random.choice(source) for _ in range(3)]
        if self.random.random() < .5:
            self.random.shuffle(ids)
        return ids

    def spell(self, ids):
        """A JSON array of them, and the tokens that its elements give (None: none)."""
        how = self.random.choice(("plain", "plain", "spaced", "upper", "escaped", "objects"))
        tokens = [None] * len(ids)
        if how == "objects":
            known = [m.token for m in self.model.messages.values() if m.token] or [self.gone[0]]
            tokens = [self.random.choice((None, self.random.choice(known),
                                          getattr(self.model.messages.get(id), "token", None))) for id in ids]
            return json.dumps([{"id": id, "token": token} if token else id for id, token in zip(ids, tokens)]), tokens
        text = json.dumps([id.upper() if how == "upper" else id for id in ids],
                          separators=(", ", ": ") if how == "spaced" else (",", ":"))
        return (text.replace("a", "\\u0061") if how == "escaped" else text), tokens

    def settle(self, sql, effect, *args):
        """`effect` for each that is theirs, once."""
        ids = self.some()
        text, tokens = self.spell(ids)
        got = self.one.one(sql, text, *args)
        done = set()
        for id, token in zip(ids, tokens):
            m = self.model.messages.get(id)
            if m and m.state == "claimed" and id not in done and (token or m.token) == m.token and \
                    (token or m.owner == self.node):
                done.add(id)
                effect(id, m)
        self.assertEqual(got, len(done), "%s: %s" % (self.at, text))
        return done

    # Steps.

    def put(self, exclusive):
        options = {"priority": self.random.choice(PRIORITIES)}
        if self.random.random() < .2:
            options["recipients"] = self.random.sample(NODES, self.random.choice((1, 2)))
        if self.random.random() < .2:
            options["ttl_ms"] = FAR_MS
        if exclusive and self.random.random() < .3:
            options["group"] = self.random.choice("gh")
        if self.random.random() < .2:
            options["delay_ms"] = FAR_MS
        topic = self.random.choice(TOPICS)
        m = Message(topic, exclusive, options["priority"], options.get("group"), options.get("recipients", ()),
                    time.time() * 1000 + options.get("delay_ms", -1))
        id = self.one.enqueue(topic, **options) if exclusive else self.one.send(topic, **options)
        self.model.send(id, m)

    def enqueue(self):
        for _ in range(self.random.choice((1, 1, 3, 8))):
            self.put(True)

    def broadcast(self):
        self.put(False)

    def claim(self):
        pattern, count = self.random.choice(PATTERNS), self.random.choice((1, 1, 2, 5, 20))
        seqs = dict(self.one.rows("SELECT id, seq FROM msg_store_message"))
        got = self.one.claims(pattern, count, FAR_MS)
        messages = self.model.messages
        want = self.model.take(self.node, pattern, count,
                               lambda id: (messages[id].priority, messages[id].deliver_at, seqs[id]))
        self.assertEqual([m["id"] for m in got], want, "%s: %d of %s" % (self.at, count, pattern))
        for m in got:
            messages[m["id"]].token = m["token"]
            if not messages[m["id"]].rolled_back:
                self.assertEqual(m["attempts"], messages[m["id"]].attempts, self.at)

    def ack(self):
        def effect(id, m):
            self.model.drop(id)
            self.gone.append(id)
        self.settle("SELECT msg_ack(?)", effect)

    def release(self):
        delay_ms = self.random.choice((0, 0, FAR_MS))
        self.settle("SELECT msg_release(?, NULL, ?)", lambda id, m: self.model.give_back(m, delay_ms), delay_ms)

    def reject(self):
        self.settle("SELECT msg_reject(?, 'bad')", lambda id, m: self.model.bury(m))

    def extend(self):
        self.settle("SELECT msg_extend(?, ?)", lambda id, m: None, FAR_MS + self.random.randrange(100))

    def end_leases(self):
        for id in self.settle("SELECT msg_extend(?, 1)", lambda id, m: None):
            self.model.give_back(self.model.messages[id])
        self.sweep()

    def sweep(self):
        time.sleep(.003)
        self.assertIsNone(self.one.claim("nothing"))

    def free(self):
        id = self.pick("claimed")
        if id:
            self.one.rows("DELETE FROM msg_locks WHERE id = ?", id)
            self.model.free(self.model.messages[id])

    def prioritize(self):
        id, priority = self.pick(), self.random.choice(PRIORITIES)
        if id:
            self.one.rows("UPDATE msg_messages SET priority = ? WHERE id = ?", priority, id)
            self.model.messages[id].priority = priority

    def move(self):
        id, at = self.pick(), int(time.time() * 1000) + self.random.choice((-FAR_MS, -5, FAR_MS))
        if not id:
            return
        m = self.model.messages[id]
        if m.state == "claimed" or (not m.exclusive and m.state == "ready" and at > time.time() * 1000):
            self.assertFails("MISUSE", self.one.rows, "UPDATE msg_messages SET deliver_at = ? WHERE id = ?", at, id)
            return
        self.one.rows("UPDATE msg_messages SET deliver_at = ? WHERE id = ?", at, id)
        m.deliver_at = at
        if m.state in ("ready", "delayed"):
            self.model.place(m)

    def live(self):
        id, ttl_ms = self.pick(), self.random.choice((0, FAR_MS))
        if id:
            self.one.rows("UPDATE msg_messages SET ttl = ? WHERE id = ?", ttl_ms, id)

    def end_lives(self):
        for id in {self.pick("ready", "delayed", "blocked") for _ in range(3)} - {None}:
            if self.model.messages[id].state == "blocked" or self.random.random() < .5:
                self.one.rows("UPDATE msg_messages SET ttl = 1 WHERE id = ?", id)
                self.model.drop(id)
        self.sweep()

    def remove(self):
        id = self.pick()
        if id:
            self.one.rows("DELETE FROM msg_messages WHERE id = ?", id)
            self.model.drop(id)

    def purge(self):
        pattern = self.random.choice(PATTERNS)
        gone = [id for id, m in self.model.messages.items() if matches(m.topic, pattern) and m.state != "claimed"]
        if self.random.random() < .3:
            self.assertEqual(self.one.one("SELECT msg_purge(?)", pattern), len(gone), self.at)
            for id in gone:
                del self.model.messages[id]

    def redrive(self):
        pattern = self.random.choice(PATTERNS)
        dead = [m for m in self.model.messages.values() if m.state == "dead" and matches(m.topic, pattern)]
        self.assertEqual(self.one.one("SELECT msg_redrive(?)", pattern), len(dead), self.at)
        for m in dead:
            m.attempts = 0
            self.model.free(m)

    @support.local_only("it reads the tables of the local store")
    def test_what_a_model_says(self):
        for seed in range(1, 9):
            self.run_seed(seed, 250)


@support.local_only("it reads the tables of the local store")
class Stopped(support.Case):
    """A progress handler of the host's stops a verb anywhere, also behind the last step of one of its statements."""

    VERBS = ("SELECT msg_enqueue('t', 1)", "SELECT msg_send('t', 1)", """SELECT msg_enqueue('t', 1, '{"group":"g"}')""",
             "INSERT INTO msg_messages(topic, value, exclusive) VALUES ('t', 1, 1), ('t', 2, 1)",
             "SELECT * FROM msg_claim('t', 3)", "SELECT msg_claim('t')", "SELECT msg_ack(:ids)",
             "SELECT msg_release(:ids)", "SELECT msg_extend(:ids, 1000000)", "SELECT msg_reject(:ids, 'bad')",
             "SELECT msg_purge('t')", "UPDATE msg_messages SET priority = 3",
             "UPDATE msg_messages SET ttl = 1000000", "DELETE FROM msg_messages",
             "INSERT INTO own SELECT msg_enqueue('t', 1) FROM (VALUES (1), (2))")

    def stop(self, db, sql, ids, nth, ever):
        """False: it came to its end before."""
        calls = [0]

        def handler():
            calls[0] += 1
            return calls[0] == nth or (ever and calls[0] > nth)
        db.con.set_progress_handler(handler, 1)
        try:
            db.con.execute(sql, {"ids": ids} if ":ids" in sql else {}).fetchall()
        except sqlite3.Error:
            pass
        db.con.set_progress_handler(None, 1)
        return calls[0] >= nth

    def run_verb(self, db, sql, begin):
        nth = 1
        while True:
            db.one("SELECT msg_purge('*')")
            db.enqueue("t", 1, group="g")
            db.enqueue("t", 2, recipients=["n"])
            for i in range(3, 6):
                db.enqueue("t", i)
            ids = json.dumps([m["id"] for m in db.claims("t", 2)])
            if begin:
                db.rows("BEGIN IMMEDIATE")
            at = "%s, %s, stopped at step %d" % (sql, begin, nth)
            stopped = self.stop(db, sql, ids, nth, nth % 2)
            if not begin:
                self.assertFalse(db.con.in_transaction, at)
            for end in ("COMMIT" if nth % 3 else "ROLLBACK", None):
                for what, wrong in WRONG.items():
                    self.assertEqual(db.rows(wrong), [], "%s: %s" % (at, what))
                if end and db.con.in_transaction:
                    db.rows(end)
            db.rows("DELETE FROM msg_messages")
            if not stopped:
                return
            nth += 1 + nth // 8

    def test_nothing_is_half_done(self):
        db = self.db("n")
        db.rows("PRAGMA synchronous = OFF")
        db.rows("PRAGMA journal_mode = WAL")
        db.rows("CREATE TABLE own(x)")
        for begin in (False, True):
            for sql in self.VERBS:
                self.run_verb(db, sql, begin)


if __name__ == "__main__":
    support.main()
