# The wall clock steps by hours while jobs run: time in the log goes on as the machine counts it.
up
step() { date -s "@$(($(date +%s) + $1 * 3600))" >/dev/null; }

# at ID FIELD: a time of the job's last try, in seconds.
at() { date -d "$(show "$1" | sed "s/.*\"$2\":\"\([^T]*\)T\([^.Z]*\).*/\1 \2/")" +%s; }

# took ID LEAST MOST: whether it ran so many seconds; the start of the machine's second counts too.
took() { local s=$(($(at "$1" ended) - $(at "$1" started))); [ $s -ge "$2" ] && [ $s -le "$3" ] && echo yes || echo $s; }

first=$(submit -- sleep 6)
limited=$(submit --time 5s --grace 1s -- sleep 600)
until_says running state "$first"
until_says running state "$limited"
step -3
back=$(submit -- sleep 2)
expect "a job runs after a step back" "$(code fourplane wait "$back")" 0
step 8
forward=$(submit -- true)
expect "a job runs after a step forward" "$(code fourplane wait "$forward")" 0
fourplane wait "$first" "$limited" >/dev/null 2>&1

expect "a job keeps its duration over both steps" "$(took "$first" 6 8)" yes
expect "a job keeps its duration after a step back" "$(took "$back" 2 4)" yes
expect "a time limit is not moved" "$(outcome "$limited") $(took "$limited" 5 8)" "time-limit yes"
expect "time in the log did not jump" "$([ $(($(at "$forward" ended) - $(at "$first" started))) -lt 60 ] && echo yes)" yes
times=$(fourplane jobs --all --json | grep -o '"submitted":"[^".Z]*')
expect "time in the log never went back" "$times" "$(echo "$times" | sort -r)"
expect "the log is whole" "$(code fourplane audit verify)" 0
