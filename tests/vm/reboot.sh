# The machine restarts with jobs running and others waiting.
LIMIT=5
. /tests/load.sh
echo "end 0"
reboot -f
