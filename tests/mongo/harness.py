"""What the MongoDB tests share: nodes by SQL on a database a test, raw documents, and Java's part
of the protocol played by threads (what Morphium 6.3 sends, in its order).
"""
import json
import os
import re
import secrets
import sys
import threading
import time

os.environ["MSG_TEST_STORE"] = "mongodb"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "hosts"))
import support  # noqa: E402
from support import mongod, until, main, Background  # noqa: E402,F401

LAYOUT = support.LAYOUT or "standard"
CLASS = "de.caluga.morphium.messaging.Msg"
IMPLEMENTATIONS = {"standard": "StandardMessaging", "multi": "MultiCollectionMessaging",
                   "dual": "DualChannelMessaging"}
STATUS_TOPIC = "morphium.status_info"
MAJORITY = {"w": "majority"}


def now_ms():
    return int(time.time() * 1000)


def long(n):
    return {"$numberLong": str(n)}


def date(ms):
    return {"$date": long(ms)}


def oid(text=None):
    return {"$oid": text or "%08x" % int(time.time()) + secrets.token_hex(8)}


# Where Morphium has things, queue msg.

def home(topic, layout=LAYOUT):
    """The collection of a topic's messages that have no recipient."""
    return folded("msg_" + topic) if layout == "multi" else "msg"


def locks(topic, layout=LAYOUT):
    return folded("msg_lck_" + topic) if layout == "multi" else "msg_lck"


def lane(node, layout=LAYOUT):
    """The collection of what is for that node alone; standard has none."""
    first, *rest = node.lower().split("_")
    return {"multi": "dm_", "dual": "msg_dm_"}[layout] + first + "".join(map(str.capitalize, rest))


def folded(name):
    return re.sub(r"[\s/-]", "", name).replace(".", "_")


def java_message(topic, **fields):
    """A message as Morphium's send writes it: all 21 fields, its types."""
    ttl, now = fields.pop("ttl_ms", 60000), now_ms()
    message = {
        "_id": oid(), "class_name": CLASS, "topic": topic, "name": topic, "msg": "text",
        "value": None, "map_value": None, "additional": None,
        "sender": "Java_Sender", "sender_host": "javahost",
        "recipients": None, "in_answer_to": None, "processed_by": [], "exclusive": False,
        "priority": {"$numberInt": "1000"}, "timestamp": long(now), "ttl": long(ttl),
        "timing_out": ttl > 0, "delete_at": date(now + ttl) if ttl else None,
        "delete_after_processing": False, "delete_after_processing_time": {"$numberInt": "0"}}
    message.update(fields)
    return message


# Fields that a message of ours has beside Morphium's.
OURS = {"sq"}


def kind(value):
    """The BSON type of a canonical value."""
    if isinstance(value, dict):
        first = next(iter(value), "")
        return first if len(value) == 1 and first.startswith("$") else "document"
    return {bool: "bool", str: "string", list: "array", type(None): "null"}[type(value)]


def golden(name):
    """A document of a real Morphium 6.3.6; its times moved to now."""
    with open(os.path.join(HERE, "golden", name + ".json")) as f:
        document = json.load(f)
    if isinstance(document, dict) and "timestamp" in document:
        shift = now_ms() - mongod.plain(document["timestamp"])
        document["timestamp"] = long(now_ms())
        if document["delete_at"]:
            document["delete_at"] = date(mongod.plain(document["delete_at"])["$date"] + shift)
    return document


class Case(support.Case):
    """A database a test; `admin` sees and writes its documents."""

    def setUp(self):
        super().setUp()
        self.database = support.database_of(self.path)
        self.admin = mongod.Admin(mongod.shared_uri())
        self.addCleanup(self.admin.close)

    def find(self, filter=None, collection="msg", **how):
        return self.admin.find(self.database, collection, filter, **how)

    def document(self, id, exact=True):
        found = self.find({"_id": oid(id)}, exact=exact)
        return found[0] if found else None

    def insert(self, *documents, collection="msg"):
        self.admin.insert(self.database, collection, *documents)

    def update(self, id, change):
        return self.admin.update(self.database, "msg", {"_id": oid(id)}, change)

    def java(self, id, **how):
        node = JavaNode(self.database, id, **how)
        self.addCleanup(node.stop)
        return node


