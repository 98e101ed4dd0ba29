"""Moving between two stores by the scripts of sql/: what tests/sql and tests/mongo have in common.

A side is where messages are: a file, or a database of MongoDB and a layout. The mover is the sqlite3 shell.
"""
import contextlib
import json
import os
import random
import re
import sqlite3
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "hosts"))
import support  # noqa: E402
from support import Background, until  # noqa: E402

BRIDGE = os.path.join(support.SOURCE, "sql", "migrate_bridge.sql")
BIG_BANG = os.path.join(support.SOURCE, "sql", "migrate_big_bang.sql")
PATIENCE_S = 120  # under load
FIELDS = ("id", "topic", "value", "typeof(value)", "CASE typeof(value) WHEN 'text' THEN json_quote(value) END", "msg",
          "map", "additional", "sender", "sender_host", "recipients", "in_answer_to", "exclusive", "priority",
          "timestamp", "ttl", "timing_out", "delete_at", "delete_after_processing", "delete_after_processing_time",
          "deliver_at", "key", '"group"', "state", "attempts", "reason")


class Side:
    def __init__(self, target, options=None, path=":memory:"):
        self.target, self.options, self.path = target, dict(options or {}), path
        if path != ":memory:":
            con = sqlite3.connect(path)
            con.execute("PRAGMA journal_mode = wal")
            con.close()

    def attach(self, name):
        """The statements by which the mover opens it as node `name`."""
        options = json.dumps(dict(self.options, sender_id=name, write_timeout_ms=60000))
        if self.target != "local":
            return "SELECT msg_open('%s', '%s') IS NULL;\n" % (self.target, options)
        return "ATTACH '%s' AS %s;\nSELECT msg_open('local:%s', '%s') IS NULL;\n" % (
            self.path, name + "_file", name + "_file", options)


