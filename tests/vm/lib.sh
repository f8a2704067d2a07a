# What the steps share. A step runs as root, with the machine's disk at /disk.
set -u
export PATH=/bin FOURPLANE_STATE=/disk/state TZ=UTC NO_COLOR=1
mkdir -p /disk/work && cd /disk/work && chmod 777 .

# expect NAME ACTUAL EXPECTED: one test.
expect() {
  if [ "$2" = "$3" ]; then echo "test $1 ... ok"; return; fi
  echo "$1: got '$2', not '$3'"
  echo "test $1 ... FAILED"
}

# until_says EXPECTED COMMAND...
until_says() {
  local expected=$1 tries=0; shift
  until [ "$("$@")" = "$expected" ]; do
    tries=$((tries + 1))
    if [ $tries = 60 ]; then echo "never said '$expected': $*"; return; fi
    usleep 200000
  done
}

code() { "$@" >/dev/null 2>&1; echo $?; }
up() { fourplane up --detach --allow-root --cores 8 "$@" >/tmp/banner || cat "$FOURPLANE_STATE/server.log"; }
submit() { fourplane run --parsable -o /dev/null "$@"; }
show() { fourplane jobs "$1" --json; }
state() { show "$1" | sed 's/.*"state":"\([a-z-]*\)".*/\1/'; }

# How a job ended, and how each of its tries did, oldest first.
kinds() { grep -o '"outcome":{"kind":"[a-z-]*' | cut -d '"' -f 6 | xargs; }
outcome() { show "$1" | sed 's/"tries":.*//' | kinds; }
tries() { show "$1" | sed 's/.*"tries"://' | kinds; }

# work LANE N: submits job N of a lane under its own key. It exits with N % 5.
work() { submit --idempotency-key "$1-$2" -- sh -c "sleep 0.$(($2 % 4)); exit $(($2 % 5))"; }
