"""What the host tests share: connections with msg.so, threads, and worker processes driven line by line.

Waiting is bounded polling (`until`); a fixed sleep is used only where nothing could be polled for: to let time pass
that a rule speaks of. Run as a program, this file is the worker: one JSON request a line, one JSON answer a line.

With MSG_TEST_STORE=mongodb the messages are in MongoDB, in a database a test, laid out as MSG_TEST_LAYOUT says, and the
file is the host's alone.
"""
import json
import os
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = os.environ.get("MSG_SOURCE") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MSG_SO = os.environ.get("MSG_SO") or os.path.join(SOURCE, "build", "msg.so")
SQLITE3 = os.environ.get("SQLITE3") or "sqlite3"
MONGODB = os.environ.get("MSG_TEST_STORE") == "mongodb"
SHORT_MS = 400 if MONGODB else 30  # a lease that shall end soon, but not before it is taken
LAYOUT = os.environ.get("MSG_TEST_LAYOUT")
SKIPPED = 77
sys.path.insert(1, os.path.join(SOURCE, "tests", "support"))
import mongod  # noqa: E402
PATIENCE_S = 20  # only for what must happen: a test that passes never waits so long


def connect(path, timeout=5.0, isolation_level=None, load=True, uri=False):
    """A connection in autocommit, usable from any thread; timeout is SQLite's busy_timeout in seconds."""
    # Nothing is cached: threads that share a connection would meet in one statement.
    con = sqlite3.connect(path, timeout=timeout, isolation_level=isolation_level,
                          check_same_thread=False, uri=uri, cached_statements=0)
    if load:
        con.enable_load_extension(True)
        con.load_extension(MSG_SO)
        con.enable_load_extension(False)
    return con


def database_of(path):
    """The MongoDB database of the tests whose file is `path`."""
    return "hosts_" + re.sub(r"\W", "_", os.path.basename(os.path.dirname(path)))


def target_of(path):
    """What msg_open takes for the messages that go with `path`."""
    return mongod.with_database(mongod.shared_uri(), database_of(path)) if MONGODB else "local"


def local_only(why):
    return unittest.skipIf(MONGODB, why)


class Db:
    """A connection whose statements are always run to their end."""

    def __init__(self, path, node=None, options=None, **how):
        self.path = path
        self.con = connect(path, **how)
        if node or options or (MONGODB and how.get("load", True)):
            self.open(node, options)

    def open(self, node=None, options=None):
        """msg_open on the store under test; the sender id."""
        options = dict(options or {})
        if LAYOUT:
            options.setdefault("layout", LAYOUT)
        if node:
            options["sender_id"] = node
        return self.one("SELECT msg_open(?, ?)", target_of(self.path), json.dumps(options))

    def rows(self, sql, *args):
        return self.con.execute(sql, args).fetchall()

    def column(self, sql, *args):
        return [row[0] for row in self.rows(sql, *args)]

    def one(self, sql, *args):
        rows = self.rows(sql, *args)
        return rows[0][0] if rows else None

    def dicts(self, sql, *args):
        cursor = self.con.execute(sql, args)
        names = [d[0] for d in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    # The verbs the tests use most; options as a dict.
    def send(self, topic, value=None, **options):
        return self.one("SELECT msg_send(?, ?, ?)", topic, value, json.dumps(options))

    def enqueue(self, topic, value=None, **options):
        return self.one("SELECT msg_enqueue(?, ?, ?)", topic, value, json.dumps(options))

    def wait(self, topic=None, timeout_ms=0):
        """The next message as a dict, or None."""
        got = self.one("SELECT msg_await(?, ?)", topic, timeout_ms)
        return None if got is None else json.loads(got)

    def values(self, topic=None, timeout_ms=0, most=1000):
        """The values of everything msg_await has now."""
        return self.column("SELECT value FROM msg_await(?, ?, ?)", topic, timeout_ms, most)

    def claim(self, topic, lease_ms=30000, wait_ms=0):
        got = self.one("SELECT msg_claim(?, 1, ?, ?)", topic, lease_ms, wait_ms)
        return None if got is None else json.loads(got)

    def claims(self, topic, count=1000, lease_ms=30000, wait_ms=0):
        return self.dicts("SELECT * FROM msg_claim(?, ?, ?, ?)", topic, count, lease_ms, wait_ms)

    def state(self, id):
        return self.one("SELECT state FROM msg_messages WHERE id = ?", id)

    def dump(self):
        """The whole database as text, the messages included."""
        plain = connect(self.path, load=False)
        try:
            return "\n".join([*plain.iterdump(), *self.dump_mongodb()])
        finally:
            plain.close()

    def dump_mongodb(self):
        if MONGODB:
            with mongod.Admin(mongod.shared_uri()) as admin:
                name = database_of(self.path)
                for collection in admin.collections(name):
                    yield "%s %s" % (collection, admin.find(name, collection, exact=True))

    def interrupt(self):
        try:
            self.con.interrupt()
        except sqlite3.ProgrammingError:  # closed
            pass

    def close(self):
        self.con.close()


class Worker:
    """A process of its own with one connection. `start` and `result` split a call that waits."""

    def __init__(self, path, node=None, options=None, **how):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid
        self.buffer = b""
        self.start({"open": path, "node": node, "options": options, "how": how})
        self.result()

    def start(self, sql, *args):
        request = sql if isinstance(sql, dict) else {"sql": sql, "args": args}
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

    def result(self, timeout_s=PATIENCE_S):
        end = time.monotonic() + timeout_s
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the worker did not answer")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                raise EOFError("the worker is gone")
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise getattr(sqlite3, answer["class"], RuntimeError)(answer["error"])
        return answer["rows"]

    def rows(self, sql, *args):
        self.start(sql, *args)
        return self.result()

    def one(self, sql, *args):
        rows = self.rows(sql, *args)
        return rows[0][0] if rows else None

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.process.stdout.close()


class Background:
    """fn() in a thread; `result` gives what it returned, or raises what it raised."""

    started = []

    def __init__(self, fn, *args):
        self.value = self.error = None
        self.seconds = None
        self.thread = threading.Thread(target=self.run, args=(fn, args), daemon=True)
        self.thread.start()
        Background.started = Background.running() + [self]

    @staticmethod
    def running():
        return [b for b in Background.started if b.thread.is_alive()]

    def run(self, fn, args):
        begin = time.monotonic()
        try:
            self.value = fn(*args)
        except BaseException as error:  # handed to whoever asks
            self.error = error
        self.seconds = time.monotonic() - begin

    def result(self, timeout_s=PATIENCE_S):
        self.thread.join(timeout_s)
        if self.thread.is_alive():
            raise TimeoutError("the thread did not end")
        if self.error:
            raise self.error
        return self.value


def until(fn, timeout_s=PATIENCE_S):
    """fn() until it gives something true, which is returned."""
    end = time.monotonic() + timeout_s
    while True:
        got = fn()
        if got:
            return got
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.01)


