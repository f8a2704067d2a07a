# cgroups v2 and nothing else: limits hold, ends are told apart, and nothing is left of a job.
# What the server was started with is not what its jobs get.
ulimit -l 64; ulimit -n 4096
# Device files as of two GPUs. No driver stands behind them, so one that may be opened says so.
for n in 0 1 255; do mknod -m 666 "/dev/nvidia$n" c 195 "$n"; done
mv /dev/nvidia255 /dev/nvidiactl
up --simulate-gpus 2
expect "v2 is the only hierarchy" "$(grep -c ' cgroup ' /proc/mounts)" 0
expect "up says what enforces limits" "$(grep -o 'enforced by .*;' /tmp/banner)" "enforced by cgroups v2, GPUs confined;"

here='/sys/fs/cgroup$(cut -d : -f 3 /proc/self/cgroup)'
fourplane run --wait --cores 2 --mem 64MiB -o limits -- sh -c "cd $here && cat cpu.max memory.max pids.max"
expect "limits are set" "$(xargs <limits)" "200000 100000 67108864 4096"

fourplane run --wait -o ulimits -- sh -c 'ulimit -l; ulimit -n; ulimit -H -n'
expect "a job's own limits are not the server's" "$(xargs <ulimits)" "unlimited 1024 1048576"

# What a job says that opens each of these: two GPUs, what they share, and what any job needs.
cat >opens <<'END'
for file in nvidia0 nvidia1 nvidiactl null zero urandom ptmx; do
  (: <"/dev/$file") 2>&1 | sed 's/.*: //' | grep . || echo opened
done
END
opens() { rm -f opened; fourplane run --wait --gpus "$1" -o opened -- sh opens && xargs <opened; }
absent="No such device or address" refused="Operation not permitted"
rest="$absent opened opened opened opened"
expect "a job without a GPU opens none" "$(opens 0)" "$refused $refused $rest"
one=$(opens 1)
case $one in "$absent $refused"*) first=$absent second=$refused ;; *) first=$refused second=$absent ;; esac
expect "a job with one opens that one" "$one" "$first $second $rest"
expect "a job with both opens both" "$(opens 2)" "$absent $absent $rest"
expect "the next job in its place opens none" "$(opens 0)" "$refused $refused $rest"

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
