//! What a job's own limits (`ulimit`) are: the same for every job, whoever started the server.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Soft and hard limit of each resource that a process passes on to what it starts; none is
/// unlimited. `docs/decisions/0006-limits-of-a-job.md` says why these.
const LIMITS: [(Resource, Option<u64>, Option<u64>); 14] = [
    (Resource::As, None, None),
    (Resource::Core, Some(0), None),
    (Resource::Cpu, None, None),
    (Resource::Data, None, None),
    (Resource::Fsize, None, None),
    (Resource::Locks, None, None),
    (Resource::Memlock, None, None),
    (Resource::Msgqueue, Some(819_200), Some(819_200)),
    (Resource::Nice, Some(0), Some(0)),
    (Resource::Nofile, Some(1_024), Some(1 << 20)),
    (Resource::Nproc, None, None),
    (Resource::Rss, None, None),
    (Resource::Rtprio, Some(0), Some(0)),
    (Resource::Stack, Some(8 << 20), None),
];

/// Sets them for this process. Where it may not raise a hard limit, that stays the most.
pub(crate) fn set() -> io::Result<()> {
    for (resource, soft, hard) in LIMITS {
        if setrlimit(resource, Rlimit { current: soft, maximum: hard }).is_err() {
            let most = lower(hard, getrlimit(resource).maximum);
            setrlimit(resource, Rlimit { current: lower(soft, most), maximum: most })?;
        }
    }
    Ok(())
}

fn lower(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}
