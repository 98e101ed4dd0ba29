# shellcheck shell=bash
# Sourced: what the machine's own apt configuration says about Debian.

MSG_CACHE=${MSG_CACHE:-/var/cache/sqlite-msg}

# Lines "URI RELEASE COMPONENT" of the Debian archives that apt uses here.
debian_archives() {
  local lines
  lines=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' | sort -u)
  [[ -n $lines ]] || { echo "no Debian archive in apt's configuration, or no apt-get update yet" >&2 && return 1; }
  echo "$lines"
}

# The main archive's URI: the one that carries the release itself, not its updates.
debian_mirror() { debian_archives | awk '$2 !~ /-/ {print $1; exit}'; }
