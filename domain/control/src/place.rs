//! Where tasks fit: per node, all on one, all of a gang or none.

use facts::JobRequest;
use facts::event::PlacementV1;
use units::{AttemptId, DeviceIndex, Nanos, NodeId, Timestamp};

use crate::calendar::Calendar;
use crate::lots::{Lot, Lots};
use crate::rows::{Amount, Node, Task};
use crate::state::State;

/// What there is on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) node: NodeId,
    all: Amount,
    used: Amount,
    /// Its devices, which these amounts do not tell apart.
    lots: Lots,
    /// The most of it that may be had, whatever is free.
    most: Amount,
}

/// How many tasks go to each node.
pub(crate) type Spread = Vec<(NodeId, u64)>;

impl Room {
    /// A node when nothing runs.
    fn empty(state: &State, node: NodeId, row: &Node) -> Self {
        let lots = state.sorted_devices(node).map_or_else(Lots::new, |sorted| sorted.lots.clone());
        Self { node, all: row.capacity, used: Amount::default(), lots, most: Amount::MAX }
    }

    /// A node as it is.
    fn now(state: &State, node: NodeId, row: &Node) -> Self {
        let mut room = Self { used: state.used_on(node), ..Self::empty(state, node, row) };
        match room.lots.as_mut_slice() {
            [] => {}
            // What tasks hold can only be of it.
            [only] if row.outside.is_empty() => only.taken += room.used.gpus,
            _ => room.devices(state, state.devices_held_on(node), |taken| *taken += 1),
        }
        room
    }

    /// What is free on it.
    pub(crate) fn free(&self) -> Amount {
        let free = Amount { gpus: self.lots.iter().map(Lot::free).sum(), ..self.all.less(self.used) };
        free.min(self.most)
    }

    /// What of it a request can use: of the devices only those of its model.
    pub(crate) fn usable(&self, request: &JobRequest) -> Amount {
        let suiting = self.lots.iter().filter(|lot| lot.suits(request.gpu_model));
        let free = self.free();
        Amount { gpus: suiting.map(Lot::free).sum::<u64>().min(free.gpus), ..free }
    }

    /// No more of it may be had than so much.
    pub(crate) fn caps(&mut self, most: Amount) {
        self.most = self.most.min(most);
    }

    /// Takes so many tasks of `request` in.
    fn take(&mut self, request: &JobRequest, tasks: u64) {
        let taken = Amount::of(&request.per_task).times(tasks);
        self.used = self.used.plus(taken);
        let mut left = taken.gpus;
        for lot in self.lots.iter_mut().filter(|lot| lot.suits(request.gpu_model)) {
            let here = lot.free().min(left);
            lot.taken += here;
            left -= here;
        }
    }

    /// A task lets go of what it holds.
    pub(crate) fn gives_back(&mut self, state: &State, task: &Task) {
        self.used = self.used.less(task.amount);
        self.devices(state, task.devices.iter().copied(), |taken| *taken = taken.saturating_sub(1));
    }

    /// The same undone.
    pub(crate) fn takes_back(&mut self, state: &State, task: &Task) {
        self.used = self.used.plus(task.amount);
        self.devices(state, task.devices.iter().copied(), |taken| *taken += 1);
    }

    fn devices(
        &mut self,
        state: &State,
        devices: impl Iterator<Item = DeviceIndex>,
        change: impl Fn(&mut u64),
    ) {
        let Some(sorted) = state.sorted_devices(self.node) else { return };
        for at in devices.filter_map(|device| sorted.lot_of(device)) {
            change(&mut self.lots[at].taken);
        }
    }
}

/// What is free on each node that takes new work.
pub(crate) fn free_rooms(state: &State) -> Vec<Room> {
    let nodes = state.nodes().filter(|(_, row)| row.schedulable);
    nodes.map(|(id, row)| Room::now(state, id, row)).collect()
}

/// What nodes that take new work have when no job runs.
pub(crate) fn empty_rooms(state: &State) -> Vec<Room> {
    let nodes = state.nodes().filter(|(_, row)| row.schedulable);
    nodes.map(|(id, row)| Room::empty(state, id, row)).collect()
}

/// What nodes have when nothing runs, not even from outside; without `drained`, only nodes that
/// take new work.
pub(crate) fn whole_rooms(state: &State, drained: bool) -> Vec<Room> {
    let nodes = state.nodes().filter(|(_, row)| drained || row.schedulable);
    let mut rooms: Vec<Room> = nodes.map(|(id, row)| Room::empty(state, id, row)).collect();
    rooms.iter_mut().flat_map(|room| &mut room.lots).for_each(|lot| lot.taken = 0);
    rooms
}

/// What is in all rooms together.
pub(crate) fn total(rooms: &[Room]) -> Amount {
    rooms.iter().fold(Amount::default(), |sum, room| sum.plus(room.free()))
}

/// What of all rooms together a request can use.
pub(crate) fn usable(rooms: &[Room], request: &JobRequest) -> Amount {
    rooms.iter().fold(Amount::default(), |sum, room| sum.plus(room.usable(request)))
}

