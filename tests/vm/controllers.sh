# cgroups v2 and nothing else: limits hold, ends are told apart, and nothing is left of a job.
# What the server was started with is not what its jobs get.
ulimit -l 64; ulimit -n 4096
up
expect "v2 is the only hierarchy" "$(grep -c ' cgroup ' /proc/mounts)" 0
expect "up says what enforces limits" "$(grep -o 'enforced by .*' /tmp/banner)" "enforced by cgroups v2"

here='/sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup)'
fourplane run --wait --cores 2 --mem 64MiB -o limits -- sh -c "cd $here && cat cpu.max memory.max pids.max"
expect "limits are set" "$(xargs <limits)" "200000 100000 67108864 4096"

fourplane run --wait -o ulimits -- sh -c 'ulimit -l; ulimit -n; ulimit -H -n'
expect "a job's own limits are not the server's" "$(xargs <ulimits)" "unlimited 1024 1048576"

expect "a job's exit code is its own" "$(code fourplane run --wait -- sh -c 'exit 5')" 5
big=$(submit --mem 32MiB -- tail /dev/zero)
expect "a memory kill returns 137" "$(code fourplane wait "$big")" 137
expect "a memory kill is told" "$(outcome "$big")" out-of-memory
killed=$(submit -- sh -c 'kill -9 $$')
expect "a plain SIGKILL returns 137" "$(code fourplane wait "$killed")" 137
expect "a plain SIGKILL is told" "$(outcome "$killed")" signal

mkfifo gate
# 4096 forks would take too long here, so this job lowers its own limit.
storm='n=0; while (read -r x <gate) & do n=$((n + 1)); echo $n >forked; done'
fourplane run --wait --mem 65MiB -- sh -c "echo 200 >$here/pids.max; $storm"
expect "a fork storm meets its limit" "$(cat forked)" 199

held() { fourplane nodes --json | grep -o '"cores_held":[0-9]*'; }
proof() { show "$1" | grep -o '"freed":"2' | wc -l; }
left=$(submit -- sh -c 'setsid sleep 1000 & setsid sleep 1000 & sleep 0.3; exit 3')
expect "leaving processes behind changes no end" "$(code fourplane wait "$left")" 3
until_says 1 proof "$left"
expect "what a job leaves behind is killed" "$(ps | grep -c '[s]leep 1000')" 0
expect "nothing is held afterwards" "$(held)" '"cores_held":0'

frozen=$(submit --grace 1s -- sh -c "echo 1 >$here/cgroup.freeze; sleep 1000")
until_says running state "$frozen"
fourplane cancel "$frozen"
until_says 1 proof "$frozen"
expect "a frozen job can be ended" "$(outcome "$frozen")" cancelled
expect "the next job is not frozen" "$(code fourplane wait --timeout 20s "$(submit -- true)")" 0

su ann -c 'fourplane run --wait -o who -- id -u'
expect "another user's job is that user's" "$(cat who)" 1000
