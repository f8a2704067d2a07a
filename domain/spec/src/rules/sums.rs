//! Quotas against capacity, and shapes of nodes that cannot be.

use units::{GpuForm, GpuModel, GpuVendor};

use super::{Rules, at};
use crate::finding::Code;
use crate::model::{Cluster, EngineKind, Intra, Pool, Queueing, Quota, Sharing, Team};

/// GPUs of a pool.
pub(super) fn gpus(pool: &Pool) -> u64 {
    u64::from(pool.nodes.0) * u64::from(pool.shape.gpus)
}

pub(super) fn check(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    let pools = cluster.compute.as_ref().map_or(&[][..], |compute| &compute.pools);
    for (at, pool) in pools.iter().enumerate() {
        shape(pool, at, rules);
        sharing(pool, at, rules);
        let local =
            |name| cluster.engines.iter().any(|one| one.name == name && one.kind == EngineKind::Local);
        if pool.nodes.0 > 1 && local(pool.engine.clone()) {
            let message = format!("the local engine has one machine; this pool has {}", pool.nodes.0);
            let hint = Some("several machines take Slurm or Kubernetes".to_owned());
            rules.report(Code::LocalNodes, at!["compute", "pools", at, "nodes"], message, hint);
        }
    }
    engines(cluster, rules);
    direct(cluster, pools, rules);
    quotas(cluster, pools, rules);
}

fn shape(pool: &Pool, at: usize, rules: &mut Rules<'_, '_>) {
    let shape = &pool.shape;
    let path = |field| at!["compute", "pools", at, "shape", field].to_vec();
    match (shape.gpu, shape.gpus) {
        (None, 1..) => {
            let message = format!("{} GPUs a node, of which model is not said", shape.gpus);
            let hint = Some("add for example `gpu: H100-SXM-80GB`".to_owned());
            rules.report(Code::MissingField, &path("gpus"), message, hint);
        }
        (Some(model), 0) => {
            let message = format!("{model}, and no number of GPUs a node");
            rules.report(
                Code::MissingField,
                &path("gpu"),
                message,
                Some("add for example `gpus: 8`".to_owned()),
            );
        }
        _ => {}
    }
    let (Some(model), Some(intra)) = (shape.gpu, shape.intra) else { return };
    if let Some(why) = impossible_link(model, intra) {
        rules.report(Code::ImpossibleLink, &path("intra"), why, None);
    }
}

/// `NVLink` is NVIDIA's and Infinity Fabric AMD's; switches are on boards of modules only.
fn impossible_link(model: GpuModel, intra: Intra) -> Option<String> {
    let is_nvidia = model.vendor() == GpuVendor::Nvidia;
    let is_card = model.form() == GpuForm::Pcie;
    match intra {
        Intra::Nvswitch if is_nvidia && is_card => {
            Some(format!("{model} is a card; NVLink switches are on boards of SXM modules"))
        }
        Intra::Nvswitch | Intra::Nvlink if !is_nvidia => {
            Some(format!("{model} has no NVLink; that is NVIDIA's"))
        }
        Intra::InfinityFabric if is_nvidia => Some(format!("{model} has no Infinity Fabric; that is AMD's")),
        _ => None,
    }
}

fn sharing(pool: &Pool, at: usize, rules: &mut Rules<'_, '_>) {
    let path = |field| at!["compute", "pools", at, field].to_vec();
    if pool.sharing != Sharing::Mig && !pool.mig.is_empty() {
        let message = "MIG instances are named, and the GPUs are not shared by MIG".to_owned();
        rules.report(Code::Sharing, &path("mig"), message, Some("write `sharing: mig`".to_owned()));
    }
    if pool.sharing != Sharing::TimeSlice && pool.slices.is_some() {
        let message = "turns are counted, and the GPUs are not shared by time".to_owned();
        rules.report(Code::Sharing, &path("slices"), message, Some("write `sharing: time-slice`".to_owned()));
    }
    if pool.sharing == Sharing::Whole {
        return;
    }
    let Some(model) = pool.shape.gpu else {
        let message = "this pool has no GPUs to share".to_owned();
        return rules.report(Code::Sharing, &path("sharing"), message, None);
    };
    if pool.sharing == Sharing::Mig && model.mig_slices() == 0 {
        let message = format!("{model} has no MIG");
        return rules.report(Code::Sharing, &path("sharing"), message, None);
    }
    let mut taken = 0;
    for (of, mig) in pool.mig.iter().enumerate() {
        let here = at!["compute", "pools", at, "mig", of, "profile"];
        match model.check_profile(mig.profile) {
            Ok(()) => taken += u64::from(mig.profile.slices) * u64::from(mig.count.0),
            Err(error) => rules.report(Code::Sharing, here, error.to_string(), None),
        }
    }
    let slices = u64::from(model.mig_slices());
    if taken > slices {
        let message = format!("these instances take {taken} slices of a GPU, which has {slices}");
        rules.report(Code::Sharing, &path("mig"), message, None);
    }
}

