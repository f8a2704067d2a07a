# The host cuts the power somewhere in here.
LIMIT=100000
. /tests/load.sh
