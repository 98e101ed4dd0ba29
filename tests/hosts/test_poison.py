"""A message that always fails dies, also where every delivery is rolled back; redriven it starts anew."""
import support

AT_COMMIT = "on MongoDB a settle is done at COMMIT: what it frees is not claimed again before"
DEAD = [("dead", "max_attempts")]


class Poison(support.Case):
    def setUp(self):
        super().setUp()
        self.a = self.db("a", {"max_attempts": 3})
        self.id = self.a.enqueue("work", "poison")

    def claim(self):
        """The attempts it is claimed with; None: it is not there."""
        got = self.a.claim("work")
        return got and got["attempts"]

    def state(self):
        return self.a.rows("SELECT state, reason FROM msg_messages")

    def free(self):
        self.a.rows("DELETE FROM msg_locks")

    @support.local_only(AT_COMMIT)
    def test_claimed_and_freed_within_transactions_that_are_rolled_back(self):
        got = []
        for _ in range(4):
            self.a.rows("BEGIN")
            got.append(self.claim())
            self.free()
            got.append(self.claim())
            self.a.rows("ROLLBACK")
        self.assertEqual(got, [1, 2, 3, None, None, None, None, None])
        self.assertIsNone(self.claim())
        self.assertEqual(self.state(), DEAD)

    @support.local_only(AT_COMMIT)
    def test_claimed_within_savepoints(self):
        self.a.rows("BEGIN")
        self.assertEqual(self.claim(), 1)
        for attempts in (2, 3):
            self.a.rows("SAVEPOINT s")
            self.free()
            self.assertEqual(self.claim(), attempts)
            self.a.rows("ROLLBACK TO s")
        self.a.rows("ROLLBACK")
        self.assertIsNone(self.claim())
        self.assertEqual(self.state(), DEAD)

    def test_work_behind_much_poison(self):
        for _ in range(39):
            self.a.enqueue("work", "poison")
        for _ in range(3):
            self.a.rows("BEGIN")
            self.assertEqual(len(self.a.claims("work")), 40)
            self.a.rows("ROLLBACK")
        self.a.enqueue("work", "good")
        self.assertEqual(self.a.claim("work")["value"], "good")
        self.assertEqual(self.a.one("SELECT count(*) FROM msg_messages WHERE state = 'dead'"), 40)

    def test_some_committed_some_rolled_back(self):
        for attempts, end in ((1, "ROLLBACK"), (2, "COMMIT"), (3, "ROLLBACK")):
            self.a.rows("BEGIN")
            self.assertEqual(self.claim(), attempts)
            self.a.rows(end)
            self.free()
        self.assertIsNone(self.claim())
        self.assertEqual(self.state(), DEAD)

    def roll_back(self, *attempts):
        for n in attempts:
            self.a.rows("BEGIN")
            self.assertEqual(self.claim(), n)
            self.a.rows("ROLLBACK")

    def bury(self):
        self.roll_back(1, 2, 3)
        self.assertIsNone(self.claim())
        self.assertEqual(self.state(), DEAD)

    def test_redriven_it_starts_anew(self):
        for begin, end in ((None, None), ("BEGIN", "COMMIT")):
            self.bury()
            if begin:
                self.a.rows(begin)
            self.assertEqual(self.a.one("SELECT msg_redrive('work')"), 1)
            if begin:
                self.a.rows(end)
        self.bury()

    @support.local_only("on MongoDB a redrive acts at once, and sees no reject of its transaction")
    def test_a_redrive_that_is_rolled_back_forgets_nothing(self):
        for _ in range(2):
            self.roll_back(1, 2)
            self.a.rows("BEGIN")
            self.assertEqual(self.claim(), 3)
            self.a.one("SELECT msg_reject(?, 'bad')", self.id)
            self.assertEqual(self.a.one("SELECT msg_redrive('work')"), 1)
            self.assertEqual(self.claim(), 1)
            self.a.rows("ROLLBACK")
            self.assertIsNone(self.claim())
            self.assertEqual(self.state(), DEAD)
            self.a.rows("SELECT msg_redrive('work')")

    def test_redriven_by_another_process_it_starts_anew(self):
        self.roll_back(1, 2)
        self.a.rows("BEGIN")
        self.assertEqual(self.claim(), 3)
        self.a.one("SELECT msg_reject(?, 'bad')", self.id)
        self.a.rows("COMMIT")
        worker = self.worker("w")
        self.assertEqual(worker.one("SELECT msg_redrive('work')"), 1)
        self.bury()


if __name__ == "__main__":
    support.main()
