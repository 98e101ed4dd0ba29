"""Single sends of many threads share inserts: while one is under way the others gather."""
import threading

from harness import OwnServer, main, until

SENDERS, HELD_MS = 12, 3000


class Combine(OwnServer):
    def setUp(self):
        super().setUp()
        self.senders = [self.db("sender-%d" % i) for i in range(SENDERS)]
        for s in self.senders:
            s.one("SELECT msg_send('warm', 'up')")

    def inserts(self):
        status = self.admin.run("admin", {"serverStatus": 1})
        return status["metrics"]["commands"]["insert"]["total"]

    def held(self):
        """Inserts under way."""
        return len(self.admin.run("admin", {"currentOp": 1, "command.insert": "msg"})["inprog"])

    def test_what_comes_meanwhile_goes_with_the_next(self):
        self.admin.run("admin", {
            "configureFailPoint": "failCommand", "mode": {"times": 1},
            "data": {"failCommands": ["insert"], "blockConnection": True, "blockTimeMS": HELD_MS}})
        before = self.inserts()
        threads = [threading.Thread(target=s.send, args=("news", "x")) for s in self.senders]
        threads[0].start()
        until(lambda: self.held() == 1)
        for t in threads[1:]:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(self.inserts() - before, 2)
        self.assertEqual(len(self.find({"topic": "news"})), SENDERS)


if __name__ == "__main__":
    main()
