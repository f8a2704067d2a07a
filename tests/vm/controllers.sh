# A machine with cgroups v2 and nothing else.
up
cat /tmp/banner
submit -- sh -c 'cat /proc/self/cgroup; cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/cpu.max'
fourplane wait 1
cat *.out
show 1
fourplane wait 1
fourplane run --mem 32MiB -- tail /dev/zero
echo $?
fourplane run -- sh -c 'kill -9 $$'
echo $?
state 1
outcome 2
tries 2
outcome 3
free
su ann -c 'fourplane run -o /tmp/x -- id'
