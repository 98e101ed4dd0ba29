"""Work that goes on while a fault happens: senders, consumers and listeners, each a process of its
own, and the account of what became of the messages.
"""
import contextlib
import json
import os
import threading
import time

from harness import LAYOUT, home, mongod, oid  # first: it says that the messages are in MongoDB
import support

TOPIC, CAST = "work", "cast"
DIRECT = "-direct"
TTL_MS = 900000


class Part:
    """A worker process driven by a thread: `step` again and again. Errors are counted, not raised:
    a fault makes them. What a call may take at most is the worker's patience."""

    patience_s = 60

    def __init__(self, path, node):
        self.path, self.node = path, node
        self.worker = support.Worker(path, node)
        self.errors, self.done_at, self.longest_s = [], [], 0.0
        self.stopping = threading.Event()
        self.broken = None  # an error of the test itself
        self.thread = threading.Thread(target=self.run, daemon=True)

    def rows(self, sql, *args):
        began = time.monotonic()
        try:
            self.worker.start(sql, *args)
            return self.worker.result(self.patience_s)
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def run(self):
        try:
            while not self.stopping.is_set():
                try:
                    self.step()
                except support.sqlite3.Error as error:
                    self.errors.append(str(error))
                    time.sleep(0.05)
        except Exception as error:
            if not self.stopping.is_set():
                self.broken = error

    def stop(self):
        self.stopping.set()
        self.thread.join(self.patience_s + 10)
        self.worker.kill()
        self.worker.process.stdin.close()
        self.worker.process.stdout.close()

    def kill(self):
        """SIGKILL mid-work; nothing more of it is counted."""
        self.stopping.set()
        self.worker.process.kill()
        self.thread.join(30)


class Sender(Part):
    """One enqueue, one broadcast and one direct message to a listener a step. `sent`: what was
    acknowledged, by value."""

    def __init__(self, *args):
        super().__init__(*args)
        self.number, self.sent, self.cast, self.direct = 0, {}, set(), set()

    def step(self):
        value = "%s-%d" % (self.node, self.number)
        self.number += 1
        id = self.rows("SELECT msg_enqueue(?, ?, ?)", TOPIC, value, '{"ttl_ms": %d}' % TTL_MS)[0][0]
        self.sent[value] = id
        self.done_at.append(time.monotonic())
        self.rows("SELECT msg_send(?, ?, ?)", CAST, value, '{"ttl_ms": %d}' % TTL_MS)
        self.cast.add(value)
        self.rows("SELECT msg_send(?, ?, ?)", CAST, value + DIRECT,
                  '{"ttl_ms": %d, "recipient": "listener-0"}' % TTL_MS)
        self.direct.add(value + DIRECT)


class Consumer(Part):
    """Claims five, acknowledges each. acks: (value, began) of each ack that was told yes."""

    def __init__(self, *args):
        super().__init__(*args)
        self.claimed, self.acks, self.unsure = [], [], set()
        self.history = []  # (when, value, what, detail), to be shown when something is wrong

    def step(self):
        rows = self.rows("SELECT id, token, value FROM msg_claim(?, 5, 10000, 300)", TOPIC)
        came = time.monotonic()
        self.claimed += [(value, came) for _, _, value in rows]
        self.history += [(came, value, "claimed", token) for _, token, value in rows]
        for id, token, value in rows:
            began = time.monotonic()
            self.unsure.add(value)
            done = self.rows("SELECT msg_ack(?, ?)", id, token)[0][0]
            self.history.append((began, value, "ack %s" % done, time.monotonic() - began))
            if done:
                self.acks.append((value, began))
                self.done_at.append(time.monotonic())
            self.unsure.discard(value)


class Bulk(Sender):
    """A hundred by one statement, without a life."""

    def step(self):
        values = ["%s-%d" % (self.node, self.number + i) for i in range(100)]
        sent = {value: oid()["$oid"] for value in values}
        self.number += len(sent)
        self.rows("""INSERT INTO msg_messages(id, topic, value, exclusive)
                     SELECT value, ?, key, 1 FROM json_each(?)""", TOPIC, json.dumps(sent))
        self.sent.update(sent)
        self.done_at += [time.monotonic()] * len(sent)
        time.sleep(0.05)


