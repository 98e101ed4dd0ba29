#!/usr/bin/env bash
# `make test` in a Debian sid chroot: the newest SQLite, libmongoc (2.x), gcc, CMake and cmocka. Root
# only. The chroot is kept in $MSG_CACHE, upgraded before each use and made anew when that fails. No
# -Werror: a new compiler's new warnings are not ours to fix on its day.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
. "$here/debian.sh"
root=$MSG_CACHE/sid
packages=(gcc libc6-dev make cmake ninja-build pkgconf libsqlite3-dev sqlite3 libcmocka-dev python3 iso-codes
  libmongoc-dev libcurl4t64 libssl3t64 openssl) # for mongod, and its tests

mkdir -p "$MSG_CACHE"
exec 9>"$MSG_CACHE/sid.lock"
flock 9

fresh() {
  rm -rf --one-file-system "$root" "$root.new"
  debootstrap --variant=minbase sid "$root.new" "$(debian_mirror)" >"$MSG_CACHE/sid-debootstrap.log" 2>&1 ||
    { tail -20 "$MSG_CACHE/sid-debootstrap.log" && return 1; }
  mv "$root.new" "$root"
}
# Debootstrap does not ask whether a mirror is up to date, so neither do upgrades.
upgrade() {
  {
    chroot "$root" apt-get -o Acquire::Check-Valid-Until=false update -q &&
      chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get -yq full-upgrade &&
      chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get -yq install --no-install-recommends "${packages[@]}" &&
      chroot "$root" apt-get clean
  } >"$MSG_CACHE/sid-upgrade.log" 2>&1
}

if [[ ! -d $root ]] || ! upgrade; then
  fresh
  upgrade || { tail -20 "$MSG_CACHE/sid-upgrade.log" && exit 1; }
fi
install -m 755 "$(/usr/bin/python3 "$source/tests/support/mongod.py" fetch)" "$root/usr/local/bin/mongod"

rm -rf --one-file-system "$root/src"
mkdir "$root/src"
tar cf - -C "$source" --exclude=./.git --exclude='./build*' . | tar xf - -C "$root/src" --no-same-owner

# The mounts live and die with the namespace.
unshare --mount --pid --fork bash -euc '
  root=$1
  mount -t proc proc "$root/proc"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/tmp"
  exec chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    MSG_REQUIRE_MONGODB="${MSG_REQUIRE_MONGODB:-}" \
    bash -euc "cd /src
      gcc --version | head -1; echo \"SQLite \$(sqlite3 --version | cut -d\" \" -f1), cmocka \$(pkg-config --modversion cmocka), libmongoc \$(pkg-config --modversion mongoc2), \$(cmake --version | head -1)\"
      make test JOBS=\$((\$(nproc) + 2)) LEAVE_OUT='"'"'slow|once'"'"'"
' bash "$root"
