//! Where tasks fit: per node, all on one, all of a gang or none.

use facts::JobRequest;
use facts::event::PlacementV1;
use units::{AttemptId, DeviceIndex, Nanos, NodeId, Timestamp};

use crate::rows::{Amount, Node};
use crate::state::State;

/// What is free on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) node: NodeId,
    pub(crate) free: Amount,
}

/// How many tasks go to each node.
pub(crate) type Spread = Vec<(NodeId, u64)>;

/// What is free on each node that takes new work.
pub(crate) fn free_rooms(state: &State) -> Vec<Room> {
    let free = |(id, row): (NodeId, &Node)| Room { node: id, free: row.capacity.less(state.used_on(id)) };
    state.nodes().filter(|(_, row)| row.schedulable).map(free).collect()
}

/// What nodes have when nothing runs; without `drained`, only nodes that take new work.
pub(crate) fn empty_rooms(state: &State, drained: bool) -> Vec<Room> {
    let nodes = state.nodes().filter(|(_, row)| drained || row.schedulable);
    nodes.map(|(node, row)| Room { node, free: row.capacity }).collect()
}

/// What is in all rooms together.
pub(crate) fn total(rooms: &[Room]) -> Amount {
    rooms.iter().fold(Amount::default(), |sum, room| sum.plus(room.free))
}

/// How many tasks of this size fit in a room.
pub(crate) fn tasks_within(room: Amount, task: Amount) -> u64 {
    let fit = |room: u64, need: u64| room.checked_div(need).unwrap_or(u64::MAX);
    fit(room.cores, task.cores).min(fit(room.memory, task.memory)).min(fit(room.gpus, task.gpus))
}

/// The most tasks of this size that fit at once.
pub(crate) fn most_tasks(rooms: &[Room], task: Amount) -> u64 {
    rooms.iter().map(|room| tasks_within(room.free, task)).fold(0, u64::saturating_add)
}

/// Spreads all tasks of an attempt over the rooms, the first nodes first, or none.
pub(crate) fn spread(rooms: &[Room], request: &JobRequest) -> Option<Spread> {
    let task = Amount::of(&request.per_task);
    let mut left = u64::from(request.tasks);
    let mut spread = Spread::new();
    for room in rooms {
        let here = tasks_within(room.free, task).min(left);
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

/// Names the devices of each task: the lowest free ones of its node.
pub(crate) fn place(state: &State, request: &JobRequest, spread: &Spread) -> Vec<PlacementV1> {
    let mut placements = Vec::with_capacity(request.tasks as usize);
    for &(node, tasks) in spread {
        let devices = state.node(node).map_or(0, |row| row.devices.len());
        let devices = u16::try_from(devices).unwrap_or(u16::MAX);
        let mut free = (0..devices).map(DeviceIndex).filter(|device| !state.is_device_held(node, *device));
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
}

/// Reserves the earliest place for one attempt of `request`; none if it would not fit even
/// on empty nodes. All attempts expected to end at that very time count as ended.
pub(crate) fn reserve(state: &State, request: &JobRequest, now: Timestamp) -> Option<Reservation> {
    let mut used: Vec<(Room, Amount)> =
        empty_rooms(state, false).into_iter().map(|room| (room, state.used_on(room.node))).collect();
    let mut after = Vec::new();
    let mut releases = state.index().releases.iter().map(|(end, id)| ((*end).max(now), *id)).peekable();
    while let Some((at, id)) = releases.next() {
        after.push(id);
        for (_, task) in state.tasks_of(id).filter(|(_, task)| task.freed.is_none()) {
            if let Some((_, used)) = used.iter_mut().find(|(room, _)| room.node == task.node) {
                *used = used.less(task.amount);
            }
        }
        if releases.peek().is_some_and(|(next, _)| *next == at) {
            continue;
        }
        let rooms: Vec<Room> =
            used.iter().map(|(room, used)| Room { node: room.node, free: room.free.less(*used) }).collect();
        if let Some(spread) = spread(&rooms, request) {
            // Whatever has a limit ends before "never".
            let window = if at == Timestamp::MAX { Nanos(u64::MAX - 1) } else { at.since(now) };
            return Some(Reservation { at, window, spare: less(rooms, &spread, request), after });
        }
    }
    None
}

/// What is left of `rooms` where an attempt of `request` is spread so.
pub(crate) fn less(mut rooms: Vec<Room>, spread: &Spread, request: &JobRequest) -> Vec<Room> {
    for (node, tasks) in spread {
        let taken = Amount::of(&request.per_task).times(*tasks);
        let on_node = rooms.iter_mut().filter(|room| room.node == *node);
        on_node.for_each(|room| room.free = room.free.less(taken));
    }
    rooms
}

/// The lesser of two views of the same nodes, node by node.
pub(crate) fn both(free: &[Room], spare: &[Room]) -> Vec<Room> {
    let lesser = |(a, b): (&Room, &Room)| Room { node: a.node, free: a.free.min(b.free) };
    free.iter().zip(spare).map(lesser).collect()
}
