#!/usr/bin/env bash
# slurmbed: a real multi-node Slurm on one machine, with fake GPUs, accounting
# and REST, for tests.
# Verbs: install (as root, by apt) | up | down | status | env | conf | logs | purge
#
# Parameters (environment):
#   SB_BASE      base directory                    (default /tmp/slurmbed)
#   SB_NODES     number of GPU nodes               (default 8)
#   SB_GPUS      GPUs a node                       (default 8)
#   SB_TYPE      GPU type                          (default h100)
#   SB_LEAF      nodes a leaf switch               (default 4)
#   SB_PORT      first port of the range           (default 17000)
#   SB_EXTRA     file appended to slurm.conf       (default none)
#   SB_DB_FLUSH  innodb_flush_log_at_trx_commit    (default 2; 1 = durable)
#   SB_REST      1 = also start slurmrestd         (default 1)
#   SB_NODEPFX   node name prefix                  (default gpu)
# Run as root: several users (alice bob carol) with own uids can submit.
# Run as an ordinary user: everything runs as that user; one user only.
set -uo pipefail
BASE=${SB_BASE:-/tmp/slurmbed}; NODES=${SB_NODES:-8}; GPUS=${SB_GPUS:-8}
TYPE=${SB_TYPE:-h100}; LEAF=${SB_LEAF:-4}; PORT=${SB_PORT:-17000}
FLUSH=${SB_DB_FLUSH:-2}; REST=${SB_REST:-1}; EXTRA=${SB_EXTRA:-}
PFX=${SB_NODEPFX:-gpu}; CLUSTER=${SB_CLUSTER:-bed}
PATH=$PATH:/usr/sbin:/sbin
HOST=$(hostname -s); ME=$(id -un); ROOT=0; [ "$(id -u)" = 0 ] && ROOT=1
if [ $ROOT = 1 ]; then SUSER=slurm; DUSER=root; MUSER=mysql; RUSER=alice
else SUSER=$ME; DUSER=$ME; MUSER=$ME; RUSER=$ME; fi
ETC=$BASE/etc RUN=$BASE/run LOG=$BASE/log
export SLURM_CONF=$ETC/slurm.conf
P_CTLD=$PORT P_DBD=$((PORT+1)) P_SQL=$((PORT+2)) P_REST=$((PORT+3)) P_D0=$((PORT+10))
say() { printf '%6.2fs %s\n' "$(echo "$(date +%s.%N)-$T0" | bc)" "$*"; }
T0=$(date +%s.%N)
die() { echo "slurmbed: $*" >&2; exit 1; }

# a pid file is believed only if the process is alive and its command line
# names our base directory
alive() { local f=$RUN/$1.pid p; [ -s "$f" ] || return 1; p=$(cat "$f" 2>/dev/null); [ -r "/proc/$p/cmdline" ] || return 1
          cat "/proc/$p/cmdline" 2>/dev/null | tr "\0" " " | grep -qF "$BASE" || cat "/proc/$p/environ" 2>/dev/null | tr "\0" "\n" | grep -qF "SLURM_CONF=$SLURM_CONF"; }
stop()  { local n=$1 f=$RUN/$1.pid p; alive "$n" || { rm -f "$f"; return 0; }; p=$(cat "$f")
          kill "$p" 2>/dev/null; for _ in $(seq 100); do alive "$n" || break; sleep 0.1; done
          if alive "$n"; then kill -9 "$p"; echo "slurmbed: $n ($p) needed SIGKILL" >&2; fi; rm -f "$f"; }
# wait_for NAME SECONDS COMMAND...: until COMMAND succeeds
wait_for() { local what=$1 end=$((SECONDS+$2)); shift 2
             while [ $SECONDS -lt $end ]; do timeout 5 "$@" >/dev/null 2>&1 && return 0; sleep 0.1; done; die "timeout: $what"; }