class OwnServer(Case):
    """The tests of the class have servers of their own, to do with as they like."""

    how = {"nodes": 1}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = mongod.Cluster(**cls.how)
        cls.cluster.__enter__()
        cls.addClassCleanup(cls.cluster.stop)
        shared = os.environ.get("MSG_TEST_MONGODB_URI")
        os.environ["MSG_TEST_MONGODB_URI"] = cls.cluster.uri()
        cls.addClassCleanup(cls.back, shared)

    def fail_point(self, mode, **data):
        """The server's point failCommand: {"times": n}, "alwaysOn" or "off"; off after the test."""
        command = {"configureFailPoint": "failCommand", "mode": mode}
        if data:
            command["data"] = data
            self.addCleanup(self.fail_point, "off")
        self.admin.run("admin", command)

    @staticmethod
    def back(shared):
        os.environ.pop("MSG_TEST_MONGODB_URI")
        if shared:
            os.environ["MSG_TEST_MONGODB_URI"] = shared


class JavaNode:
    """Morphium's node by polling, without its waits, of the layout under test. `owned` and `got`
    are what its listeners saw: exclusive messages by the lock, others by their mark. order:
    "standard" marks before the listener, "multi" after it, and unlocks without looking at the
    owner. may_go(node): asked before each message."""

    def __init__(self, database, id, topics=(), order=None, work_s=0.0, answer=None,
                 may_go=lambda node: True):
        self.database, self.id, self.topics = database, id, [*topics, STATUS_TOPIC]
        self.order = order or ("multi" if LAYOUT == "multi" else "standard")
        self.work_s, self.answer, self.may_go = work_s, answer, may_go
        self.admin = mongod.Admin(mongod.shared_uri())
        self.owned, self.got, self.answers, self.handled = [], [], {}, set()
        self.paused = False
        self.stopping = threading.Event()
        self.thread = None
        self.error = None

    # -- its loop

    def start(self):
        self.announce()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def run(self):
        try:
            while not self.stopping.is_set():
                if not self.may_go(self) or not self.poll():
                    self.stopping.wait(0.02)
        except Exception as error:
            self.error = error

    def stop(self):
        self.stopping.set()
        if self.thread:
            self.thread.join(30)
            self.thread = None
        if self.admin:
            self.admin.close()
            self.admin = None
        if self.error:
            raise self.error

    def poll(self):
        """One poll and what follows it; how many candidates it had. Section 4.5 of the format."""
        return sum(self.poll_one(*place) for place in self.places())

    def places(self):
        """(collection, filter) of each poll."""
        listened = {"$or": [{"topic": {"$in": self.topics}}, {"name": {"$in": self.topics}},
                            {"in_answer_to": {"$ne": None}}]}
        exclusive = {"exclusive": True, "processed_by.0": {"$exists": False}}
        others = {"exclusive": {"$ne": True}, "processed_by": {"$ne": self.id}}
        free = {"sender": {"$ne": self.id}, "$or": [exclusive, others]}
        to_me = {"recipients": {"$in": [None, self.id]}}
        if LAYOUT == "multi":
            yield from ((home(topic), free) for topic in self.topics)
        else:
            yield "msg", {"$and": [to_me, listened, free]}
        if LAYOUT != "standard":
            yield lane(self.id), {"$and": [{"processed_by.0": {"$exists": False}}, listened]}

    def poll_one(self, collection, filter):
        candidates = self.admin.find(
            self.database, collection, filter, projection={"_id": 1, "priority": 1, "timestamp": 1},
            sort={"priority": 1, "timestamp": 1}, limit=100, singleBatch=True)
        for candidate in candidates:
            if self.stopping.is_set() or not self.may_go(self):
                break
            self.check(candidate)
            message = self.read(collection, candidate["_id"])
            if message and not self.expired(collection, message):
                self.take(collection, message)
        return len(candidates)

    def check(self, candidate):
        if not isinstance(candidate["timestamp"], (int, float)) or "$oid" not in candidate["_id"]:
            raise ValueError("P1/P2: %s breaks every poll of a Java node" % candidate)

    def read(self, collection, id):
        found = self.admin.find(self.database, collection, {"_id": id})
        return found[0] if found else None

    def expired(self, collection, m):
        """An expired message is deleted by who reads it."""
        if m.get("in_answer_to") or not m.get("timing_out", True):
            return False
        if m.get("ttl", 0) >= now_ms() - m.get("timestamp", 0):
            return False
        self.admin.delete(self.database, collection, {"_id": m["_id"]})
        return True

    def take(self, collection, m):
        in_lane = LAYOUT != "standard" and collection == lane(self.id)
        if m.get("exclusive") and not in_lane:
            self.take_exclusive(collection, m)
        elif json.dumps(m["_id"]) not in self.handled:
            self.handled.add(json.dumps(m["_id"]))
            self.listener(m, self.owned if m.get("exclusive") else self.got)
            self.mark(collection, m["_id"])

    # -- exclusive

    def lock(self, m):
        until_ms = m["delete_at"]["$date"] if m.get("delete_at") else now_ms() + 7 * 86400000
        try:
            self.admin.insert(self.database, locks(m["topic"]), {
                "_id": m["_id"], "lock_id": self.id, "delete_at": date(until_ms)})
            return True
        except mongod.CommandError:  # whatever it is: not mine
            return False

    def unlock(self, m):
        whose = {"_id": m["_id"]}
        if self.order != "multi":
            whose["lock_id"] = self.id
        self.admin.delete(self.database, locks(m["topic"]), whose)

    def take_exclusive(self, collection, m):
        if not self.lock(m):
            return
        again = self.read(collection, m["_id"])
        if again and not again.get("processed_by"):
            if self.order == "multi":
                self.listener(again, self.owned)
                self.mark(collection, m["_id"])
            elif self.mark(collection, m["_id"]):
                self.listener(again, self.owned)
        self.unlock(m)

    def mark(self, collection, id):
        """Section 4.6: where nothing is added, null may be why."""
        try:
            if self.update(collection, {"_id": id}, {"$addToSet": {"processed_by": self.id}}):
                return True
        except mongod.CommandError:
            pass
        m = self.read(collection, id)
        return not m or self.id in (m.get("processed_by") or []) or self.update(
            collection, {"_id": id, "processed_by": None}, {"$set": {"processed_by": [self.id]}})

    def update(self, collection, filter, change):
        return self.admin.update(self.database, collection, filter, change)

    # -- its listener

    def listener(self, m, record):
        record.append(m)
        if self.work_s:
            time.sleep(self.work_s)
        if m.get("in_answer_to"):
            self.answers.setdefault(m["in_answer_to"]["$oid"], []).append(m)
        elif self.answer:
            self.send(m["topic"], value=self.answer(m), recipients=[m["sender"]],
                      in_answer_to=m["_id"], priority={"$numberInt": str(m["priority"] - 10)})

    def send(self, topic, **fields):
        """The id."""
        message = java_message(topic, sender=self.id, **fields)
        places = {home(topic)}
        if LAYOUT != "standard" and message["recipients"]:
            places = {lane(node) for node in message["recipients"]}
        for place in places:
            self.admin.insert(self.database, place, message)
        return message["_id"]["$oid"]

    # -- participants

    def announce(self, implementation=None):
        implementation = implementation or IMPLEMENTATIONS[LAYOUT]
        self.admin.update(self.database, "msg_participants", {"_id": self.id}, {"$set": {
            "implementation": implementation, "hostname": "javahost", "started_at": long(now_ms()),
            "last_seen": long(now_ms())}}, upsert=True)
