//! Conservation: every unit-nanosecond of capacity is in exactly one state (law 1).

use std::collections::BTreeMap;

use units::Timestamp;

use crate::occupancy::{Capacity, Interval, Occupancy, Unit};

/// Where the capacity of one class of units went in a window, in unit-nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// What there was.
    pub capacity: u128,
    /// Where it went.
    pub by_state: BTreeMap<Occupancy, u128>,
    /// Capacity less all states: 0, or something was counted twice (negative) or not at all.
    pub residue: i128,
}

/// Sums devices and cores apart, as `(devices, cores)`, from intervals and capacity clipped to
/// `[from, until)`. It trusts neither: the two are summed independently.
pub fn balance(
    intervals: &[Interval],
    capacity: &[Capacity],
    from: Timestamp,
    until: Timestamp,
) -> (Balance, Balance) {
    let clipped = |a: Timestamp, b: Timestamp| u128::from(b.min(until).since(a.max(from)).0);
    let (mut devices, mut cores) = (Balance::default(), Balance::default());
    for stretch in capacity {
        class(stretch.unit, &mut devices, &mut cores).capacity += clipped(stretch.from, stretch.until);
    }
    for stretch in intervals {
        let to = class(stretch.unit, &mut devices, &mut cores);
        *to.by_state.entry(stretch.state).or_default() += clipped(stretch.from, stretch.until);
    }
    for side in [&mut devices, &mut cores] {
        let spent: u128 = side.by_state.values().sum();
        side.residue = signed(side.capacity) - signed(spent);
    }
    (devices, cores)
}

fn class<'a>(unit: Unit, devices: &'a mut Balance, cores: &'a mut Balance) -> &'a mut Balance {
    match unit {
        Unit::Device(..) => devices,
        Unit::Core(..) => cores,
    }
}

