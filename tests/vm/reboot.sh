# The machine restarts with jobs running and others waiting.
LIMIT=5
. /tests/load.sh
echo "end 0"
kill -TERM -1; sleep 2; kill -KILL -1; sync; reboot -f