conf() {
  mkdir -p "$ETC" "$RUN" "$LOG" "$BASE"/{dev,state,spool,db,jobs} || die "cannot make $BASE"
  chmod 755 "$BASE" "$ETC" "$RUN"; chmod 1777 "$BASE/jobs"
  # slurmd takes only character or block devices: with plain files it logs an
  # error, still counts the GPUs, but sets no CUDA_VISIBLE_DEVICES and no
  # SLURM_JOB_GPUS. Without the right to mknod a link to /dev/null serves.
  local i d; for i in $(seq 0 $((GPUS-1))); do d=$BASE/dev/nvidia$i; [ -c "$d" ] && continue
    mknod -m 666 "$d" c 195 "$i" 2>/dev/null || ln -sf /dev/null "$d"; done
  [ -s "$ETC/munge.key" ] || { head -c 1024 /dev/urandom >"$ETC/munge.key"; chmod 400 "$ETC/munge.key"; }
  [ -s "$ETC/jwt.key" ]   || { head -c 32 /dev/urandom >"$ETC/jwt.key"; chmod 600 "$ETC/jwt.key"; }
  local jwt=; [ -e /usr/lib/x86_64-linux-gnu/slurm-wlm/auth_jwt.so ] && jwt=1
  {
  cat <<C
ClusterName=$CLUSTER
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$P_CTLD
SlurmUser=$SUSER
SlurmdUser=$DUSER
AuthType=auth/munge
AuthInfo=socket=$RUN/munge.sock,cred_expire=120
CredType=cred/munge
StateSaveLocation=$BASE/state
SlurmdSpoolDir=$BASE/spool/%n
SlurmctldPidFile=$RUN/slurmctld.pid
SlurmdPidFile=$RUN/slurmd.%n.pid
SlurmctldLogFile=$LOG/slurmctld.log
SlurmdLogFile=$LOG/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
LogTimeFormat=iso8601_ms
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=5
SlurmdParameters=config_overrides
SwitchType=switch/none
MpiDefault=none
ReturnToService=1
SlurmctldTimeout=30
SlurmdTimeout=20
InactiveLimit=0
KillWait=2
MinJobAge=300
MaxJobCount=200000
MaxArraySize=100001
CompleteWait=0
JobRequeue=1
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,bf_max_job_test=1000,bf_continue,sched_interval=5,batch_sched_delay=0,default_queue_depth=500
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
TopologyPlugin=topology/tree
PreemptType=preempt/qos
PreemptMode=REQUEUE
PreemptExemptTime=00:00:00
PriorityType=priority/multifactor
PriorityDecayHalfLife=7-0
PriorityCalcPeriod=1
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=500
PriorityWeightPartition=1000
PriorityWeightQOS=5000
PriorityWeightTRES=gres/gpu=1000
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$P_DBD
AccountingStoragePass=$RUN/munge.sock
AccountingStorageTRES=gres/gpu,gres/gpu:$TYPE
AccountingStorageEnforce=associations,limits,qos,safe
AccountingStoreFlags=job_comment,job_env,job_script
GresTypes=gpu
NodeName=${PFX}[1-$NODES] NodeHostname=$HOST NodeAddr=127.0.0.1 Port=[$P_D0-$((P_D0+NODES-1))] Sockets=2 CoresPerSocket=56 ThreadsPerCore=1 RealMemory=2000000 Gres=gpu:$TYPE:$GPUS Feature=$TYPE,nvlink State=UNKNOWN
PartitionName=batch Nodes=${PFX}[1-$NODES] Default=YES MaxTime=2-00:00:00 DefaultTime=01:00:00 State=UP TRESBillingWeights=CPU=0.0,Mem=0.0,GRES/gpu=1.0 DefCpuPerGPU=14 DefMemPerGPU=245760 AllowQos=normal,low,high,gpu16
PartitionName=debug Nodes=${PFX}1 MaxTime=00:30:00 DefaultTime=00:05:00 State=UP PriorityTier=10 DefCpuPerGPU=14 DefMemPerGPU=245760
C
  [ -n "$jwt" ] && echo "AuthAltTypes=auth/jwt" && echo "AuthAltParameters=jwt_key=$ETC/jwt.key"
  [ -n "$EXTRA" ] && cat "$EXTRA"
  } >"$ETC/slurm.conf"
  echo "NodeName=${PFX}[1-$NODES] Name=gpu Type=$TYPE File=$BASE/dev/nvidia[0-$((GPUS-1))]" >"$ETC/gres.conf"
  # 22.05 has no CgroupPlugin=disabled (23.02+ has), and slurmd always loads a
  # cgroup plugin; v1 loads without touching anything when no plugin uses it
  local v; v=$(slurmd -V | sed 's/[^0-9]*\([0-9]*\)\..*/\1/')
  if [ "$v" -ge 23 ]; then echo CgroupPlugin=disabled; else printf 'CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n'; fi >"$ETC/cgroup.conf"
  { local l=1 a=1 b; while [ $a -le $NODES ]; do b=$((a+LEAF-1)); [ $b -gt $NODES ] && b=$NODES
      echo "SwitchName=leaf$l Nodes=${PFX}[$a-$b]"; l=$((l+1)); a=$((b+1)); done
    echo "SwitchName=spine Switches=leaf[1-$((l-1))]"; } >"$ETC/topology.conf"
  cat >"$ETC/slurmdbd.conf" <<C
AuthType=auth/munge
AuthInfo=socket=$RUN/munge.sock
DbdHost=$HOST
DbdAddr=127.0.0.1
DbdPort=$P_DBD
SlurmUser=$SUSER
PidFile=$RUN/slurmdbd.pid
LogFile=$LOG/slurmdbd.log
DebugLevel=info
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$P_SQL
StorageUser=slurm
StoragePass=slurmbed
StorageLoc=slurm_acct
$( [ -n "$jwt" ] && printf 'AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=%s\n' "$ETC/jwt.key" )
C
  chmod 600 "$ETC/slurmdbd.conf"; chmod 644 "$ETC"/{slurm,gres,cgroup,topology}.conf
  cat >"$ETC/my.cnf" <<C
[mysqld]
datadir=$BASE/db
socket=$RUN/mysql.sock
pid-file=$RUN/mysqld.pid
log-error=$LOG/mysqld.log
port=$P_SQL
bind-address=127.0.0.1
innodb_buffer_pool_size=512M
innodb_log_file_size=128M
innodb_lock_wait_timeout=900
innodb_flush_log_at_trx_commit=$FLUSH
skip-name-resolve
skip-log-bin
C
  if [ $ROOT = 1 ]; then
    chown $SUSER "$ETC/slurmdbd.conf" "$ETC/jwt.key" "$BASE/state"; chown $MUSER "$BASE/db"
    chmod 1777 "$RUN" "$LOG"
    local u; for u in alice bob carol; do id $u >/dev/null 2>&1 || useradd -m -s /bin/bash $u; done
  fi
}

