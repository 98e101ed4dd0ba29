"""MongoDB servers of a test's own, and commands to them."""
import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from mongod_fetch import Unavailable, binary

HERE = os.path.dirname(os.path.abspath(__file__))
START_S = 60
os.environ["MONGOC_DISABLE_SHM"] = "1"  # libmongoc's counters outlive who is killed


# ---- commands --------------------------------------------------------------------------------


class CommandError(Exception):
    def __init__(self, answer):
        super().__init__(answer["error"]["text"])
        self.code = int(plain(answer["error"].get("code", 0)))
        self.reply = answer.get("reply")


def plain(value):
    """Canonical extended JSON's numbers as Python's; everything else as it is."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        kind, text = next(iter(value.items()))
        if kind in ("$numberInt", "$numberLong"):
            return int(text)
        if kind == "$numberDouble":
            return float(text)
    return {k: plain(v) for k, v in value.items()}


class Admin:
    """tests/mongo/host_admin.c as a process: database commands as dicts of extended JSON. Any
    thread."""

    def __init__(self, uri, program=None):
        program = program or os.environ.get("MSG_HOST_ADMIN") or os.path.join(
            os.environ.get("MSG_BUILD") or "build", "tests", "bin", "host_admin")
        if not os.path.exists(program):
            raise Unavailable("%s is not built; MSG_BUILD names the build" % program)
        self.process = subprocess.Popen([program, uri], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.lock = threading.Lock()

    def exact(self, database, command):
        """The reply in canonical extended JSON. Raises CommandError."""
        line = "%s\t%s\n" % (database, json.dumps(command))
        with self.lock:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer:
            raise EOFError("host_admin is gone")
        answer = json.loads(answer)
        if "error" in answer:
            raise CommandError(answer)
        return answer

    def run(self, database, command):
        return plain(self.exact(database, command))

    def find(self, database, collection, filter=None, exact=False, **how):
        """All documents."""
        run = self.exact if exact else self.run
        cursor = run(database, {"find": collection, "filter": filter or {}, **how})["cursor"]
        found = cursor["firstBatch"]
        while plain(cursor["id"]):
            cursor = run(database, {"getMore": cursor["id"], "collection": collection})["cursor"]
            found += cursor["nextBatch"]
        return found

    def collections(self, database):
        cursor = self.run(database, {"listCollections": 1, "nameOnly": True})["cursor"]
        return sorted(c["name"] for c in cursor["firstBatch"])

    def insert(self, database, collection, *documents):
        reply = self.run(database, {"insert": collection, "documents": list(documents),
                                    "writeConcern": {"w": "majority"}})
        if "writeErrors" in reply:
            raise CommandError({"error": {"text": reply["writeErrors"][0]["errmsg"],
                                          "code": reply["writeErrors"][0]["code"]}})
        return reply["n"]

    def update(self, database, collection, filter, change, multi=False, **how):
        """The number of documents changed."""
        reply = self.run(database, {"update": collection, "updates": [
            {"q": filter, "u": change, "multi": multi, **how}]})
        return reply["nModified"]

    def delete(self, database, collection, filter):
        return self.run(database, {"delete": collection,
                                   "deletes": [{"q": filter, "limit": 0}]})["n"]

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- servers ---------------------------------------------------------------------------------


def die_with_parent():
    """In a child: SIGKILL when the thread that made it ends, however it ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def roomy():
    """A folder for data: in memory where 2 GiB are free, tests are not about disks."""
    with contextlib.suppress(OSError):
        space = os.statvfs("/dev/shm")
        if space.f_bavail * space.f_frsize >= 2 << 30 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None


