"""README.md and the examples of sql/, with the messages in MongoDB: what they print is the same."""
import glob
import os
import re
import subprocess
import sys

from harness import Case, main, support

sys.path.insert(1, os.path.join(support.SOURCE, "tests", "sql"))
import test_readme  # noqa: E402


def normalise(text):
    """As tests/sql/support.sh."""
    text = re.sub(r"\b[0-9a-f]{24}\b", "<id>", text)
    text = re.sub(r"\b1[0-9]{12}\b", "<time>", text)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return re.sub(r"\b[a-z0-9.-]+-sqlite3[a-z0-9.-]*-[0-9]+-[0-9]+\b", "<node>", text)


class Sql(Case):
    # Inside a writing statement, as inside BEGIN, a key sent before gives a new id (README).
    DIFFERS = {"deduplication": ("2|1", "2|2", "3|1", "3|3")}

    def test_readme(self):
        with open(os.path.join(support.SOURCE, "README.md"), encoding="utf-8") as file:
            page = test_readme.Page(file.read(), support.target_of(self.path))
        self.assertEqual("\n\n".join(page.errors), "")

    def example(self, script, name):
        """Each in a queue of its own."""
        with open(script, encoding="utf-8") as file:
            text = file.read()
        done = subprocess.run(
            [support.SQLITE3, "-batch", "-bail", "-cmd", ".load '%s'" % support.MSG_SO, "-header", "-list", name + ".db"],
            cwd=self.directory, input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, env=dict(os.environ, MSG_OPTIONS='{"queue":"%s"}' % name), timeout=100)
        return normalise(done.stdout)

    def test_examples(self):
        scripts = sorted(glob.glob(os.path.join(support.SOURCE, "sql", "examples", "*.sql")))
        self.assertGreaterEqual(len(scripts), 8)
        for script in scripts:
            name = os.path.basename(script)[:-len(".sql")]
            with open(os.path.join(support.SOURCE, "tests", "sql", "expected", name + ".out"), encoding="utf-8") as file:
                wanted = file.read()
            differs = self.DIFFERS.get(name, ())
            for local, mongodb in zip(differs[::2], differs[1::2]):
                self.assertIn(local + "\n", wanted)
                wanted = wanted.replace(local + "\n", mongodb + "\n")
            with self.subTest(example=name):
                self.assertEqual(self.example(script, name), wanted)


if __name__ == "__main__":
    main()