acct() {  # accounts, users, QOS; every step is a no-op when it exists
  local s="sacctmgr -i" u
  $s add qos low,high,gpu16
  $s modify qos normal set Priority=100 MaxTRESPU=gres/gpu=32
  $s modify qos low set Priority=10 PreemptMode=requeue UsageFactor=0.5
  $s modify qos high set Priority=1000 Preempt=low MaxJobsPerUser=4
  $s modify qos gpu16 set Priority=100 GrpTRES=gres/gpu=16 MaxWall=04:00:00 Flags=DenyOnLimit
  $s add account research Description=research Organization=lab
  $s add account vision parent=research Fairshare=60 GrpTRES=gres/gpu=48
  $s add account speech parent=research Fairshare=40 GrpTRES=gres/gpu=24 GrpTRESMins=gres/gpu=100000
  if [ $ROOT = 1 ]; then
    $s add user alice Account=vision DefaultAccount=vision QOS=normal,low,high,gpu16 DefaultQOS=normal
    $s add user bob Account=speech DefaultAccount=speech QOS=normal,low DefaultQOS=normal MaxSubmitJobs=20
    $s add user carol Account=vision,speech DefaultAccount=speech QOS=normal,low,high DefaultQOS=low
    $s add user root Account=research DefaultAccount=research AdminLevel=Admin QOS=normal,low,high,gpu16
  else
    $s add user $ME Account=vision,speech DefaultAccount=vision AdminLevel=Admin QOS=normal,low,high,gpu16 DefaultQOS=normal
  fi
}

install() {
  local p='slurmctld slurmd slurmdbd slurm-client slurmrestd slurm-wlm-basic-plugins slurm-wlm-jwt-plugin munge mariadb-server jq bc'
  dpkg -s $p >/dev/null 2>&1 && return
  # The packages' own services must not start: a bed starts its own daemons.
  [ -e /usr/sbin/policy-rc.d ] || { printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT; }
  apt-get update -q && apt-get install -q -y --no-install-recommends $p || die "apt-get install"
}