/// A million devices over a century are below 2^92 device-nanoseconds.
fn signed(amount: u128) -> i128 {
    i128::try_from(amount).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use facts::event::{
        DeviceV1, HoldLeakedV1, NodeDeclaredV1, NodeSchedulableV1, PlacementV1, StartedV1, SubmittedV2,
        TaskEndedV1, TaskFreedV1, TaskRunningV1,
    };
    use facts::{Actor, Envelope, Event, JobKind, JobRequest, Resources, Source, TaskExit};
    use proptest::prelude::*;
    use units::{ArrayIndex, AttemptId, Bytes, Cores, DeviceIndex, JobId, Nanos, NodeId, Rank, Seq};

    use super::*;
    use crate::occupancy::Meter;
    use crate::tally::{Entry, Quarters, Tally};

    /// A log of two devices and four cores, written step by step.
    #[derive(Default)]
    struct Day {
        log: Vec<Envelope>,
        now: i64,
    }

    impl Day {
        fn new() -> Self {
            let mut day = Self::default();
            let device = |key: &str| DeviceV1 {
                key: key.to_owned(),
                model: "none".to_owned(),
                memory: Bytes(0),
                simulated: true,
            };
            day.push(Event::NodeDeclared(NodeDeclaredV1 {
                node: NodeId(0),
                name: "n".to_owned(),
                boot_id: [0; 16],
                cores: Cores(4),
                memory: Bytes(1 << 30),
                devices: vec![device("a"), device("b")],
            }));
            day.push(Event::Submitted(SubmittedV2 { job: JobId(1), request: request() }));
            day
        }

        fn push(&mut self, event: Event) {
            self.log.push(Envelope {
                seq: Seq(self.log.len() as u64 + 1),
                ledger_time: Timestamp(self.now),
                wall_time: Timestamp(self.now),
                source: Source::Server,
                source_time: None,
                actor: Actor::Server,
                cause: None,
                idem_key: None,
                event,
            });
        }

        fn start(&mut self, attempt: u64, device: u16) {
            let tasks = vec![PlacementV1 { node: NodeId(0), devices: vec![DeviceIndex(device)] }];
            let (attempt, job) = (AttemptId(attempt), JobId(1));
            self.push(Event::Started(StartedV1 { attempt, job, index: ArrayIndex(0), number: 1, tasks }));
        }

        fn running(&mut self, attempt: u64, at: i64) {
            let (attempt, rank, at) = (AttemptId(attempt), Rank(0), Timestamp(at));
            self.push(Event::TaskRunning(TaskRunningV1 { attempt, rank, at }));
        }

        fn ended(&mut self, attempt: u64, ended: i64, freed: Option<i64>) {
            self.push(Event::TaskEnded(TaskEndedV1 {
                attempt: AttemptId(attempt),
                rank: Rank(0),
                exit: TaskExit::Exited(0),
                started: None,
                ended: Timestamp(ended),
                freed: freed.map(Timestamp),
                cpu: None,
                memory_peak: None,
            }));
        }

        fn balance(&self) -> (Balance, Balance) {
            let mut meter = Meter::default();
            self.log.iter().for_each(|envelope| meter.apply(envelope));
            let (intervals, capacity) = meter.close(Timestamp(self.now));
            balance(&intervals, &capacity, Timestamp(0), Timestamp::MAX)
        }
    }

    impl Day {
        /// The same by the sums that are kept as the log grows.
        fn tally(&self) -> (Balance, Balance) {
            let (mut tally, mut sums) = (Tally::default(), Quarters::new());
            self.log.iter().for_each(|envelope| tally.apply(envelope, Cores(2), &mut sums));
            tally.count(Timestamp(self.now), &mut sums);
            let (mut devices, mut cores) = (Balance::default(), Balance::default());
            for (&(_, entry), amounts) in &sums {
                for (side, amount) in [(&mut devices, amounts.devices), (&mut cores, amounts.cores)] {
                    let amount = u128::try_from(amount).expect("no time is negative");
                    match entry {
                        Entry::Capacity => side.capacity += amount,
                        Entry::State(state) => *side.by_state.entry(state).or_default() += amount,
                    }
                }
            }
            for side in [&mut devices, &mut cores] {
                side.by_state.retain(|_, time| *time > 0);
                side.residue = signed(side.capacity) - signed(side.by_state.values().sum());
            }
            (devices, cores)
        }
    }

    fn request() -> JobRequest {
        JobRequest {
            name: "j".to_owned(),
            kind: JobKind::Batch,
            owner: units::SubjectId(1),
            team: units::TeamId(0),
            tasks: 1,
            per_task: Resources { cores: Cores(2), memory: Bytes(0), gpus: 1 },
            array: None,
            priority: 0,
            time_limit: Some(Nanos::from_secs(1)),
            after: Vec::new(),
            retry: facts::RetryPolicy::default(),
            hold: false,
            stop: facts::StopPolicy::default(),
            labels: facts::Labels::default(),
            payload: facts::Hash32::default(),
            gpu_model: None,
        }
    }

    fn states(balance: &Balance) -> Vec<(Occupancy, u128)> {
        balance.by_state.iter().map(|(state, time)| (*state, *time)).collect()
    }

    #[test]
    fn an_attempt_is_counted_from_decision_to_proof() {
        use Occupancy::{Free, Leaked, Running, Starting, Unproven};
        let mut day = Day::new();
        day.now = 10;
        day.start(1, 0);
        day.now = 15;
        day.running(1, 13);
        day.now = 40;
        day.ended(1, 33, None);
        day.push(Event::HoldLeaked(HoldLeakedV1 {
            attempt: AttemptId(1),
            rank: Rank(0),
            since: Timestamp(38),
            reason: "frozen".to_owned(),
        }));
        day.now = 60;
        day.push(Event::TaskFreed(TaskFreedV1 { attempt: AttemptId(1), rank: Rank(0), at: Timestamp(50) }));
        let (devices, cores) = day.balance();
        let expect = [(Free, 10 + 10 + 60), (Starting, 3), (Running, 20), (Unproven, 5), (Leaked, 12)];
        assert_eq!(states(&devices), expect);
        let expect = [(Free, 4 * 60 - 2 * 40), (Starting, 6), (Running, 40), (Unproven, 10), (Leaked, 24)];
        assert_eq!(states(&cores), expect);
        assert_eq!((devices.residue, cores.residue), (0, 0));
    }

    #[test]
    fn a_drained_node_is_not_free() {
        let mut day = Day::new();
        day.now = 10;
        let node = NodeId(0);
        day.push(Event::NodeSchedulable(NodeSchedulableV1 {
            node,
            schedulable: false,
            reason: String::new(),
        }));
        day.now = 30;
        let (devices, _) = day.balance();
        assert_eq!(states(&devices), [(Occupancy::Free, 20), (Occupancy::Drained, 40)]);
        assert_eq!(devices.residue, 0);
    }

    #[test]
    fn a_double_hold_cannot_hide() {
        let mut day = Day::new();
        day.now = 10;
        day.start(1, 0);
        day.now = 20;
        day.start(2, 0);
        day.now = 30;
        let (devices, _) = day.balance();
        assert_eq!(devices.residue, -10);
    }

    const SECOND: i64 = 1_000_000_000;

    proptest! {
        /// Whatever the order and however late the facts, nothing is lost or counted twice.
        #[test]
        fn residue_is_zero(steps in prop::collection::vec((0_u8..4, 0_u64..4, 1_i64..2_000, 0_i64..3_000), 0..60)) {
            let mut day = Day::new();
            let mut holder = [None::<u64>; 2];
            let mut attempt = 0;
            for (what, which, gone, late) in steps {
                let (gone, late) = (gone * SECOND, late * SECOND);
                day.now += gone;
                let device = usize::from(which % 2 == 1);
                let at = day.now - late.min(gone - 1);
                match (what, holder[device]) {
                    (0 | 1, None) => {
                        attempt += 1;
                        day.start(attempt, u16::from(device == 1));
                        holder[device] = Some(attempt);
                    }
                    (1, Some(held)) => day.running(held, at),
                    (2, Some(held)) => {
                        day.ended(held, at, Some(at));
                        holder[device] = None;
                    }
                    (3, _) => {
                        let (node, schedulable) = (NodeId(0), which < 2);
                        day.push(Event::NodeSchedulable(NodeSchedulableV1 { node, schedulable, reason: String::new() }));
                    }
                    _ => {}
                }
            }
            let (devices, cores) = day.balance();
            prop_assert_eq!((devices.residue, cores.residue), (0, 0));
            prop_assert_eq!(day.tally(), (devices, cores));
        }
    }
}
