"""Every example of README.md runs, and a console block prints what the page says.

Fenced blocks, by language:
  console  lines `$ COMMAND` run in bash, `sqlite> ` (continued by `   ...> `) in the shell that the last
           `$ sqlite3 ...` of the terminal opened; the other lines are the output. Ids, times and automatic sender ids
           are normalised.
  sql      runs in an empty database with msg loaded; it must not fail.
  python   runs by /usr/bin/python3; c: is compiled with -lsqlite3 and run. They must not fail.
Comments right before a block change that:
  <!-- not run: REASON -->           is left alone
  <!-- mongodb -->                   runs only where the messages are in MongoDB (mongo/test_sql.py), with SERVERS
                                     standing for the server
  <!-- continues -->                 sql: in the database of the sql block before
  <!-- terminal NAME -->             console: in a terminal of its own, kept between blocks ("1" if not named)
  <!-- terminal NAME, waits -->      the same, but its last statement ends only during the next block of another
                                     terminal
All blocks share one directory, where msg.so, build/msg.so and the repository's sql/ are found.
"""
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

SOURCE = os.environ.get("MSG_SOURCE") or os.path.dirname(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MSG_SO = os.environ.get("MSG_SO") or os.path.join(SOURCE, "build", "msg.so")
SQLITE3 = os.environ.get("SQLITE3") or "sqlite3"
SERVERS = "mongodb://db1,db2,db3/app?replicaSet=rs0"
PATIENCE_S = 60

FENCE = re.compile(r"(?:<!--\s*(?P<note>[^>]*?)\s*-->\s*\n)?^```(?P<lang>\w+)\n(?P<body>.*?)^```$",
                   re.MULTILINE | re.DOTALL)


def blocks(text):
    """(line, language, note, body) of each fenced block."""
    for found in FENCE.finditer(text):
        yield (text.count("\n", 0, found.start("lang")) + 1, found["lang"], found["note"] or "",
               found["body"])


def normalise(text):
    text = re.sub(r"\b[0-9a-f]{24}\b", "<id>", text)
    text = re.sub(r"\b1[0-9]{12}\b", "<time>", text)
    text = re.sub(r"\b[a-z0-9.-]+-sqlite3[a-z0-9.-]*-[0-9]+-[0-9]+\b", "<node>", text)
    # Shells differ: in what they call an error, in the lines of boxes, in alignment, in where they wrap cells.
    text = re.sub(r"^((Runtime|Parse) error|Error)( near line \d+)?:( in prepare,| stepping,)?", "Error:", text,
                  flags=re.MULTILINE)
    lines = []
    for line in text.strip().splitlines():
        if re.fullmatch("[┌┐└┘├┤┬┴┼╭╮╰╯╞╪╡─═ +-]+", line):
            continue
        line = re.sub(r"\s+", " ", line).strip()
        cells = [cell.replace(" ", "") for cell in re.split("[│|]", line)[1:-1]]
        if cells and not cells[0] and lines and isinstance(lines[-1], list) and len(lines[-1]) == len(cells):
            lines[-1] = [above + below for above, below in zip(lines[-1], cells)]
        else:
            lines.append(cells if line[:1] in "│|" else line)
    return "\n".join(" | ".join(line) if isinstance(line, list) else line for line in lines)


def steps(body):
    """Pairs of (kind, input) with the output lines that follow: [kind, text, output]."""
    found = []
    for line in body.splitlines():
        if line.startswith("$ "):
            found.append(["bash", line[2:], []])
        elif line.startswith("sqlite> "):
            found.append(["sql", line[8:], []])
        elif line.startswith("   ...> ") and found:
            found[-1][1] += "\n" + line[8:]
        elif not found:
            raise ValueError("output before any command: " + line)
        elif found[-1][0] == "bash" and found[-1][1].endswith("\\"):
            found[-1][1] += "\n" + line
        else:
            found[-1][2].append(line)
    return [(kind, text, "\n".join(output)) for kind, text, output in found]


class Shell:
    """A sqlite3 process; `send` a statement, `take` what it printed."""

    def __init__(self, command, directory):
        command = re.sub(r"^sqlite3\b", SQLITE3 + " -batch", command)
        self.process = subprocess.Popen("exec stdbuf -oL " + command, shell=True, cwd=directory,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True)
        self.lines = queue.Queue()
        self.sent = 0
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, statement):
        self.sent += 1
        self.process.stdin.write("%s\n.print --- end %d\n" % (statement, self.sent))
        self.process.stdin.flush()

    def take(self, n):
        output = ""
        while True:
            line = self.lines.get(timeout=PATIENCE_S)
            if line is None or line == "--- end %d\n" % n:
                return output
            output += line

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self.process.stdout.close()


