//! What would start a waiting job now: a finite menu of single changes, each tried on the state
//! itself and undone (decision D13). Only a change after which [`crate::decide`] really starts the
//! job is told, and only the least of its kind: one step less does not start it.

use std::cmp::Reverse;

use facts::event::{CancelRequestedV1, NodeSchedulableV1, PrioritySetV1, ReleasedV1};
use facts::reservation::ReservationCancelledV1;
use facts::{Event, IndexSet, JobRequest};
use units::{AttemptId, Bytes, Cores, JobId, MemberId, Nanos, NodeId, ReservationId, TeamId, Timestamp};

use crate::admit::Resource;
use crate::decide::Policy;
use crate::overlay::Overlay;
use crate::rows::{Amount, Job, Team};
use crate::state::State;

/// Time limits are told in steps of a minute, memory in steps of a mebibyte.
const STEP: (u64, u64) = (60_000_000_000, 1 << 20);
/// The longest time limit that is proposed to a job without one: 30 days in steps. Where the head
/// of the queue waits for an attempt without limit, any limit does.
const LONGEST: u64 = 30 * 24 * 60;
/// The highest priority that is proposed.
const MAX_PRIORITY: i32 = 10_000;
/// The most attempts that are proposed to end.
const MAX_ENDS: usize = 16;

/// A change that starts the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Release it.
    Release,
    /// Let this node have new work.
    Resume(NodeId),
    /// Cancel this reservation.
    Unreserve(ReservationId),
    /// Let its team hold so much at once.
    Quota {
        /// The team.
        team: TeamId,
        /// Of what.
        resource: Resource,
        /// The new limit.
        to: u64,
    },
    /// Move it ahead.
    Priority(i32),
    /// Cancel it and ask for so many tasks.
    Tasks(u32),
    /// Cancel it and ask for so much in each task.
    PerTask(Resource, u64),
    /// Cancel it and ask for as many GPUs in each task, of any model.
    AnyModel(u16),
    /// Cancel it and ask for no more than this time, so that it is over before the job at the
    /// head of the queue starts.
    TimeLimit(Nanos),
    /// End these members of other jobs.
    End(Vec<MemberId>),
}

/// All that would start `job` now, the gentlest first; none if it is not waiting. The state is
/// left as it is.
pub fn remedies(state: &mut State, job: JobId, now: Timestamp, policy: &Policy) -> Vec<Remedy> {
    let Some(row) = state.job(job).filter(|row| row.ended.is_none()).cloned() else { return Vec::new() };
    let mut menu = Menu { state, job, row, now, policy };
    if menu.starts(|_| true) {
        return Vec::new();
    }
    let mut all = Vec::new();
    all.extend(menu.release());
    all.extend(menu.resume());
    all.extend(menu.unreserve());
    all.extend(menu.quota());
    all.extend(menu.priority());
    all.extend(menu.again());
    all.extend(menu.end());
    all
}

struct Menu<'a> {
    state: &'a mut State,
    job: JobId,
    row: Job,
    now: Timestamp,
    policy: &'a Policy,
}

