//! Workloads against pools and storage, and figures that contradict each other.

use units::{Bytes, BytesPerSec, GpuModel, Nanos};

use super::sums::gpus;
use super::{Rules, at};
use crate::decode::Step;
use crate::finding::Code;
use crate::model::{Cluster, EngineKind, FailureModel, Pool, Repair, Retries, RetryClass, Workload};
use crate::scalar::{FailureBasis, FailureRate};

pub(super) fn check(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    let pools = cluster.compute.as_ref().map_or(&[][..], |compute| &compute.pools);
    let pools_known = rules.is_whole(at!["compute"]) && !pools.is_empty();
    for (at, workload) in cluster.workload.iter().enumerate() {
        if pools_known {
            fits(workload, at, pools, rules);
        }
        checkpoint(cluster, workload, at, rules);
        if let Some(arrivals) = &workload.arrivals {
            spread(&arrivals.runtime, at!["workload", at, "arrivals", "runtime"], rules);
        }
    }
    if let Some(failures) = &cluster.failures {
        failure_model(failures, rules);
    }
    let has_local = cluster.engines.iter().any(|engine| engine.kind == EngineKind::Local);
    if let Some(retries) = cluster.retries.as_ref().filter(|_| has_local) {
        uncounted(retries, rules);
    }
}

/// Whether some pool has GPUs that suit, and enough of them.
fn fits(workload: &Workload, at: usize, pools: &[Pool], rules: &mut Rules<'_, '_>) {
    let Some(target) = &workload.gpus else { return };
    let suitable =
        || pools.iter().filter(|pool| pool.shape.gpu.is_some_and(|gpu| target.accept.contains(&gpu)));
    if suitable().next().is_none() {
        let message = format!("no pool has a GPU that '{}' accepts", workload.name);
        let mut have: Vec<_> = pools.iter().filter_map(|pool| pool.shape.gpu).collect();
        have.sort();
        have.dedup();
        let have: Vec<_> = have.into_iter().map(GpuModel::name).collect();
        let hint = (!have.is_empty()).then(|| format!("the pools have {}", have.join(", ")));
        return rules.report(Code::NoSuitableGpu, at!["workload", at, "gpus", "accept"], message, hint);
    }
    let largest = suitable().map(gpus).max().unwrap_or(0);
    if let Some(each) = target.each.filter(|each| u64::from(each.0) > largest) {
        let message = format!("a job takes {} GPUs; the largest pool that suits has {largest}", each.0);
        rules.report(Code::TooLargeForPools, at!["workload", at, "gpus", "each"], message, None);
    }
}

/// Whether checkpoints can be written between two and read back in time, at the storage's speed.
fn checkpoint(cluster: &Cluster, workload: &Workload, at: usize, rules: &mut Rules<'_, '_>) {
    let wanted = workload.storage.as_ref().and_then(|storage| storage.checkpoint.as_ref());
    let speed = cluster.storage.as_ref().and_then(|storage| storage.checkpoints.as_ref());
    let (Some(wanted), Some(speed)) = (wanted, speed) else { return };
    if !rules.is_whole(at!["storage"]) {
        return;
    }
    let mut check = |rate: Option<BytesPerSec>, within: Option<Nanos>, field, doing: &str| {
        let (Some(rate), Some(within)) = (rate, within) else { return };
        let Some(least) = time(wanted.size, rate).filter(|least| *least > within) else { return };
        let message = format!("{doing} {} at {rate} takes {least}, longer than {within}", wanted.size);
        rules.report(
            Code::CheckpointRate,
            at!["workload", at, "storage", "checkpoint", field],
            message,
            None,
        );
    };
    check(speed.write, Some(wanted.every), "every", "writing");
    check(speed.read, wanted.restore_within, "restore_within", "reading");
}