/// Fields that only one kind of engine has.
fn engines(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    for (at, engine) in cluster.engines.iter().enumerate() {
        if engine.kind != EngineKind::Local {
            let message = "nothing acts yet on this kind of engine and its pools".to_owned();
            rules.report(Code::NotEnforced, at!["engines", at, "kind"], message, None);
        }
        let is_kubernetes = engine.kind == EngineKind::Kubernetes;
        let odd = [
            ("context", engine.context.is_some() && !is_kubernetes),
            ("queueing", engine.queueing.is_some_and(|one| one != Queueing::None) && !is_kubernetes),
            ("slurm_cluster", engine.slurm_cluster.is_some() && engine.kind != EngineKind::Slurm),
        ];
        for (field, _) in odd.into_iter().filter(|(_, is_odd)| *is_odd) {
            let message = format!("'{field}' means nothing to this kind of engine");
            rules.report(Code::Unused, at!["engines", at, field], message, Some("remove it".to_owned()));
        }
    }
}

fn direct(cluster: &Cluster, pools: &[Pool], rules: &mut Rules<'_, '_>) {
    let wanted = cluster.network.as_ref().is_some_and(|network| network.gpudirect_rdma == Some(true));
    let able = pools.iter().any(|pool| pool.shape.nics.as_ref().is_some_and(|nics| nics.gpudirect));
    if wanted && !able && !pools.is_empty() && rules.is_whole(at!["compute"]) {
        let message =
            "GPUs shall reach the network directly, and no pool has a network card that lets them".to_owned();
        let hint = Some("write `gpudirect: true` in the 'nics' of the pools where it is so".to_owned());
        rules.report(Code::DirectWithoutNic, at!["network", "gpudirect_rdma"], message, hint);
    }
}

fn quotas(cluster: &Cluster, pools: &[Pool], rules: &mut Rules<'_, '_>) {
    let promised = |team: &Team| team.quota.as_ref().and_then(|quota| quota.gpus).map_or(0, u64::from);
    let total: u64 = cluster.teams.iter().map(promised).sum();
    let capacity: u64 = pools.iter().map(gpus).sum();
    let is_known =
        rules.is_whole(at!["compute"]) && rules.is_whole(at!["teams"]) && cluster.compute.is_some();
    if total > capacity && is_known {
        let message = format!("teams are promised {total} GPUs; the pools have {capacity}");
        let hint = Some("lower quotas and let teams borrow what others leave".to_owned());
        rules.report(Code::QuotaOverCapacity, at!["teams"], message, hint);
    }
    let lent: u64 = cluster.teams.iter().map(|team| lendable(team.quota.as_ref())).sum();
    for (at, team) in cluster.teams.iter().enumerate() {
        let Some(quota) = &team.quota else { continue };
        let own = quota.gpus.unwrap_or(0);
        let path = |field| at!["teams", at, "quota", field].to_vec();
        if quota.lend.is_some_and(|lend| lend > own) {
            let message = format!("more GPUs may be lent than the {own} it has");
            rules.report(Code::IdleBorrowing, &path("lend"), message, None);
        }
        let others = lent - lendable(Some(quota));
        let spare = capacity.saturating_sub(total);
        if u64::from(quota.borrow) > others + spare && is_known {
            let message =
                format!("it may borrow {} GPUs, and others leave at most {}", quota.borrow, others + spare);
            rules.report(Code::IdleBorrowing, &path("borrow"), message, None);
        }
        over_team(team, at, own, rules);
    }
}

fn lendable(quota: Option<&Quota>) -> u64 {
    let Some(quota) = quota else { return 0 };
    let own = quota.gpus.unwrap_or(0);
    u64::from(quota.lend.unwrap_or(own).min(own))
}

fn over_team(team: &Team, at: usize, own: u32, rules: &mut Rules<'_, '_>) {
    let promised = team.projects.iter().filter_map(|project| project.quota.as_ref()?.gpus);
    let promised: u64 = promised.map(u64::from).sum();
    if promised > u64::from(own) {
        let message = format!("its projects are promised {promised} GPUs; the team has {own}");
        rules.report(Code::QuotaOverTeam, at!["teams", at, "projects"], message, None);
    }
}