impl Menu<'_> {
    /// Whether the job starts once `change` has happened.
    fn starts(&mut self, change: impl FnOnce(&mut Overlay<'_>) -> bool) -> bool {
        let mut overlay = Overlay::new(self.state, self.now, *self.policy);
        change(&mut overlay) && overlay.starts(self.job)
    }

    /// Whether another request starts in its stead.
    fn starts_as(&mut self, request: &JobRequest) -> bool {
        let mut overlay = Overlay::new(self.state, self.now, *self.policy);
        let cancel = CancelRequestedV1 { job: self.job, members: None, by: request.owner };
        let again = overlay.happens(Event::CancelRequested(cancel));
        let job = overlay.submitted(request.clone()).filter(|_| again);
        job.is_some_and(|job| overlay.starts(job))
    }

    fn release(&mut self) -> Option<Remedy> {
        let job = self.job;
        let release = |overlay: &mut Overlay<'_>| overlay.happens(Event::Released(ReleasedV1 { job }));
        (self.row.held && self.starts(release)).then_some(Remedy::Release)
    }

    fn unreserve(&mut self) -> Vec<Remedy> {
        let reservations: Vec<ReservationId> = self.state.reservations().map(|(id, _)| id).collect();
        let cancelled = |id: &ReservationId| {
            let event = ReservationCancelledV1 { reservation: *id };
            self.starts(|overlay| overlay.happens(Event::ReservationCancelled(event)))
        };
        reservations.into_iter().filter(cancelled).map(Remedy::Unreserve).collect()
    }

    fn resume(&mut self) -> Vec<Remedy> {
        let drained = self.state.nodes().filter(|(_, node)| !node.schedulable).map(|(id, _)| id);
        let drained: Vec<NodeId> = drained.collect();
        let resumed = |node: &NodeId| {
            let event = NodeSchedulableV1 { node: *node, schedulable: true, reason: String::new() };
            self.starts(|overlay| overlay.happens(Event::NodeSchedulable(event)))
        };
        drained.into_iter().filter(resumed).map(Remedy::Resume).collect()
    }

    /// One part of the quota, raised. A team that lacks two parts needs more than one change.
    fn quota(&mut self) -> Option<Remedy> {
        let team = self.row.request.team;
        let (row, used) = (self.state.team(team)?.clone(), self.state.used_by(team));
        let need = Amount::of_attempt(&self.row.request);
        let resource = Resource::lacking(need, row.limit().less(used))?;
        let mut works = |to: u64| {
            let raised = Team { quota: resource.with(row.quota, to), ..row.clone() };
            let event = raised.as_event(team);
            self.starts(|overlay| overlay.happens(Event::TeamSet(event)))
        };
        // Others of the team may be ahead and take what is given: then it takes more.
        let least = resource.of(used.plus(need).less(row.borrow));
        let more = |times: u64| least.saturating_add(resource.of(need).saturating_mul(times));
        let enough = [0, 1, 3, 7, 15, 31].map(more).into_iter().find(|to| works(*to))?;
        let to = boundary(resource.of(row.quota), enough, works);
        Some(Remedy::Quota { team, resource, to })
    }

    fn priority(&mut self) -> Option<Remedy> {
        let (job, now) = (self.job, self.row.priority);
        let mut works = |raise: u64| {
            let priority = now.saturating_add_unsigned(narrow(raise));
            let event = PrioritySetV1 { job, priority };
            self.starts(|overlay| overlay.happens(Event::PrioritySet(event)))
        };
        let most = u64::try_from(i64::from(MAX_PRIORITY) - i64::from(now)).ok();
        let most = most.filter(|most| *most > 0 && works(*most))?;
        let raise = boundary(0, most, works);
        Some(Remedy::Priority(now.saturating_add_unsigned(narrow(raise))))
    }

    /// The same job, asked for again with less. It loses its place in the queue.
    fn again(&mut self) -> Vec<Remedy> {
        if self.row.running > 0 || self.row.retrying > 0 || self.row.held {
            return Vec::new();
        }
        let mut base = JobRequest::clone(&self.row.request);
        base.after.clone_from(&self.row.open);
        base.priority = self.row.priority;
        let each = base.per_task;
        let any_model = base.gpu_model.is_some() && {
            let mut works = |gpu_model| self.starts_as(&JobRequest { gpu_model, ..base.clone() });
            // Where the same request starts, its cancellation helps.
            works(None) && !works(base.gpu_model)
        };
        let tasks = self.most(&base, base.tasks.into(), |request, tasks| request.tasks = narrow(tasks));
        let gpus = self.most(&base, each.gpus.into(), |request, gpus| {
            request.per_task.gpus = u16::try_from(gpus).unwrap_or(u16::MAX);
        });
        let set_cores = |request: &mut JobRequest, cores| request.per_task.cores = Cores(narrow(cores));
        let cores = self.most(&base, each.cores.0.into(), set_cores);
        let set_memory = |request: &mut JobRequest, steps| request.per_task.memory = Bytes(steps * STEP.1);
        let memory = self.most(&base, each.memory.0.div_ceil(STEP.1), set_memory);
        let set_limit = |request: &mut JobRequest, steps| request.time_limit = Some(Nanos(steps * STEP.0));
        // Without a limit every length is less.
        let limit = base.time_limit.map_or(LONGEST + 1, |limit| limit.0.div_ceil(STEP.0));
        let limit = self.most(&base, limit, set_limit);
        let all = [
            any_model.then_some(Remedy::AnyModel(each.gpus)),
            tasks.map(|tasks| Remedy::Tasks(narrow(tasks))),
            gpus.map(|gpus| Remedy::PerTask(Resource::Gpus, gpus)),
            cores.map(|cores| Remedy::PerTask(Resource::Cores, cores)),
            memory.map(|steps| Remedy::PerTask(Resource::Memory, steps * STEP.1)),
            limit.map(|steps| Remedy::TimeLimit(Nanos(steps * STEP.0))),
        ];
        all.into_iter().flatten().collect()
    }

    /// The most below `now`, and at least one, with which `base` starts.
    fn most(&mut self, base: &JobRequest, now: u64, set: impl Fn(&mut JobRequest, u64)) -> Option<u64> {
        let mut works = |less: u64| {
            let mut request = base.clone();
            set(&mut request, now - less);
            self.starts_as(&request)
        };
        let most_less = now.checked_sub(1).filter(|less| *less > 0 && works(*less))?;
        // Where the same request starts, its cancellation helps, as by what waits for its end.
        if works(0) { None } else { Some(now - boundary(0, most_less, works)) }
    }

    /// The fewest attempts of others whose end is enough, the lowest priority and the latest start
    /// first.
    fn end(&mut self) -> Option<Remedy> {
        let others = self.state.attempts().filter(|(_, attempt)| attempt.member.job != self.job);
        let mut others: Vec<(i32, Timestamp, AttemptId, MemberId)> = others
            .filter_map(|(id, attempt)| {
                let job = self.state.job(attempt.member.job)?;
                Some((job.priority, attempt.started, id, attempt.member))
            })
            .collect();
        others.sort_by_key(|(priority, started, id, _)| (*priority, Reverse((*started, *id))));
        others.truncate(MAX_ENDS);
        let mut works = |ends: &[(i32, Timestamp, AttemptId, MemberId)]| {
            self.starts(|overlay| {
                ends.iter().all(|(.., attempt, member)| {
                    let members = Some(IndexSet::one(member.index));
                    let by = units::SubjectId(0);
                    let cancel = CancelRequestedV1 { job: member.job, members, by };
                    let happens = overlay.happens(Event::CancelRequested(cancel));
                    overlay.ends(*attempt);
                    happens
                })
            })
        };
        let enough = (1..=others.len()).find(|count| works(&others[..*count]))?;
        let mut chosen = others[..enough].to_vec();
        let mut without = chosen.len();
        while let Some(at) = without.checked_sub(1) {
            let mut fewer = chosen.clone();
            fewer.remove(at);
            without = at;
            if !fewer.is_empty() && works(&fewer) {
                // With it gone, another may no longer be needed either.
                without = fewer.len();
                chosen = fewer;
            }
        }
        Some(Remedy::End(chosen.into_iter().map(|(.., member)| member).collect()))
    }
}

/// A count in the type that a request has for it; more than that counts as the most.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A step between `fails` and `works`, as close as one, where the answer changes: the step is
/// enough and one less is not.
fn boundary(mut fails: u64, mut works: u64, mut enough: impl FnMut(u64) -> bool) -> u64 {
    while works - fails > 1 {
        let middle = fails + (works - fails) / 2;
        if enough(middle) {
            works = middle;
        } else {
            fails = middle;
        }
    }
    works
}