/// How long moving takes; `None` at no speed.
fn time(size: Bytes, rate: BytesPerSec) -> Option<Nanos> {
    let nanos = (u128::from(size.0) * 1_000_000_000).checked_div(u128::from(rate.0))?;
    Some(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// A few long ones lift the mean over the median, never below it.
fn spread(times: &Repair, path: &[Step<'_>], rules: &mut Rules<'_, '_>) {
    if times.mean < times.median {
        let message = format!("the mean, {}, is below the median, {}", times.mean, times.median);
        let hint = Some("long ones lift the mean; are the two exchanged?".to_owned());
        rules.report(Code::BoundOrder, path, message, hint);
    }
}

fn failure_model(failures: &FailureModel, rules: &mut Rules<'_, '_>) {
    bases(failures, rules);
    if let Some(repair) = &failures.repair {
        spread(repair, at!["failures", "repair"], rules);
    }
    for (at, part) in failures.mix.iter().enumerate() {
        if let Some(repair) = &part.repair {
            spread(repair, at!["failures", "mix", at, "repair"], rules);
        }
    }
    if let Some(domains) = &failures.domains {
        spread(&domains.repair, at!["failures", "domains", "repair"], rules);
    }
    let total: u64 = failures.mix.iter().map(|part| u64::from(part.share.millionths())).sum();
    if total > 1_000_000 {
        let message = format!("the classes make {}% of all faults", total / 10_000);
        rules.report(Code::MoreThanWhole, at!["failures", "mix"], message, None);
    }
    // a per b days <= c per d days, without division.
    let at_most = |low: FailureRate, high: FailureRate| {
        u128::from(low.thousandths) * u128::from(high.days)
            <= u128::from(high.thousandths) * u128::from(low.days)
    };
    let low = failures.hardware_low.is_some_and(|low| !at_most(low, failures.hardware));
    let high = failures.hardware_high.is_some_and(|high| !at_most(failures.hardware, high));
    for (field, _) in [("hardware_low", low), ("hardware_high", high)].into_iter().filter(|(_, wrong)| *wrong)
    {
        let message = "the rate in 'hardware' must lie between 'hardware_low' and 'hardware_high'".to_owned();
        rules.report(Code::BoundOrder, at!["failures", field], message, None);
    }
}

/// What the local engine puts back by itself needs no retry, and no number of retries bounds it.
fn uncounted(retries: &Retries, rules: &mut Rules<'_, '_>) {
    for (at, class) in retries.classes.iter().enumerate() {
        let what = match class {
            RetryClass::NodeFailure => "whose node failed",
            RetryClass::Preempted => "that was stopped for another",
            _ => continue,
        };
        let message = format!("a job {what} is put back anyway and not counted against 'most'");
        let hint = Some("leave it out; a job that must not be put back asks for that itself".to_owned());
        rules.report(Code::NeverCounted, at!["retries", "classes", at], message, hint);
    }
}

/// Hardware fails by node, software by job, domains by domain.
fn bases(failures: &FailureModel, rules: &mut Rules<'_, '_>) {
    let node = FailureBasis::Node;
    let mut check = |rate: Option<FailureRate>, of, path: &[Step<'_>], word: &str| {
        if rate.is_some_and(|rate| rate.of != of) {
            let message = format!("this rate is counted per {word}");
            rules.report(
                Code::WrongBasis,
                path,
                message,
                Some(format!("write for example 1 per 1000 {word}s")),
            );
        }
    };
    check(Some(failures.hardware), node, at!["failures", "hardware"], "node-day");
    check(failures.hardware_low, node, at!["failures", "hardware_low"], "node-day");
    check(failures.hardware_high, node, at!["failures", "hardware_high"], "node-day");
    check(failures.software, FailureBasis::Job, at!["failures", "software"], "job-day");
    let domains = failures.domains.as_ref().map(|domains| domains.rate);
    check(domains, FailureBasis::Domain, at!["failures", "domains", "rate"], "domain-day");
}