class Node:
    """One mongod; `process` is None while it is down."""

    def __init__(self, cluster, port):
        self.cluster, self.port, self.process = cluster, port, None
        self.name = "127.0.0.1:%d" % port
        self.folder = os.path.join(cluster.folder, str(port))
        os.mkdir(self.folder)

    def start(self):
        args = [self.cluster.mongod, "--dbpath", self.folder, "--port", str(self.port),
                "--bind_ip", "127.0.0.1", "--nounixsocket", "--quiet",
                "--logpath", os.path.join(self.folder, "log"), "--logappend",
                # collections of tests that are over: a file a collection and index
                "--wiredTigerEngineConfigString",
                "file_manager=(close_idle_time=5,close_scan_interval=2,close_handle_minimum=500)",
                "--wiredTigerCacheSizeGB", str(self.cluster.cache_gb),
                "--setParameter", "enableTestCommands=1",
                "--setParameter", "ttlMonitorEnabled=false",  # what is over stays to be looked at
                "--setParameter", "diagnosticDataCollectionEnabled=false", *self.cluster.args]
        if self.cluster.set_name:
            args += ["--replSet", self.cluster.set_name, "--oplogSize", "128"]
        self.process = subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, preexec_fn=die_with_parent)
        self.until_listening()

    def until_listening(self):
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise Unavailable("mongod ended: %s" % self.log())
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.05)
        raise Unavailable("mongod does not listen: %s" % self.log())

    def log(self):
        with contextlib.suppress(OSError), open(os.path.join(self.folder, "log")) as f:
            return f.read()[-2000:]
        return ""

    def suspend(self):
        """SIGSTOP; returns when none of its threads runs any more."""
        self.process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + START_S
        while not all(s == "T" for s in self.thread_states()):
            if time.monotonic() > end:
                raise Unavailable("mongod does not stop")
            time.sleep(0.01)

    def thread_states(self):
        tasks = "/proc/%d/task" % self.process.pid
        for task in os.listdir(tasks):
            with contextlib.suppress(OSError), open(os.path.join(tasks, task, "stat")) as f:
                yield f.read().rpartition(")")[2].split()[0]

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        """SIGKILL, which a stopped process obeys too."""
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()
        self.process = None

    def admin(self):
        return Admin("mongodb://%s%s/?directConnection=true%s" % (
            self.cluster.credentials, self.name, self.cluster.options))


class Cluster:
    """n nodes of a replica set, or a standalone, in a temporary folder. Use as a context manager,
    from the main thread: the servers end with the thread that started them."""

    def __init__(self, nodes=1, standalone=False, port=None, args=(), options="",
                 election_ms=2000, cache_gb=0.3, data=None):
        self.mongod = binary()
        self.set_name = None if standalone else "rs0"
        self.args, self.options, self.credentials = list(args), options, ""
        self.election_ms, self.cache_gb = election_ms, cache_gb
        self.folder = tempfile.mkdtemp(prefix="msg-mongod-", dir=data or roomy())
        self.janitor = subprocess.Popen(
            [sys.executable, os.path.join(HERE, "mongod.py"), "janitor", self.folder],
            stdin=subprocess.PIPE, start_new_session=True)
        ports = [port + i for i in range(nodes)] if port else free_ports(nodes)
        self.nodes = [Node(self, p) for p in ports]

    def __enter__(self):
        try:
            for node in self.nodes:
                node.start()
            if self.set_name:
                self.initiate()
            self.primary()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for node in self.nodes:
            node.kill()
        self.janitor.stdin.close()  # it removes the folder
        self.janitor.wait()

    def initiate(self):
        config = {"_id": self.set_name,
                  "members": [{"_id": i, "host": n.name} for i, n in enumerate(self.nodes)],
                  "settings": {"electionTimeoutMillis": self.election_ms,
                               "heartbeatIntervalMillis": 500}}
        with self.nodes[0].admin() as admin:
            admin.run("admin", {"replSetInitiate": config})

    def primary(self, timeout_s=START_S):
        """The node that takes writes, waited for."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for node in self.nodes:
                if node.process and self.hello(node).get("isWritablePrimary"):
                    return node
            time.sleep(0.1)
        raise Unavailable("no primary: %s" % self.nodes[0].log())

    def hello(self, node):
        """Its own view; {} when it does not answer within 2 s."""
        with contextlib.suppress(CommandError, EOFError, OSError):
            uri = ("mongodb://%s/?directConnection=true&serverSelectionTimeoutMS=2000"
                   "&connectTimeoutMS=2000&socketTimeoutMS=2000%s" % (node.name, self.options))
            with Admin(uri) as admin:
                return admin.run("admin", {"hello": 1})
        return {}

    def until_healthy(self, timeout_s=START_S):
        """Every member is primary or secondary."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            answers = [self.hello(n) for n in self.nodes if n.process]
            if len(answers) == len(self.nodes) and all(
                    a.get("isWritablePrimary") or a.get("secondary") for a in answers):
                return
            time.sleep(0.2)
        raise Unavailable("a member does not come up")

    def uri(self, database="", **options):
        if self.set_name:
            options.setdefault("replicaSet", self.set_name)
        query = "&".join("%s=%s" % pair for pair in options.items()) + self.options
        return "mongodb://%s%s/%s?%s" % (self.credentials, ",".join(n.name for n in self.nodes),
                                         database, query.lstrip("&"))
