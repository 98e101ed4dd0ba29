"""mongod.py - MongoDB servers for tests: found or fetched, started, and gone when their user is.

  mongod.py fetch                        print the path of a mongod, fetched when there is none
  mongod.py run [CLUSTER] -- COMMAND...  run COMMAND with MSG_TEST_MONGODB_URI set
  mongod.py serve [CLUSTER] [--port N]   print the URI; serve until interrupted
  mongod.py fixture-start FILE           one node for the caller's life; its URI into FILE
  mongod.py fixture-stop FILE
  mongod.py available FILE TEST...       without URI in FILE: 77, and the tests that did not run;
                                         FILE none: there is no adapter
CLUSTER: --nodes N (1), --standalone, --data FOLDER (else in memory, where there is room)

The server is that of $MSG_TEST_MONGODB_URI, else a new one of the mongod that mongod_fetch finds.
Clusters need the build's host_admin (MSG_BUILD). As module: Cluster, Admin and what tests need.
"""
import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

from mongod_cluster import Admin, Cluster, CommandError, free_ports, plain  # noqa: F401
from mongod_fetch import Unavailable, binary

SKIPPED = 77


# ---- for tests -------------------------------------------------------------------------------


def shared_uri():
    """The URI, without a database, of the server that the tests of a run share, or None."""
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


def janitor(folder):
    """Removes the folder when nobody holds our input any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdin.buffer.read()
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.1)  # a killed server may still be writing


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
    state = {"why": "the extension was built without it (no libmongoc, or MSG_MONGODB=OFF)"}
    if path != "none":
        with open(path) as f:
            state = json.load(f)
    if "uri" in state:
        return 0
    print("NO MONGODB: %s\nLeft out, but for what needs no server (%d tests):" % (state["why"], len(tests)))
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
    parser.add_argument("--data")
    parser.add_argument("rest", nargs="*")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    a = parser.parse_args(words[:end])
    try:
        if a.verb in ("run", "serve"):
            cluster = Cluster(a.nodes, a.standalone, a.port, data=a.data)
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
