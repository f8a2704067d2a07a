# Work in three lanes, LIMIT jobs each: what is acknowledged here must be found after the machine's end.
up
again=$(submit -- sh -c '[ "$FOURPLANE_ATTEMPT" = 2 ] || sleep 600')
once=$(submit --no-requeue -- sleep 600)
until_says running state "$again"
until_says running state "$once"
echo "acked again $again 0"
echo "acked once $once 125"

lane() {
  local n=0 id
  while [ $n -lt "$LIMIT" ]; do
    id=$(work "$1" $n) && echo "acked $1-$n $id $((n % 5))"
    n=$((n + 1))
  done
}
for name in a b c; do lane $name & done
wait
