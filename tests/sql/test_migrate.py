"""Moving from one file to another by sql/migrate_*.sql; tests/mongo/test_migrate.py has the other pairs."""
import os
import sys

SOURCE = os.environ.get("MSG_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(1, os.path.join(SOURCE, "tests", "support"))
import move  # noqa: E402
import support  # noqa: E402


class LocalToLocal(move.Moves, support.Case):
    def setUp(self):
        super().setUp()
        self.old = move.Side("local", path=os.path.join(self.directory, "old.db"))
        self.new = move.Side("local", path=os.path.join(self.directory, "new.db"))


if __name__ == "__main__":
    support.main()
