"""Bad input gives exactly the error of bad_input.txt, outside and inside a transaction, and changes nothing."""
import os
import re
import sqlite3
import sys

import support

CASES_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bad_input.txt")


def read_cases():
    """(fixture, statement, error) of every case."""
    fixture, statement, found = None, [], []
    with open(CASES_FILE, encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line.startswith("@ "):
                fixture = line[2:]
            elif line.startswith("! "):
                found.append((fixture, "\n".join(statement), line[2:]))
                statement = []
            elif line and not line.startswith("#"):
                statement.append(line)
    return found


class BadInput(support.Case):
    admin = None

    def setUp(self):
        super().setUp()
        a = support.Db(self.path, "setup")
        a.enqueue("work", 1, id="00000000000000000000abcd")
        a.enqueue("work", 2)
        a.send("news", 3, ttl_ms=3600000)
        a.send("private", 4, recipient="someone", ttl_ms=3600000)
        a.rows("CREATE TABLE app(x)")
        a.close()

    # Each gives a connection. What it must not change is the file.
    def plain(self):
        db = self.db("a")
        db.one("SELECT msg_listen('news')")
        return db

    def closed(self):
        db = self.db("closed")
        db.rows("SELECT count(*) FROM msg_messages")
        db.one("SELECT msg_close('closed')")
        db.one("""SELECT msg_open('local', '{"sender_id":"a"}')""")
        return db

    def query_only(self):
        db = self.db("a")
        db.rows("PRAGMA query_only = ON")
        return db

    def read_only(self):
        db = support.Db("file:%s?mode=ro" % self.path, uri=True)
        self.addCleanup(db.close)
        return db

    def read_only_without_messages(self):
        os.remove(self.path)
        sqlite3.connect(self.path).execute("CREATE TABLE app(x)").connection.close()
        return self.read_only()

    def missing_table(self):
        plain = sqlite3.connect(self.path)
        plain.execute("DROP TABLE msg_store_message")
        plain.commit()
        plain.close()
        return self.db("a")

    def newer_version(self):
        plain = sqlite3.connect(self.path)
        plain.execute("UPDATE msg_store SET version = 99")
        plain.commit()
        plain.close()
        return self.db()

    def small_limit(self):
        db = self.db("a")
        db.one("SELECT msg_listen('news')")
        if not hasattr(db.con, "setlimit"):
            self.skipTest("this Python cannot set limits")
        db.con.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100000)
        return db

    def untrusted_schema(self):
        db = self.db("a")
        db.rows("CREATE VIEW view_of_claim AS SELECT msg_claim('work')")
        db.rows("CREATE TRIGGER app_sends AFTER INSERT ON app BEGIN SELECT msg_send('t', new.x); END")
        db.rows("PRAGMA trusted_schema = OFF")
        return db

    def content(self):
        plain = sqlite3.connect(self.path)
        try:
            return [*plain.iterdump(), *self.documents()]
        finally:
            plain.close()

    def documents(self):
        if not support.MONGODB:
            return []
        if not self.admin:
            self.admin = support.mongod.Admin(support.mongod.shared_uri())
            self.addCleanup(self.admin.close)
        return self.admin.find(support.database_of(self.path), "msg", exact=True)

    def error_of(self, db, sql):
        try:
            rows = db.rows(sql)
        except sqlite3.Error as error:
            text = str(error).replace(self.directory, "<dir>")
            return re.sub("lane '(msg_)?dm_", "lane '", text)  # named by the layout
        return "no error, but %r" % rows

    def end(self, db, end, error):
        """On MongoDB the COMMIT may be what fails, and the transaction is over."""
        try:
            db.rows(end)
        except sqlite3.Error as late:
            if not support.MONGODB or not error.startswith("no error"):
                raise
            return str(late)
        return error

    def check(self, fixture, cases):
        db = getattr(self, fixture.replace(" ", "_"))()
        got = []
        for sql, wanted in cases:
            before = self.content()
            for begin, end in (("", ""), ("BEGIN", "COMMIT")):
                if begin:
                    db.rows(begin)
                error = self.error_of(db, sql)
                if end and db.con.in_transaction:
                    error = self.end(db, end, error)
                got.append(error)
                if not os.environ.get("MSG_UPDATE"):
                    with self.subTest(fixture=fixture, sql=sql, begin=begin):
                        self.assertEqual(error, wanted)
            if os.environ.get("MSG_UPDATE"):
                if self.content() != before:
                    print("something was changed by", sql)
            else:
                with self.subTest(fixture=fixture, sql=sql):
                    self.assertEqual(self.content(), before, "something was changed")
        return got[::2]

    def fixture(self, name):
        cases = [(sql, error) for fixture, sql, error in read_cases() if fixture == name]
        self.assertTrue(cases, "no cases")
        return self.check(name, cases)

    def test_a_refused_connection_string_shows_no_password(self):
        """With MongoDB and without it."""
        db = self.db("a")
        for target in ("mongodb://user:s3cret@host", "mongodb://user:s3cret@host/",
                       "mongodb://user:s3/cret@host/db", "mongodb://user:s3cret/db",
                       "mongodb://user:s3c@ret@host/db", "mongodb+srv://user:s3cret@host/db",
                       "mongodb://user:s3cret@host:port/db", "mongodb://user:s3%zzcret@host/db",
                       "mongodb://user:s3cret@/db", "mongodb:user:s3cret@host/db"):
            with self.subTest(target=target):
                error = self.error_of(db, "SELECT msg_open('%s')" % target)
                self.assertRegex(error, "^msg: (INVALID|UNSUPPORTED): target 'mongodb'")
                self.assertNotRegex(error, "s3|cret")

    def test_plain(self):
        self.fixture("plain")

    def test_closed(self):
        self.fixture("closed")

    @support.local_only("the file is the store")
    def test_query_only(self):
        self.fixture("query only")

    @support.local_only("the file is the store")
    def test_read_only(self):
        self.fixture("read only")

    @support.local_only("the file is the store")
    def test_read_only_without_messages(self):
        self.fixture("read only without messages")

    @support.local_only("the file is the store")
    def test_missing_table(self):
        self.fixture("missing table")

    @support.local_only("the file is the store")
    def test_newer_version(self):
        self.fixture("newer version")

    def test_small_limit(self):
        self.fixture("small limit")

    def test_untrusted_schema(self):
        self.fixture("untrusted schema")

    def test_there_are_at_least_60_cases_and_each_is_run(self):
        cases = read_cases()
        self.assertGreaterEqual(len(cases), 60)
        self.assertEqual([sql for _, sql, error in cases if not error.strip("?") or error.startswith("no error")], [])
        self.assertEqual(len({(fixture, sql) for fixture, sql, _ in cases}), len(cases))
        for fixture in {fixture for fixture, _, _ in cases}:
            self.assertTrue(hasattr(self, "test_" + fixture.replace(" ", "_")), fixture)


def update():
    """Write the texts that come now into the file. Not a test: whoever runs it reads the difference."""
    texts = {}
    for fixture in dict.fromkeys(fixture for fixture, _, _ in read_cases()):
        case = BadInput()
        case.setUp()
        cases = [(sql, error) for name, sql, error in read_cases() if name == fixture]
        texts[fixture] = iter(case.check(fixture, cases))
        case.doCleanups()
    lines, fixture = [], None
    with open(CASES_FILE, encoding="utf-8") as file:
        for line in file.read().splitlines():
            if line.startswith("@ "):
                fixture = line[2:]
            lines.append("! " + next(texts[fixture]) if line.startswith("! ") else line)
    with open(CASES_FILE, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    if os.environ.get("MSG_UPDATE"):
        update()
        sys.exit()
    support.main()
