//! Requests become events, or are refused.

use control::{Denial, admit, admit_action, govern};
use facts::applied::{AppliedV1, PreemptsSetV1};
use facts::event::{
    CancelRequestedV1, HeldV1, NodeSchedulableV1, PreemptibleSetV1, PrioritySetV1, ReleasedV1, SubmittedV2,
    TeamSetV2,
};
use facts::reservation::ReservationCancelledV1;
use facts::{Actor, Event, Hash32, JobRequest, LaunchSpec, Source};
use units::{JobId, ReservationId};

use super::{Core, Draft, Origin};
use crate::api::{Ack, Call, Command, IdemKey, OutputRow, Refusal, SubmitOptions};
use crate::ports::{Head, IdemRow, Lapse, LogStore, SideTable, SideWrite};

impl<S: LogStore> Core<S> {
    pub(super) fn take_call(&mut self, call: Call, low_space: bool, draft: &mut Draft) {
        let Call { who, command, idem, reply } = call;
        let answer = match self.repeated(idem, draft) {
            Ok(Some(ack)) => Ok(ack),
            Ok(None) => {
                let origin = Origin {
                    source: Source::Api,
                    actor: Actor::Subject(who.subject),
                    source_time: None,
                    idem_key: idem.map(|idem| idem.key),
                };
                self.carry_out(command, low_space, origin, draft)
            }
            Err(refusal) => Err(refusal),
        };
        if let (Some(idem), Ok(Ack { repeated: false, .. })) = (idem, &answer)
            && let Some(own) = draft.events.iter().rfind(|event| event.idem_key == Some(idem.key))
        {
            draft.batch.idem.push(IdemRow { key: idem.key, request: idem.request, seq: own.seq });
            // A job's own lives as long as the job.
            if !matches!(own.event, Event::Submitted(_)) {
                draft.batch.lapses.push(Lapse { at: self.clock.now() + super::keys::KEPT, seq: own.seq });
            }
        }
        draft.answers.push((reply, answer));
    }

    /// The answer this key got before, whether committed or earlier in this turn.
    fn repeated(&self, idem: Option<IdemKey>, draft: &Draft) -> Result<Option<Ack>, Refusal> {
        let Some(idem) = idem else { return Ok(None) };
        let here = draft.batch.idem.iter().find(|row| row.key == idem.key).copied();
        let Some(row) = here.map_or_else(|| self.store.idem(&idem.key), |row| Ok(Some(row)))? else {
            return Ok(None);
        };
        if row.request != idem.request {
            return Err(Refusal::KeyReused);
        }
        let here = draft.events.iter().find(|envelope| envelope.seq == row.seq);
        let (job, reservation) = if let Some(envelope) = here {
            ids_of(&envelope.event)
        } else {
            let logged = self.store.event(row.seq)?.and_then(|bytes| facts::decode(&bytes).ok());
            logged.map_or((None, None), |envelope| ids_of(&envelope.event))
        };
        // The log is durable up to its head, which covers the event; if the event is of this
        // very turn, the commit that precedes the answer does.
        let head = Head { seq: row.seq.max(self.store.head().seq), hash: self.store.head().hash };
        Ok(Some(Ack { head, job, reservation, repeated: true }))
    }

    fn carry_out(
        &mut self,
        command: Command,
        low_space: bool,
        origin: Origin,
        draft: &mut Draft,
    ) -> Result<Ack, Refusal> {
        let event = match command {
            Command::Submit { .. } if low_space => return Err(Refusal::LowSpace),
            Command::Submit { request, launch, options } => {
                let ack = self.submit(*request, *launch, origin, draft)?;
                let Some(job) = ack.job else { return Ok(ack) };
                let SubmitOptions { preemptible, preempts, watches } = options;
                Self::watch(job, watches, draft);
                let said = [
                    preemptible.then_some(Event::PreemptibleSet(PreemptibleSetV1 { job, preemptible })),
                    preempts.then_some(Event::PreemptsSet(PreemptsSetV1 { job, preempts })),
                ];
                for event in said.into_iter().flatten() {
                    self.accept(event, Origin { idem_key: None, ..origin }, draft)?;
                }
                return Ok(ack);
            }
            Command::Hold(job) => Event::Held(HeldV1 { job }),
            Command::Release(job) => Event::Released(ReleasedV1 { job }),
            Command::SetPriority(job, priority) => Event::PrioritySet(PrioritySetV1 { job, priority }),
            Command::Cancel { job, members } => {
                let Actor::Subject(by) = origin.actor else { unreachable!("calls come from people") };
                Event::CancelRequested(CancelRequestedV1 { job, members, by })
            }
            Command::SetSchedulable { node, schedulable, reason } => {
                Event::NodeSchedulable(NodeSchedulableV1 { node, schedulable, reason })
            }
            Command::SetPreemption(body) => Event::PreemptionSet(body),
            Command::SetPreemptible(job, preemptible) => {
                Event::PreemptibleSet(PreemptibleSetV1 { job, preemptible })
            }
            Command::SetTeam { team, name, quota, borrow, lend } => {
                let team = team.or_else(|| self.state.team_named(&name));
                let team = team.unwrap_or_else(|| self.state.next_team_id());
                Event::TeamSet(TeamSetV2 { team, name, quota, borrow, lend })
            }
            Command::Apply { cluster, resources, plan } => {
                return self.apply(AppliedV1 { cluster, resources }, plan, origin, draft);
            }
            Command::Reserve(wish) => {
                Event::ReservationSet(control::reserve(&self.state, *wish, self.clock.now())?)
            }
            Command::Unreserve(reservation) => {
                Event::ReservationCancelled(ReservationCancelledV1 { reservation })
            }
            Command::Side(rows) => {
                draft.batch.side.extend(rows);
                return Ok(Ack { head: self.store.head(), job: None, reservation: None, repeated: false });
            }
        };
        admit_action(&self.state, &event)?;
        let (job, reservation) = ids_of(&event);
        self.accept(event, origin, draft)?;
        Ok(Ack { head: Head::default(), job, reservation, repeated: false })
    }