class Page:
    """Runs the blocks of one text and collects what differs."""

    def __init__(self, text, mongodb=None):
        self.directory = tempfile.mkdtemp(prefix="msg-readme-")
        os.mkdir(os.path.join(self.directory, "build"))
        for name in ("msg.so", "build/msg.so"):
            os.symlink(MSG_SO, os.path.join(self.directory, name))
        os.symlink(os.path.join(SOURCE, "sql"), os.path.join(self.directory, "sql"))
        self.shells, self.waiting, self.errors = {}, None, []
        self.database = 0
        self.ran = {"console": 0, "sql": 0, "python": 0, "c": 0}
        try:
            for line, lang, note, body in blocks(text):
                if lang in self.ran and not note.startswith("not run") and (mongodb or note != "mongodb"):
                    self.ran[lang] += 1
                    body = body.replace(SERVERS, mongodb or SERVERS)
                    try:
                        getattr(self, lang)(line, note, body)
                    except (OSError, ValueError, subprocess.SubprocessError, queue.Empty) as error:
                        self.errors.append("line %d: %s: %s" % (line, type(error).__name__, error))
        finally:
            for shell in self.shells.values():
                shell.close()
            shutil.rmtree(self.directory, True)

    def compare(self, line, what, got, wanted):
        if normalise(got) != normalise(wanted):
            self.errors.append("line %d: %s\n--- printed\n%s\n--- the page says\n%s" % (
                line, what, normalise(got), normalise(wanted)))

    def command(self, line, argv, **how):
        done = subprocess.run(argv, cwd=self.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=PATIENCE_S, **how)
        if done.returncode:
            self.errors.append("line %d: ended with %d:\n%s" % (line, done.returncode, done.stdout))
        return done.stdout

    def console(self, line, note, body):
        found = re.match(r"terminal (\w+)(, waits)?$", note)
        name, waits = (found[1], bool(found[2])) if found else ("1", False)
        earlier, self.waiting = self.waiting, None
        todo = steps(body)
        for i, (kind, text, wanted) in enumerate(todo):
            if kind == "bash" and re.match(r"sqlite3\b(?!.*[<|>])(?!.*\.db +[\"'])", text):
                if name in self.shells:
                    self.shells.pop(name).close()
                self.shells[name] = Shell(text, self.directory)
            elif kind == "bash":
                self.compare(line, text, self.command(line, ["bash", "-c", text]), wanted)
            else:
                shell = self.shells[name]
                shell.send(text)
                if waits and i == len(todo) - 1:
                    self.waiting = (line, text, shell, shell.sent, wanted)
                else:
                    self.compare(line, text, shell.take(shell.sent), wanted)
        if earlier:
            line, text, shell, n, wanted = earlier
            self.compare(line, text, shell.take(n), wanted)

    def sql(self, line, note, body):
        if note != "continues":
            self.database += 1
        self.command(line, [SQLITE3, "-batch", "-bail", "-cmd", ".load '%s'" % MSG_SO,
                            "sql-%d.db" % self.database], input=body)

    def python(self, line, note, body):
        self.command(line, [sys.executable, "-c", body])

    def c(self, line, note, body):
        self.command(line, ["gcc", "-x", "c", "-", "-o", "example", "-lsqlite3"], input=body)
        self.command(line, ["./example"])


class Checker(unittest.TestCase):
    """The check itself: it accepts a true page and refuses a false one."""

    TRUE = """
```console
$ sqlite3 app.db
sqlite> .load ./msg
sqlite> PRAGMA journal_mode = WAL;
wal
sqlite> SELECT msg_enqueue('work',
   ...>        'hello');
0123456789abcdef01234567
sqlite> SELECT msg_send('no*', 1);
Runtime error: msg: INVALID: topic 'no*' holds a GLOB character: send to an exact name, listen with patterns
```
text
<!-- terminal 2, waits -->
```console
$ sqlite3 -cmd '.load ./msg' app.db
sqlite> SELECT value FROM msg_claim('later', 1, 1000, 20000);
hi
```
```console
sqlite> SELECT msg_enqueue('later', 'hi') IS NULL;
0
$ echo $((1 + 1))
2
```
```sql
SELECT msg_version();
```
<!-- not run: it would fail -->
```sql
SELECT nothing();
```
"""

    def test_a_true_page(self):
        page = Page(self.TRUE)
        self.assertEqual(page.errors, [])
        self.assertEqual(page.ran, {"console": 3, "sql": 1, "python": 0, "c": 0})

    def test_false_pages(self):
        for text in ("```console\n$ echo 1\n2\n```\n", "```sql\nSELECT nothing();\n```\n",
                     "```console\n$ sqlite3 :memory:\nsqlite> SELECT 1;\n2\n```\n",
                     "```console\n$ sqlite3 :memory:\nsqlite> SELECT 1;\n```\n",
                     "```python\nraise SystemExit(1)\n```\n"):
            self.assertEqual(len(Page(text).errors), 1, text)


class Readme(unittest.TestCase):
    def test_readme(self):
        path = os.path.join(SOURCE, "README.md")
        if not os.path.exists(path):
            self.skipTest("there is no README.md")
        with open(path, encoding="utf-8") as file:
            page = Page(file.read())
        self.assertEqual("\n\n".join(page.errors), "")
        self.assertGreater(page.ran["console"] + page.ran["sql"], 0)


if __name__ == "__main__":
    unittest.main()