up() {
  local b; for b in munged mariadbd slurmctld slurmd slurmdbd; do command -v $b >/dev/null || die "missing program: $b"; done
  conf; say "configuration written"
  alive munged || { munged --force --key-file="$ETC/munge.key" --socket="$RUN/munge.sock" --pid-file="$RUN/munged.pid" \
      --log-file="$LOG/munged.log" --seed-file="$RUN/munged.seed" || die "munged"; }
  say "munged up"
  if ! alive mysqld; then
    [ -d "$BASE/db/mysql" ] || mariadb-install-db --no-defaults --datadir="$BASE/db" --user=$MUSER \
        --auth-root-authentication-method=normal --skip-test-db >"$LOG/installdb.log" 2>&1 || die "mariadb-install-db"
    mariadbd --defaults-file="$ETC/my.cnf" --user=$MUSER >/dev/null 2>&1 &
    wait_for mariadb 60 mariadb --no-defaults -uroot -S "$RUN/mysql.sock" -e 'select 1'
    mariadb --no-defaults -uroot -S "$RUN/mysql.sock" -e "create database if not exists slurm_acct; create user if not exists slurm@'127.0.0.1' identified by 'slurmbed'; grant all on slurm_acct.* to slurm@'127.0.0.1'" || die "grant"
  fi
  say "mariadb up"
  if ! alive slurmdbd; then SLURM_CONF=$ETC/slurm.conf slurmdbd || die "slurmdbd"; fi
  wait_for "slurmdbd" 30 sacctmgr -n list cluster
  say "slurmdbd up"
  sacctmgr -i add cluster $CLUSTER >"$LOG/acct.log" 2>&1
  alive slurmctld || slurmctld || die "slurmctld"
  wait_for slurmctld 30 sh -c 'scontrol ping | grep -q "is UP"'
  say "slurmctld up"
  # gres/gpu becomes a known TRES only once slurmctld has registered it
  if [ ! -e "$ETC/.acct" ]; then
    wait_for "gres TRES" 30 sh -c "sacctmgr -nP show tres | grep -q '^gres|gpu|'"
    acct >>"$LOG/acct.log" 2>&1; touch "$ETC/.acct"
  fi
  say "accounts set"
  local i; for i in $(seq 1 $NODES); do alive slurmd.$PFX$i || { mkdir -p "$BASE/spool/$PFX$i"; slurmd -N $PFX$i || die "slurmd $PFX$i"; }; done
  say "$NODES slurmd started"
  wait_for "nodes idle" 90 sh -c "[ \$(sinfo -h -p batch -o '%D' -t idle,mix,alloc,comp -r | awk '{s+=\$1} END{print s+0}') = $NODES ]"
  say "$NODES nodes ready"
  if [ "$REST" = 1 ] && ! alive slurmrestd; then
    rm -f "$RUN/rest.sock"
    if [ $ROOT = 1 ]; then
      setpriv --reuid=$RUSER --regid=$RUSER --clear-groups env -u SLURM_JWT HOME=/ SLURM_CONF=$SLURM_CONF slurmrestd -s openapi/v0.0.38,openapi/dbv0.0.38 -a rest_auth/local unix:$RUN/rest.sock >"$LOG/restd.log" 2>&1 </dev/null &
    else
      env SLURMRESTD_SECURITY=disable_user_check slurmrestd -s openapi/v0.0.38,openapi/dbv0.0.38 -a rest_auth/local unix:$RUN/rest.sock >"$LOG/restd.log" 2>&1 </dev/null &
    fi
    echo $! >"$RUN/slurmrestd.pid"; wait_for slurmrestd 10 test -S "$RUN/rest.sock"
    say "slurmrestd up (user $RUSER, $RUN/rest.sock)"
  fi
}
down() {
  local i f; stop slurmrestd
  for f in "$RUN"/slurmd.*.pid; do [ -e "$f" ] || continue; i=${f##*/}; i=${i%.pid}; alive "$i" && kill "$(cat "$f")" 2>/dev/null; done
  for f in "$RUN"/slurmd.*.pid; do [ -e "$f" ] || continue; i=${f##*/}; stop "${i%.pid}"; done
  stop slurmctld; stop slurmdbd; stop mysqld; stop munged; say "all stopped"
}
status() {
  local n rc=0; for n in munged mysqld slurmdbd slurmctld slurmrestd; do if alive $n; then echo "$n up pid $(cat "$RUN/$n.pid")"; else echo "$n DOWN"; [ $n = slurmrestd ] || rc=1; fi; done
  local u=0; for n in $(seq 1 $NODES); do alive slurmd.$PFX$n && u=$((u+1)); done; echo "slurmd $u/$NODES"; [ $u = $NODES ] || rc=1
  alive slurmctld && { scontrol ping; sinfo; }; return $rc
}
case ${1:-} in
  install) install;; up) up;; down) down;; status) status;; conf) conf;;
  env) echo "export SLURM_CONF=$SLURM_CONF SB_REST_SOCK=$RUN/rest.sock";;
  logs) tail -n 5 "$LOG"/*.log;;
  purge) down; [ -s "$ETC/slurm.conf" ] && rm -rf -- "$BASE";;
  *) echo "usage: $0 install|up|down|status|env|conf|logs|purge"; exit 2;;
esac
