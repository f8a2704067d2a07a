# After a power cut or a restart. The second disk lists what was acknowledged: KEY ID EXIT.
up
tr -d '\0' </dev/vdb >/tmp/acked
id_of() { sed -n "s/^$1 \([0-9]*\) .*/\1/p" /tmp/acked; }
again=$(id_of again) once=$(id_of once)

# shellcheck disable=SC2046 # one word each
fourplane wait --timeout 60s $(cut -d ' ' -f 2 /tmp/acked) >/dev/null 2>&1
fourplane jobs --all --no-headers --limit 100000 -o id,exit >/tmp/jobs
lost=$(awk 'NR == FNR { exit_of[$1] = $2; next } !($2 in exit_of)' /tmp/jobs /tmp/acked)
expect "no acknowledged job is lost" "$lost" ""
wrong=$(awk 'NR == FNR { exit_of[$1] = $2; next } exit_of[$2] != $3 { print; print exit_of[$2] }' /tmp/jobs /tmp/acked)
expect "each ended as its program does" "$wrong" ""
expect "a running job ended with the machine and ran again" "$(tries "$again")" "node-restart success"
expect "one that may not be put back ended" "$(tries "$once")" node-restart
expect "its key still names a job" "$(work a 0)" "$(id_of a-0)"
expect "the log is whole" "$(code fourplane audit verify)" 0
expect "new jobs run" "$(code fourplane run --wait -- sh -c 'exit 9')" 9
