# With cgroups v2 alone, jobs are kept from the GPUs that they were not given.

# Device files as of two GPUs. No driver stands behind them, so one that may be opened says so.
for n in 0 1 255; do mknod -m 666 "/dev/nvidia$n" c 195 "$n"; done
mv /dev/nvidia255 /dev/nvidiactl
up --simulate-gpus 2
expect "up says that GPUs are confined" "$(grep -o 'enforced by .*' /tmp/banner)" "enforced by cgroups v2, GPUs confined"

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