/// How many tasks of this size fit in a room.
pub(crate) fn tasks_within(room: Amount, task: Amount) -> u64 {
    let fit = |room: u64, need: u64| room.checked_div(need).unwrap_or(u64::MAX);
    fit(room.cores, task.cores).min(fit(room.memory, task.memory)).min(fit(room.gpus, task.gpus))
}

/// The most tasks of a request that fit at once.
pub(crate) fn most_tasks(rooms: &[Room], request: &JobRequest) -> u64 {
    let task = Amount::of(&request.per_task);
    rooms.iter().map(|room| tasks_within(room.usable(request), task)).fold(0, u64::saturating_add)
}

/// Spreads all tasks of an attempt over the rooms, the first nodes first, or none.
pub(crate) fn spread(rooms: &[Room], request: &JobRequest) -> Option<Spread> {
    let task = Amount::of(&request.per_task);
    let mut left = u64::from(request.tasks);
    let mut spread = Spread::new();
    for room in rooms {
        let here = tasks_within(room.usable(request), task).min(left);
        if here > 0 {
            spread.push((room.node, here));
            left -= here;
        }
        if left == 0 {
            return Some(spread);
        }
    }
    None
}

/// Names the devices of each task: the lowest free ones of its node, of one model after the other.
pub(crate) fn place(state: &State, request: &JobRequest, spread: &Spread) -> Vec<PlacementV1> {
    let mut placements = Vec::with_capacity(request.tasks as usize);
    for &(node, tasks) in spread {
        let suiting = state.sorted_devices(node).into_iter();
        let suiting = suiting.flat_map(|sorted| sorted.suiting(request.gpu_model));
        let mut free = suiting.filter(|device| !state.is_device_held(node, *device));
        for _ in 0..tasks {
            let devices = free.by_ref().take(usize::from(request.per_task.gpus)).collect();
            placements.push(PlacementV1 { node, devices });
        }
    }
    placements
}

/// When and where a job that does not fit now will, if attempts end as expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The earliest time at which it fits; [`Timestamp::MAX`] is after attempts without limit.
    pub(crate) at: Timestamp,
    /// How long others may run in its place before.
    pub(crate) window: Nanos,
    /// What it leaves on each node then.
    pub(crate) spare: Vec<Room>,
    /// The attempts that must end before.
    pub(crate) after: Vec<AttemptId>,
    /// What is kept for others from then on, the job itself running.
    pub(crate) calendar: Calendar,
}

/// Reserves the earliest place for one attempt of `request`; none if it would not fit even
/// on empty nodes. All attempts expected to end at that very time count as ended.
pub(crate) fn reserve(state: &State, request: &JobRequest, now: Timestamp) -> Option<Reservation> {
    let calendar = Calendar::expected(state, now);
    if !calendar.is_empty() {
        return calendar.reserve(state, request, now);
    }
    let mut rooms = free_rooms(state);
    let mut after = Vec::new();
    let mut releases = state.index().releases.iter().map(|(end, id)| ((*end).max(now), *id)).peekable();
    while let Some((at, id)) = releases.next() {
        after.push(id);
        give_back(&mut rooms, state, id);
        if releases.peek().is_some_and(|(next, _)| *next == at) {
            continue;
        }
        if let Some(spread) = spread(&rooms, request) {
            let (window, spare) = (window(at, now), less(rooms, &spread, request));
            return Some(Reservation { at, window, spare, after, calendar });
        }
    }
    None
}

/// An attempt lets go of all that it holds.
pub(crate) fn give_back(rooms: &mut [Room], state: &State, id: AttemptId) {
    for (_, task) in state.tasks_of(id).filter(|(_, task)| task.freed.is_none()) {
        if let Some(room) = rooms.iter_mut().find(|room| room.node == task.node) {
            room.gives_back(state, task);
        }
    }
}

/// How long others may run in the place of a job that starts at `at`.
pub(crate) fn window(at: Timestamp, now: Timestamp) -> Nanos {
    // Whatever has a limit ends before "never".
    if at == Timestamp::MAX { Nanos(u64::MAX - 1) } else { at.since(now) }
}

/// What is left of `rooms` where an attempt of `request` is spread so.
pub(crate) fn less(mut rooms: Vec<Room>, spread: &Spread, request: &JobRequest) -> Vec<Room> {
    for (node, tasks) in spread {
        let on_node = rooms.iter_mut().filter(|room| room.node == *node);
        on_node.for_each(|room| room.take(request, *tasks));
    }
    rooms
}

/// The lesser of two views of the same nodes, node by node.
pub(crate) fn both(free: &[Room], spare: &[Room]) -> Vec<Room> {
    let lesser = |(a, b): (&Room, &Room)| {
        let lots = a.lots.iter().zip(&b.lots);
        let lots = lots.map(|(a, b)| Lot { model: a.model, all: a.free().min(b.free()), taken: 0 }).collect();
        let most = a.most.min(b.most);
        Room { node: a.node, all: a.free().min(b.free()), used: Amount::default(), lots, most }
    };
    free.iter().zip(spare).map(lesser).collect()
}
