# The machine restarts in order, with jobs running and others waiting: first every process is told to
# end, as an init does, and the jobs do so.
LIMIT=5
. /tests/load.sh

# This one ends by itself while no server listens. It must not run again.
kept=$(submit -- sh -c 'sleep 2; [ "$FOURPLANE_ATTEMPT" = 1 ] && exit 7; exit 9')
until_says running state "$kept"
echo "acked kept $kept 7"
kill -9 "$(cat "$FOURPLANE_STATE/lock")"
sleep 5

echo "end 0"
kill -TERM -1
sleep 2
sync
reboot -f
