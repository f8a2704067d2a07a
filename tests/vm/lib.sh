# What the steps share. A step runs as root, with the machine's disk at /disk.
set -u
export PATH=/bin FOURPLANE_STATE=/disk/state TZ=UTC NO_COLOR=1
mkdir -p /disk/work && cd /disk/work && chmod 777 .

# expect NAME ACTUAL EXPECTED: one test.
expect() {
  [ "$2" = "$3" ] && { echo "test $1 ... ok"; return; }
  echo "not as expected: $1: '$2' instead of '$3'"
  echo "test $1 ... FAILED"
}

# until_is EXPECTED COMMAND...: waits until the command says so.
until_is() {
  local expected=$1 tries=0; shift
  until [ "$("$@")" = "$expected" ]; do
    tries=$((tries + 1)); [ $tries -lt 100 ] || { echo "never '$expected': $*"; return 1; }
    usleep 100000
  done
}

up() { fourplane up --detach --allow-root --cores 8 >/tmp/banner || cat /disk/state/server.log; }
submit() { fourplane run --parsable "$@"; }
show() { fourplane jobs "$1" --json; }
state() { show "$1" | sed 's/.*"state":"\([a-z-]*\)".*/\1/'; }

# How the job ended, and how each of its tries did, oldest first.
kinds() { grep -o '"outcome":{"kind":"[a-z-]*' | cut -d '"' -f 6 | xargs; }
outcome() { show "$1" | sed 's/"tries":.*//' | kinds; }
tries() { show "$1" | sed 's/.*"tries"://' | kinds; }