class Mover:
    """The scripts of sql/, run by the shell in a directory of their own."""

    def __init__(self, directory, old, new):
        self.file = os.path.join(directory, "mover.db")
        self.opening = ".timeout 10000\n" + new.attach("new") + old.attach("old")

    def command(self):
        return [support.SQLITE3, "-batch", "-bail", "-json", "-cmd", ".load '%s'" % support.MSG_SO, self.file]

    def run(self, text):
        """What the statements print: rows as dicts."""
        done = subprocess.run(self.command(), input=self.opening + text, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        errors = [line for line in done.stderr.splitlines() if "mongoc" not in line]
        if done.returncode not in (0, -9) or errors:
            raise AssertionError("the mover: %s" % "\n".join(errors or [str(done.returncode)]))
        return [row for line in re.findall(r"^\[.*?\]$", done.stdout, re.M | re.S) for row in json.loads(line)][2:]

    def big_bang(self):
        return self.run(".read '%s'\n" % BIG_BANG)[-1]

    @staticmethod
    def pieces(script):
        with open(script, encoding="utf-8") as file:
            return re.split(r"(?<=;)\n", re.sub(r"^ *--.*\n", "", file.read(), flags=re.M))

    def crash(self, script, after):
        """The first `after` statements of the script, then kill -9."""
        self.run("\n".join(self.pieces(script)[:after]) + "\n.system kill -9 $PPID\n")


class Bridge:
    """Passes without end by a process that is killed and started again until `stop`."""

    def __init__(self, mover, kill=True):
        self.mover, self.kill = mover, kill
        self.passes = self.kills = self.late = 0
        self.moved = {"moved": 0, "to_new": 0, "to_old": 0, "told": 0}
        self.process = None
        self.stopping = threading.Event()
        self.thread = Background(self.work)
        self.killer = Background(self.murder)

    def work(self):
        while not self.stopping.is_set():
            self.process = subprocess.Popen(self.mover.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.PIPE, text=True)
            errors = Background(self.process.stderr.read)
            Background(self.feed, self.process)
            for line in self.process.stdout:
                self.note(line)
            self.process.wait()
            self.process.stdout.close()
            text = "".join(line for line in errors.result().splitlines(True) if "mongoc" not in line)
            self.process.stderr.close()
            if self.process.returncode and "msg: EXISTS" in text:
                self.late += 1  # what the last one was killed over arrived after all: begun again
            elif self.process.returncode not in (0, -9):
                raise AssertionError("the bridge: %s" % text)

    def feed(self, process):
        stdin = process.stdin
        try:
            stdin.write(self.mover.opening)
            while not self.stopping.is_set():
                stdin.write(".read '%s'\nSELECT 'pass' AS what;\n" % BRIDGE)
                stdin.flush()
                passes = self.passes
                while self.passes == passes and process.poll() is None:
                    time.sleep(0.01)
        except (OSError, ValueError):
            pass
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    def note(self, line):
        if line.startswith("[{"):
            line = line[1:]
        row = json.loads(line.rstrip().rstrip(",]")) if line.startswith("{") else {}
        if row.get("what") == "pass":
            self.passes += 1
        for key in self.moved:
            self.moved[key] += row.get(key, 0)

    def murder(self):
        """Some time after a pass has gone through."""
        passes = 0
        while self.kill and not self.stopping.wait(random.uniform(0, 0.5)):
            if self.passes > passes + 1 and self.process.poll() is None:
                passes = self.passes
                self.process.kill()
                self.kills += 1

    def turn(self):
        """Returns when two whole passes have begun and ended."""
        passes = self.passes
        until(lambda: self.passes >= passes + 3 or not self.thread.thread.is_alive(), PATIENCE_S)

    def stop(self):
        self.stopping.set()
        self.thread.result(PATIENCE_S)
        self.killer.result(PATIENCE_S)


class Traffic:
    """Programs of both sides: who sends, works, listens, asks and answers. Each is one thread and connection."""

    def __init__(self, case, old, new):
        self.case, self.sides = case, {"old": old, "new": new}
        self.sent, self.done, self.order = [], [], []
        self.said, self.heard = [], {}
        self.asked, self.answered = [], []
        self.running = {}

    def open(self, side, node):
        where = self.sides[side]
        db = self.case.db(path=where.path)
        db.one("SELECT msg_open(?, ?)", where.target, json.dumps(dict(where.options, sender_id=node)))
        return db

    def start(self, work, side, node):
        stop = threading.Event()
        db = self.open(side, node)
        self.running[node] = stop, Background(self.loop, work, db, node, stop)

    def loop(self, work, db, node, stop):
        number = 0
        while not stop.is_set():
            number += 1
            work(db, node, number)
        db.close()

    def stop(self, *nodes):
        for node in nodes:
            self.running[node][0].set()
        for node in nodes:
            self.running.pop(node)[1].result(PATIENCE_S)

    def send(self, db, node, n):
        value = "%s %d" % (node, n)
        how = {"key": value} if n % 3 == 0 else {"group": node} if n % 3 == 1 else {"priority": n % 7}
        db.enqueue("work.%d" % (n % 4), value, **how)
        self.sent.append(value)
        if n % 5 == 0:
            db.send("news", value, ttl_ms=600000)
            self.said.append(value)
        time.sleep(0.03)

    def take(self, db, node, n):
        for id, token, value, group in db.rows(
                'SELECT id, token, value, "group" FROM msg_claim(\'work.*\', 5, 20000, 200)'):
            if db.one("SELECT msg_ack(?, ?)", id, token):
                self.done.append(value)
                self.order.append((group, node, value))

    def hear(self, db, node, n):
        for value in db.column("SELECT value FROM msg_await('news', 200, 50)"):
            self.heard.setdefault(node, []).append(value)

    def ask(self, db, node, n):
        got = db.one("SELECT msg_request('price', ?, 60000)", "%s %d" % (node, n))
        self.asked.append((node, n, got))
        time.sleep(0.2)

    def answer(self, db, node, n):
        for id, value in db.rows("SELECT id, value FROM msg_await('price', 200, 50)"):
            self.answered.append(value)
            db.one("SELECT msg_reply(?, ?)", id, "to " + value)

    # -- what came of it

    def lost(self):
        return sorted(set(self.sent) - set(self.done))

    def twice(self):
        return sorted({v for v in self.done if self.done.count(v) > 1})


class Moves:
    """The tests: with `self.old` and `self.new` of a support.Case."""

    round = ""

    def mover(self):
        return Mover(self.directory, self.old, self.new)

    def side(self, side, node):
        return Traffic(self, self.old, self.new).open(side, node)

    def fill(self, db):
        """One of every kind; rows as they are."""
        for value in (7, 1.5, b"\0\1", None, "text", "[1]"):
            db.enqueue("kinds", value)
        db.rows("SELECT msg_enqueue('kinds', json('[1]'), ?)", json.dumps(
            {"map": {"a": [1]}, "additional": [1, "b"], "msg": "words", "priority": 3, "ttl_ms": 600000}))
        db.enqueue("kinds", "keyed", key="k" + self.round)
        db.enqueue("kinds", "later", delay_ms=600000, ttl_ms=60000)
        db.enqueue("kinds", "for two", recipients=["x", "y"])
        for n in range(4):
            db.enqueue("fifo", n, group="g", priority=9 - n)
        db.enqueue("fifo", "head", group="later", delay_ms=600000)
        db.enqueue("fifo", "behind", group="later")
        db.enqueue("bad", "poison", key="p" + self.round, group="g", ttl_ms=600000)
        db.rows("SELECT msg_reject(id, 'no good', token) FROM msg_claim('bad')")
        db.enqueue("again", "retried")
        db.rows("SELECT msg_release(id, token) FROM msg_claim('again')")
        db.send("news", "to all", ttl_ms=600000)
        db.send("news", "direct", recipients=["x", "y"], ttl_ms=600000, delete_after_processing=True)
        db.send("news", "much later", delay_ms=600000)
        db.send("news", "an answer", recipient="x", ttl_ms=600000, in_answer_to="5f" * 12)

    def rows(self, db):
        """By id; several copies of one direct, in lanes, are one message."""
        return dict((row[0], row) for row in db.rows(
            "SELECT %s FROM msg_messages WHERE state NOT IN ('processed', 'expired') AND topic <> 'migrate.probe'" % ", ".join(FIELDS)))

    def assert_same_rows(self, found, wanted):
        self.assertEqual(sorted(found), sorted(wanted))
        for id in wanted:
            self.assertEqual(dict(zip(FIELDS, found[id])), dict(zip(FIELDS, wanted[id])))

    def test_big_bang_keeps_everything(self):
        db = self.side("old", "shop")
        self.fill(db)
        wanted = self.rows(db)
        row = self.mover().big_bang()
        self.assertEqual((row["moved"], row["left"], row["same_messages"]), (len(wanted), 0, 0))
        self.assert_same_rows(self.rows(self.side("new", "till")), wanted)
        self.assertEqual(self.rows(db), {})
        # A key that was used before the move counts after it.
        self.side("new", "till").enqueue("kinds", "again", key="k" + self.round)
        self.assertEqual(len(self.rows(self.side("new", "till"))), len(wanted))

    def test_big_bang_that_dies_anywhere(self):
        """After each statement that writes: begun anew, it moves everything, and nothing is there twice."""
        db, there = self.side("old", "shop"), self.side("new", "till")
        pieces = Mover.pieces(BIG_BANG)
        writing = [n + 1 for n, piece in enumerate(pieces) if re.search(r"^(INSERT|UPDATE|DELETE|COMMIT)|enqueue", piece, re.M)]
        self.assertGreater(len(writing), 8)
        for after in writing:
            self.round = str(after)
            self.fill(db)
            wanted = self.rows(db)
            self.mover().crash(BIG_BANG, after)
            worked = there.column("SELECT value FROM msg_claim('kinds', 100) WHERE msg_ack(id, token)")
            row = self.mover().big_bang()
            self.assertEqual(row["left"], 0, after)
            worked += there.column("SELECT value FROM msg_claim('kinds', 100) WHERE msg_ack(id, token)")
            self.assertEqual(len(worked), 8, after)
            kept = {id: row for id, row in wanted.items() if row[1] != "kinds"}
            found = {id: row for id, row in self.rows(there).items() if row[1] != "kinds"}
            self.assert_same_rows(found, kept)
            there.rows("DELETE FROM msg_messages")

    def test_what_is_claimed_stays(self):
        db = self.side("old", "shop")
        db.enqueue("t", "held")
        db.enqueue("t", "free")
        token = db.claim("t")
        row = self.mover().big_bang()
        self.assertEqual((row["moved"], row["left"], row["claimed"]), (1, 1, 1))
        self.assertEqual(self.side("new", "till").column("SELECT value FROM msg_messages"), ["free"])
        self.assertEqual(db.one("SELECT msg_ack(?, ?)", token["id"], token["token"]), 1)
        self.assertEqual(self.mover().big_bang()["left"], 0)

    def test_who_has_seen_it_sees_it_no_more(self):
        early, late = self.side("old", "early"), self.side("old", "late")
        for db in (early, late):
            db.rows("SELECT msg_listen('news')")
        shop = self.side("old", "shop")
        shop.send("news", "first", ttl_ms=600000)
        shop.send("news", "for you", recipient="early", ttl_ms=600000)
        self.assertEqual(early.wait("news", 20000)["value"], "first")
        until(lambda: shop.column("SELECT processed_by FROM msg_messages WHERE value = 'first'") == ['["early"]'])
        for db in self.dbs:
            db.close()
        self.mover().big_bang()
        for node, wanted in (("early", ["for you"]), ("late", ["first"])):
            db = self.side("new", node)
            db.rows("SELECT msg_listen('news')")
            self.assertEqual(db.wait("news", 20000)["value"], wanted[0])
            self.assertEqual(db.values("news", 300), [], node)
        shop = self.side("new", "shop")
        shop.rows("SELECT msg_listen('news')")
        self.assertEqual(shop.values("news", 300), [], "its own")

    def test_big_bang_with_traffic(self):
        """The old side works until it is stopped, the new one all the time; the mover is killed again and again."""
        t = Traffic(self, self.old, self.new)
        for node in ("sender1", "sender2"):
            t.start(t.send, "old", node)
        t.start(t.take, "new", "worker.new")
        t.start(t.take, "old", "worker.old")
        until(lambda: len(t.done) > 20, PATIENCE_S)
        t.stop("worker.old")
        sent = len(t.sent)
        until(lambda: len(t.sent) > sent + 60, PATIENCE_S)
        t.stop("sender1", "sender2")
        kills = 0
        for _ in range(6):
            process = subprocess.Popen(self.mover().command(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, text=True)
            process.stdin.write(self.mover().opening + ".read '%s'\n.read '%s'\n" % (BIG_BANG, BIG_BANG))
            process.stdin.flush()
            try:
                process.wait(random.uniform(0.02, 0.5))
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
            process.stdin.close()
            process.wait()
        until(lambda: self.mover().big_bang()["left"] == 0, PATIENCE_S)
        until(lambda: not t.lost(), PATIENCE_S)
        t.stop("worker.new")
        self.report("big bang", t, len([v for g, node, v in t.order if node == "worker.new"]), kills)
        self.assert_in_order(t, "worker.new")

    def report(self, what, t, moved, kills):
        print("%s: %d sent, %d moved, %d lost, %d twice; mover killed %d times" % (
            what, len(t.sent), moved, len(t.lost()), len(t.twice()), kills), flush=True)
        self.assertEqual((t.lost(), t.twice()), ([], []))

    def assert_in_order(self, t, node):
        """Of each group, as one worker had it."""
        last = {}
        for group, who, value in t.order:
            if group and who == node:
                number = int(value.split()[1])
                self.assertGreater(number, last.get(group, 0), value)
                last[group] = number

    def test_bridge_with_traffic(self):
        """Everybody works on both sides while the bridge runs and is killed; a listener and the workers move over."""
        t = Traffic(self, self.old, self.new)
        for side in ("old", "new"):
            t.start(t.hear, side, "ear." + side)
            t.start(t.answer, side, "seller." + side)
        t.start(t.hear, "old", "ear.roams")
        bridge = Bridge(self.mover())
        try:
            bridge.turn()
            for side in ("old", "new"):
                t.start(t.send, side, "sender." + side)
                t.start(t.ask, side, "asker." + side)
                t.start(t.take, side, "worker." + side)
            until(lambda: len(t.sent) > 60 and len(t.asked) > 6, PATIENCE_S)
            t.stop("worker.old", "ear.roams")
            bridge.turn()
            t.start(t.hear, "new", "ear.roams")
            sent = len(t.sent)
            until(lambda: len(t.sent) > sent + 60, PATIENCE_S)
            t.stop("asker.old", "asker.new")
            t.stop("sender.old", "sender.new")
            until(lambda: not t.lost(), PATIENCE_S)
            said = set(t.said)
            until(lambda: all(said <= set(t.heard.get(ear, ())) for ear in ("ear.old", "ear.new", "ear.roams")),
                  PATIENCE_S)
            bridge.turn()
        finally:
            bridge.stop()
        t.stop(*list(t.running))
        row = self.mover().big_bang()
        self.report("bridge", t, bridge.moved["moved"], bridge.kills)
        print("bridge: %s in %d passes; %d asked, answered %d; %s" % (
            bridge.moved, bridge.passes, len(t.asked), len(t.answered),
            {ear: len(values) for ear, values in t.heard.items()}), flush=True)
        self.assertEqual(row["claimed"], 0)
        for ear, values in t.heard.items():
            self.assertEqual((ear, sorted(values)), (ear, sorted(t.said)))
        for node, n, got in t.asked:
            self.assertEqual(got, "to %s %d" % (node, n))
        self.assertGreater(bridge.moved["moved"], 0)
        self.assertLessEqual(bridge.late, bridge.kills)
