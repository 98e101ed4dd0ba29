#!/usr/bin/python3
"""Kill -9 in a loop while processes send and claim on one file.

Senders write an order and its message in one transaction and say so after COMMIT; workers log each claim before they
acknowledge it. Whatever is killed: every acknowledged order is delivered, no message is owned by two while a lease
holds, the application's table and the messages agree, and the file is sound. Prints acknowledged / lost / duplicated /
recovered.
"""
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from collections import defaultdict

SECONDS = float(os.environ.get("MSG_KILL_SECONDS", "8"))
LEASE_MS = 60000  # longer than the run: only the death of an owner may free a claim


def connect(path):
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.enable_load_extension(True)
    db.execute("SELECT load_extension(?, 'sqlite3_msg_init')", (os.environ["MSG_SO"],))
    return db


def log(fd, *words):
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())


def retry(db, sql, args=()):
    """Another process may hold the lock longer than the host's time-out when it was just killed."""
    while True:
        try:
            return db.execute(sql, args).fetchone()
        except sqlite3.OperationalError as e:
            if "locked" not in str(e) and "BUSY" not in str(e):
                raise


def send(path, fd, name):
    db, n = connect(path), 0
    while True:
        n += 1
        order = "%s-%d-%d" % (name, os.getpid(), n)
        retry(db, "BEGIN IMMEDIATE")
        db.execute("INSERT INTO orders(name) VALUES(?)", (order,))
        db.execute("SELECT msg_enqueue('work', ?)", (order,)).fetchone()
        while True:
            try:
                db.execute("COMMIT")
                break
            except sqlite3.OperationalError as e:
                if "locked" not in str(e):
                    raise
        log(fd, "sent", order)
        if random.random() < 0.3:
            time.sleep(random.random() * 0.01)  # as workers do: a fast disk else leaves them behind by far


def work(path, fd, drain):
    db = connect(path)
    while True:
        row = retry(db, "SELECT id, value FROM msg_claim('work', 1, %d, %d)" % (LEASE_MS, 0 if drain else 200))
        if row is None:
            if drain:
                return
            continue
        log(fd, "claim", row[1], time.monotonic_ns())
        if not drain and random.random() < 0.3:
            time.sleep(random.random() * 0.01)
        held_until = time.monotonic_ns()  # taken before the settle: afterwards another may own it
        done = retry(db, "SELECT msg_ack(?)", (row[0],))[0]
        log(fd, "ack", row[1], held_until, done)


class Farm:
    """Children that are killed and started anew; each writes to a log of its own."""

    def __init__(self, path):
        self.path, self.logs, self.children = path, {}, {}

    def start(self, role):
        out = tempfile.TemporaryFile()
        child = subprocess.Popen([sys.executable, os.path.abspath(__file__), role, self.path], stdout=out)
        self.children[child.pid] = (child, role)
        self.logs[child.pid] = (out, None)

    def kill(self, pid, again):
        child, role = self.children.pop(pid)
        if child.poll() is not None:
            raise AssertionError("%s ended by itself with %d" % (role, child.returncode))
        killed = time.monotonic_ns()  # it may own until now; another may claim before wait() returns
        child.send_signal(signal.SIGKILL)
        child.wait()
        self.logs[pid] = (self.logs[pid][0], killed)
        if again:
            self.start(role)

    def stop(self):
        for child, _ in self.children.values():
            child.kill()
            child.wait()

    def lines(self):
        for pid, (out, died) in self.logs.items():
            out.seek(0)
            yield pid, died, [line.split() for line in out.read().decode().splitlines()]


def account(farm):
    sent, claims, acks = set(), defaultdict(list), defaultdict(int)
    for pid, died, lines in farm.lines():
        open_claim = None
        for words in lines:
            if words[0] == "sent":
                sent.add(words[1])
            elif words[0] == "claim":
                open_claim = [int(words[2]), died, pid]
                claims[words[1]].append(open_claim)
            else:
                open_claim[1] = int(words[2])
                acks[words[1]] += int(words[3])
    return sent, claims, acks


def overlaps(intervals):
    intervals = sorted(intervals)
    return sum(1 for a, b in zip(intervals, intervals[1:]) if a[1] is None or b[0] < a[1])


class Kill(unittest.TestCase):
    def run_mode(self, mode):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kill.db")
            db = connect(path)
            db.execute("PRAGMA journal_mode = " + mode)
            db.execute("CREATE TABLE orders(name TEXT PRIMARY KEY)")
            db.execute("SELECT msg_open('local')")
            farm = Farm(path)
            for role in ("send", "send", "work", "work", "work"):
                farm.start(role)
            self.addCleanup(farm.stop)
            end = time.monotonic() + SECONDS
            kills = 0
            while time.monotonic() < end:
                time.sleep(random.uniform(0.15, 0.4))
                farm.kill(random.choice(list(farm.children)), True)
                kills += 1
            for pid in list(farm.children):
                farm.kill(pid, False)
            out = tempfile.TemporaryFile()
            subprocess.run([sys.executable, os.path.abspath(__file__), "drain", path], stdout=out, check=True, timeout=60)
            farm.logs["drain"] = (out, None)

            sent, claims, acks = account(farm)
            orders = {name for (name,) in db.execute("SELECT name FROM orders")}
            lost = sent - set(claims)
            twice = [n for n, count in acks.items() if count > 1]
            overlap = sum(overlaps(i) for i in claims.values())
            recovered = sum(1 for i in claims.values() if len(i) > 1)
            print("\n%s: %d kills; acknowledged %d, lost %d, duplicated %d, owned twice %d, recovered %d"
                  % (mode, kills, len(sent), len(lost), len(twice), overlap, recovered), file=sys.stderr)
            self.assertGreater(len(sent), 50)
            self.assertEqual((len(lost), len(twice), overlap), (0, 0, 0))
            self.assertLessEqual(sent, orders)
            self.assertLessEqual(set(claims), orders)
            self.assertEqual(orders - set(claims), set(), "an order whose message is gone")
            self.assertEqual(db.execute("SELECT count(*) FROM msg_messages").fetchone()[0], 0)
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
            db.close()

    def test_wal(self):
        self.run_mode("wal")

    def test_rollback_journal(self):
        self.run_mode("delete")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in ("send", "work", "drain"):
        if sys.argv[1] == "send":
            send(sys.argv[2], 1, "order")
        else:
            work(sys.argv[2], 1, sys.argv[1] == "drain")
    else:
        unittest.main()