class Batch(Consumer):
    """Claims fifty, acknowledges them together: by turns in a transaction."""

    turn = False

    def step(self):
        rows = self.rows("SELECT id, token, value FROM msg_claim(?, 50, 10000, 300)", TOPIC)
        came, values = time.monotonic(), [value for _, _, value in rows]
        if not rows:
            return
        self.claimed += [(value, came) for value in values]
        self.history += [(came, value, "claimed", token) for _, token, value in rows]
        self.unsure.update(values)
        began = time.monotonic()
        done = self.ack(json.dumps([{"id": id, "token": token} for id, token, _ in rows]))
        self.history += [(began, value, "ack %d" % done, time.monotonic() - began)
                         for value in values]
        if done == len(rows):
            self.acks += [(value, began) for value in values]
            self.done_at += [time.monotonic()] * done
        if done in (0, len(rows)):
            self.unsure.difference_update(values)

    def ack(self, items):
        self.turn = not self.turn
        if self.turn:
            return self.rows("SELECT msg_ack(?)", items)[0][0]
        self.rows("BEGIN")
        done = self.rows("SELECT msg_ack(?)", items)[0][0]
        try:
            self.rows("COMMIT")
        except support.sqlite3.Error:
            with contextlib.suppress(support.sqlite3.Error):
                self.rows("ROLLBACK")
            raise
        return done


class Listener(Part):
    """One message a call: of a statement that fails, Python would show none of the earlier rows."""

    def __init__(self, *args):
        super().__init__(*args)
        self.got = []
        self.rows("SELECT msg_listen(?)", CAST)

    def step(self):
        value = self.rows("SELECT msg_await(?, 300) ->> 'value'", CAST)[0][0]
        if value is not None:
            self.got.append(value)