    fn submit(
        &mut self,
        mut request: JobRequest,
        launch: LaunchSpec,
        origin: Origin,
        draft: &mut Draft,
    ) -> Result<Ack, Refusal> {
        let payload = postcard::to_stdvec(&launch).map_err(|e| Refusal::NotWritten(e.to_string()))?;
        if let Actor::Subject(owner) = origin.actor {
            request.owner = owner;
        }
        request.payload = Hash32(*blake3::hash(&payload).as_bytes());
        admit(&self.state, &request)?;
        let job = self.state.next_job_id();
        let output = OutputRow {
            uid: launch.uid,
            cwd: launch.cwd.clone(),
            stdout: launch.stdout.clone(),
            stderr: launch.stderr.clone(),
        };
        self.accept(Event::Submitted(SubmittedV2 { job, request }), origin, draft)?;
        draft.batch.payloads.push((job, payload));
        draft.batch.side.push(SideWrite {
            table: SideTable::Output,
            key: job.0.to_be_bytes().to_vec(),
            value: Some(postcard::to_stdvec(&output).map_err(|e| Refusal::NotWritten(e.to_string()))?),
        });
        self.launches.put(job, launch);
        Ok(Ack { head: Head::default(), job: Some(job), reservation: None, repeated: false })
    }

    /// Carries out a plan, if it is still the one that was agreed to. All its events are of one
    /// commit, so there is no half of it.
    fn apply(
        &mut self,
        wanted: AppliedV1,
        agreed: Hash32,
        origin: Origin,
        draft: &mut Draft,
    ) -> Result<Ack, Refusal> {
        let plan = govern::plan_of(&self.state, &wanted.resources);
        if plan.digest() != agreed {
            return Err(Refusal::PlanChanged);
        }
        govern::admit(&self.state, &plan)?;
        let again = self.state.applied().is_some_and(|last| last.cluster == wanted.cluster);
        if plan.steps.is_empty() && again {
            return Ok(Ack { head: self.store.head(), job: None, reservation: None, repeated: false });
        }
        for step in &plan.steps {
            if let Some(event) = govern::event(&self.state, step) {
                self.accept(event, Origin { idem_key: None, ..origin }, draft)?;
            }
        }
        self.accept(Event::Applied(wanted), origin, draft)?;
        Ok(Ack { head: Head::default(), job: None, reservation: None, repeated: false })
    }

    /// Records what admission let through.
    fn accept(&mut self, event: Event, origin: Origin, draft: &mut Draft) -> Result<(), Refusal> {
        if self.record(event, origin, draft) { Ok(()) } else { Err(Refusal::Denied(Denial::Inconsistent)) }
    }
}

/// The job that an event from a call is about, or the reservation that it makes.
fn ids_of(event: &Event) -> (Option<JobId>, Option<ReservationId>) {
    let job = match event {
        Event::Submitted(body) => Some(body.job),
        Event::Held(body) => Some(body.job),
        Event::Released(body) => Some(body.job),
        Event::PrioritySet(body) => Some(body.job),
        Event::PreemptibleSet(body) => Some(body.job),
        Event::CancelRequested(body) => Some(body.job),
        _ => None,
    };
    let reservation = match event {
        Event::ReservationSet(body) => Some(body.reservation),
        _ => None,
    };
    (job, reservation)
}