class Case(unittest.TestCase):
    """A temp directory a test; what is opened through it is closed at the end."""

    longMessage = True
    maxDiff = None

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="msg-test-")
        self.addCleanup(shutil.rmtree, self.directory, True)
        self.path = os.path.join(self.directory, "t.db")
        self.dbs = []
        if MONGODB:
            os.environ["MSG_TARGET"] = target_of(self.path)  # of hosts that open nothing
            self.addCleanup(os.environ.pop, "MSG_TARGET")
            self.addCleanup(self.drop_database)

    def drop_database(self):
        with mongod.Admin(mongod.shared_uri()) as admin:
            admin.run(database_of(self.path), {"dropDatabase": 1})

    def db(self, node=None, options=None, path=None, **how):
        db = Db(path or self.path, node, options, **how)
        self.dbs.append(db)
        self.addCleanup(db.close)
        self.addCleanup(self.end_threads)
        return db

    def end_threads(self):
        """After a test that failed, threads may still wait: Python's sqlite3 crashes when closed under them."""
        while Background.running():
            for db in self.dbs:
                db.interrupt()
            time.sleep(0.02)

    def worker(self, node=None, options=None, path=None, **how):
        worker = Worker(path or self.path, node, options, **how)
        self.addCleanup(worker.process.stdin.close)
        self.addCleanup(worker.process.stdout.close)
        self.addCleanup(worker.kill)
        return worker

    def plain(self, **how):
        """A connection without the extension."""
        con = connect(self.path, load=False, **how)
        self.addCleanup(con.close)
        return con

    def assertFails(self, text, fn, *args, kind=sqlite3.Error):
        """fn(*args) raises, and its text holds `text`; returns the whole text."""
        with self.assertRaises(kind) as caught:
            fn(*args)
        self.assertIn(text, str(caught.exception))
        return str(caught.exception)


def serve():
    db = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "open" in request:
                db = Db(request["open"], request["node"], request["options"], **request["how"])
                answer = {"rows": []}
            else:
                answer = {"rows": db.rows(request["sql"], *request["args"])}
        except Exception as error:
            answer = {"error": str(error), "class": type(error).__name__}
        print(json.dumps(answer), flush=True)


def main():
    if MONGODB and not mongod.shared_uri():
        print("SKIPPED: no MongoDB")
        sys.exit(SKIPPED)
    unittest.main(verbosity=1)


if __name__ == "__main__":
    serve()