class Load:
    """Context manager. `fault()` marks its moment; `account(name)` ends it, prints, asserts."""

    def __init__(self, case, senders=2, consumers=2, listeners=1, kinds=(Consumer, Sender)):
        self.case = case
        self.parts = []
        consumer, sender = kinds
        for kind, n in ((Listener, listeners), (consumer, consumers), (sender, senders)):
            for i in range(n):
                self.add(kind(case.path, "%s-%d" % (kind.__name__.lower(), i)))
        self.fault_at = None

    def add(self, part):
        self.parts.append(part)
        part.thread.start()
        return part

    def of(self, kind):
        return [p for p in self.parts if isinstance(p, kind)]

    def __enter__(self):
        self.until_busy(20)
        time.sleep(2)  # the rate before
        return self

    def __exit__(self, *_):
        for part in self.parts:
            part.stop()

    def done(self):
        return sum(len(p.done_at) for p in self.parts)

    def until_busy(self, more):
        """Sends and acks go on by `more` from now."""
        before = {p: len(p.done_at) for p in self.parts}

        def did(part):
            return len(part.done_at) - before.get(part, 0)
        support.until(lambda: self.check()
                      and all(did(s) >= more for s in self.of(Sender) if not s.stopping.is_set())
                      and sum(map(did, self.of(Consumer))) >= more, timeout_s=120)

    def check(self):
        for part in self.parts:
            if part.broken:
                raise part.broken
        return True

    def fault(self):
        self.fault_at = time.monotonic()

    def drain(self):
        """No more is sent; everything sent is done and heard."""
        for sender in self.of(Sender):
            sender.stopping.set()
            sender.thread.join(sender.patience_s + 10)
        sent = {v for s in self.of(Sender) for v in s.sent}
        try:
            support.until(lambda: self.check() and not self.missing(sent) or self.late(),
                          timeout_s=180)
        except TimeoutError:  # the account says what is lost
            missing = self.missing(sent)
            print("  not drained: %d" % len(missing))
            for document in self.case.documents(sorted(missing)[:5]):
                print("  %s" % document)
            self.show(set(sorted(missing)[:5]))

    def missing(self, sent):
        """Sent, and neither done nor heard by all."""
        acked = {v for c in self.of(Consumer) for v, _ in list(c.acks)}
        return (sent - acked - self.unsure()).union(*map(self.unheard, self.of(Listener)))

    def unheard(self, listener):
        """What was acknowledged, and did not reach it."""
        told = {v for s in self.of(Sender) for v in s.cast}
        if listener.node == "listener-0":
            told |= {v for s in self.of(Sender) for v in s.direct}
        return told - set(list(listener.got))

    def unsure(self):
        """Whose ack had no answer, and which nobody was given again since: done in the store."""
        return {v for c in self.of(Consumer) for v in list(c.unsure)
                if self.state(v) in (None, "processed")}

    def state(self, value):
        rows = self.case.node_rows(
            "SELECT state FROM msg_messages WHERE topic = ? AND value = ?", TOPIC, value)
        return rows[0][0] if rows else None

    def late(self):
        time.sleep(0.2)
        return False

    def rates(self):
        """Sends and acks a second: before the fault, and in each second after it."""
        times = sorted(t for p in self.parts for t in p.done_at)
        before = [t for t in times if self.fault_at - 2 <= t < self.fault_at]
        after = [t - self.fault_at for t in times if t >= self.fault_at]
        return len(before) / 2, after

    def recovery(self):
        """Seconds: the longest pause, its end, and when at 80 % of the rate before."""
        before, after = self.rates()
        gaps = [(b - a, b) for a, b in zip([0.0] + after, after)]
        gap, back = max(gaps)
        starts = [t for t in after if t >= back]
        full = next((t for i, t in enumerate(starts)
                     if sum(1 for x in starts[i:] if x < t + 1) >= 0.8 * before), None)
        return gap, back, full

    def account(self, name):
        self.drain()
        sent = {v for s in self.of(Sender) for v in s.sent}
        cast = sum(len(s.cast) for s in self.of(Sender))
        direct = sum(len(s.direct) for s in self.of(Sender))
        acks = [a for c in self.of(Consumer) for a in c.acks]
        acked = [v for v, _ in acks]
        lost = sent - set(acked) - self.unsure()
        twice = self.owned_twice()
        unheard = [v for x in self.of(Listener) for v in self.unheard(x)]
        undelivered = sum(v.endswith(DIRECT) for v in unheard)
        doubled = sum(len(x.got) - len(set(x.got)) for x in self.of(Listener))
        gap, back, full = self.recovery()
        self.show(lost | twice)
        print("%s:\n  acknowledged %d, lost %d, owned twice %d\n"
              "  broadcasts acknowledged %d, lost %d; directs %d, lost %d; doubled %d\n"
              "  errors %d, longest call %.1f s\n"
              "  recovered: longest pause %.1f s, went on after %.1f s, 80 %% of the rate after %s"
              % ("%s, layout %s" % (name, LAYOUT), len(sent), len(lost), len(twice),
                 cast, len(unheard) - undelivered, direct, undelivered, doubled,
                 sum(len(p.errors) for p in self.parts), self.longest_s(),
                 gap, back, "%.1f s" % full if full is not None else "the end"), flush=True)
        self.case.assertEqual((len(lost), len(twice), len(unheard)), (0, 0, 0),
                              (lost, twice, unheard))
        return doubled

    def longest_s(self):
        return max(p.longest_s for p in self.parts)

    def show(self, values):
        """What happened to them, for who looks for the reason."""
        events = [(t, v, c.node, what, detail) for c in self.of(Consumer)
                  for t, v, what, detail in c.history if v in values]
        for t, value, node, what, detail in sorted(events):
            print("  %7.2f s %s %s %s %s" % (t - self.fault_at, value, node, what, detail))

    def owned_twice(self):
        """Two acknowledged it; or one did although another had been given it in between."""
        owners = {}
        for consumer in self.of(Consumer):
            for value, began in consumer.acks:
                owners.setdefault(value, []).append((consumer, began))
        twice = {v for v, who in owners.items() if len(who) > 1}
        given = [(value, consumer, came) for consumer in self.of(Consumer)
                 for value, came in consumer.claimed]
        for value, other, came in given:
            for owner, acked in owners.get(value, []):
                mine = [t for v, c, t in given if v == value and c is owner and t <= acked]
                if other is not owner and max(mine) < came < acked:
                    twice.add(value)
        return twice


class Case(support.Case):
    """A cluster a test: what one fault leaves does not disturb the next."""

    nodes, args = 3, ()

    def setUp(self):
        self.cluster = mongod.Cluster(self.nodes, args=self.args)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.stop)
        self.cluster.until_healthy()
        shared = os.environ.get("MSG_TEST_MONGODB_URI")
        os.environ["MSG_TEST_MONGODB_URI"] = self.cluster.uri(w="majority")
        self.addCleanup(self.restore, shared)
        super().setUp()
        self.look = None

    def restore(self, shared):
        os.environ.pop("MSG_TEST_MONGODB_URI")
        if shared:
            os.environ["MSG_TEST_MONGODB_URI"] = shared

    def drop_database(self):
        """The cluster goes as a whole."""

    def documents(self, values):
        with self.cluster.primary().admin() as admin:
            return [m for topic in {home(TOPIC), home(CAST)} for m in admin.find(
                support.database_of(self.path), topic, {"value": {"$in": values}})]

    def node_rows(self, sql, *args):
        self.look = self.look or self.db("observer")
        return self.look.rows(sql, *args)
