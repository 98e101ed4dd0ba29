"""What was handed out is marked behind it: what comes again, and what does not."""
import json

from harness import OwnServer, main, until

ALL = "SELECT value FROM msg_await('news', ?, 1000)"


class Seen(OwnServer):
    def setUp(self):
        super().setUp()
        self.sender = self.db("sender")

    def send(self, n, life_ms=600000):
        self.sender.rows("""INSERT INTO msg_messages(topic, value, ttl) WITH RECURSIVE c(i) AS
                            (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < ? - 1)
                            SELECT 'news', i, ? FROM c""", n, life_ms)

    def reader(self, node, **options):
        worker = self.worker(node, options)
        worker.one("SELECT msg_listen('news')")
        return worker

    @staticmethod
    def values(worker, wait_ms=0):
        return [value for (value,) in worker.rows(ALL, wait_ms)]

    def no_marks(self):
        self.fail_point("alwaysOn", failCommands=["update"], errorCode=2)

    def processed_by(self):
        return [m["processed_by"] for m in self.find({"topic": "news"})]

    def test_again_after_a_kill(self):
        reader = self.reader("reader")
        self.no_marks()
        self.send(3)
        self.assertEqual(self.values(reader, 10000), [0, 1, 2])
        self.assertEqual(self.values(reader), [])
        reader.kill()
        self.fail_point("off")
        self.assertEqual(self.values(self.reader("reader")), [0, 1, 2])

    def test_not_again_after_an_orderly_close(self):
        for close in (lambda w: w.close(), lambda w: w.one("SELECT msg_close('reader')")):
            reader = self.reader("reader")
            self.send(20)
            self.assertEqual(self.values(reader, 10000), list(range(20)))
            close(reader)
            self.assertEqual(self.values(self.reader("reader")), [])
            self.admin.delete(self.database, "msg", {})

    def test_processes_that_share_an_id(self):
        """Each may get what the other gets at the same time; what is marked, nobody."""
        readers = [self.reader("shared") for _ in range(2)]
        self.send(60)
        got = [self.values(r, 10000) for r in readers]
        self.assertEqual(sorted({v for values in got for v in values}), list(range(60)))
        for values in got:
            self.assertEqual(len(values), len(set(values)))
        until(lambda: self.processed_by() == [["shared"]] * 60)
        self.assertEqual(self.values(self.reader("shared")), [])

    def test_one_mark_for_all_nodes_of_a_process(self):
        nodes = [self.db("n-%02d" % i) for i in range(10)]
        for n in nodes:
            n.one("SELECT msg_listen('news')")
        self.no_marks()
        self.send(2)
        for n in nodes:
            self.assertEqual([n.wait("news", 10000)["value"] for _ in range(2)], [0, 1])
        self.fail_point("off")
        until(lambda: [sorted(by) for by in self.processed_by()] ==
              [["n-%02d" % i for i in range(10)]] * 2)

    def test_a_mark_whose_outcome_is_unknown(self):
        n = self.db("n")
        n.one("SELECT msg_listen('news')")
        for how in ({"writeConcernError": {"code": 64, "errmsg": "slow"}}, {"errorCode": 91},
                    {"closeConnection": True}):
            self.fail_point({"times": 1}, failCommands=["update"], **how)
            self.send(1)
            self.assertEqual(n.wait("news", 10000)["value"], 0)
            until(lambda: self.processed_by() == [["n"]])
            self.assertIsNone(n.wait("news", 500))
            self.admin.delete(self.database, "msg", {})

    def test_so_many_without_a_mark_that_a_look_waits(self):
        count = 6500
        self.send(count)
        reader = self.reader("reader", write_timeout_ms=2000)
        self.no_marks()
        got = []
        with self.assertRaisesRegex(Exception, "cannot be written"):
            while len(got) < count:
                got += self.values(reader)
        self.assertLess(len(got), count)
        self.fail_point("off")
        until(lambda: [got.extend(self.quietly(reader)), len(got) >= count][1])
        self.assertEqual(sorted(got), list(range(count)))

    def quietly(self, reader):
        """What is there, while the marker may still have its way."""
        try:
            return self.values(reader)
        except Exception as e:
            self.assertIn("cannot be written", str(e))
            return []


if __name__ == "__main__":
    main()
