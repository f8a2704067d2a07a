//! The devices of a node by model: those of one model are as good as each other.

use std::collections::BTreeSet;

use facts::event::DeviceV1;
use smallvec::SmallVec;
use units::{DeviceIndex, GpuModel};

/// Devices of one model on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lot {
    /// Their model; all whose model is not known are of one that nobody can choose.
    pub(crate) model: Option<GpuModel>,
    /// How many there are.
    pub(crate) all: u64,
    /// How many of them jobs cannot have now.
    pub(crate) taken: u64,
}

/// A node's lots, in the order in which it names their first devices.
pub(crate) type Lots = SmallVec<[Lot; 1]>;

impl Lot {
    /// How many can be had.
    pub(crate) fn free(&self) -> u64 {
        self.all.saturating_sub(self.taken)
    }

    /// Whether they will do for somebody who asks for `model`, or for any.
    pub(crate) fn suits(&self, model: Option<GpuModel>) -> bool {
        model.is_none() || model == self.model
    }
}

/// A node's devices in lots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sorted {
    /// As they are when no task holds any.
    pub(crate) lots: Lots,
    /// The lot that each device is in, and whether jobs can have it.
    lot_of: Box<[(usize, bool)]>,
}

impl Sorted {
    /// What is held from outside is taken, whether a task holds it as well or not.
    pub(crate) fn new(devices: &[DeviceV1], outside: &BTreeSet<DeviceIndex>) -> Self {
        let mut lots = Lots::new();
        let all = (0..).map(DeviceIndex).zip(devices);
        let lot_of = all.map(|(index, device)| {
            let model: Option<GpuModel> = device.model.parse().ok();
            let at = lots.iter().position(|lot: &Lot| lot.model == model).unwrap_or_else(|| {
                lots.push(Lot { model, all: 0, taken: 0 });
                lots.len() - 1
            });
            let is_outside = outside.contains(&index);
            lots[at].all += 1;
            lots[at].taken += u64::from(is_outside);
            (at, !is_outside)
        });
        let lot_of = lot_of.collect();
        Self { lots, lot_of }
    }

    /// The lot that a device is in, if jobs can have it.
    pub(crate) fn lot_of(&self, device: DeviceIndex) -> Option<usize> {
        let (lot, is_ours) = self.lot_of.get(usize::from(device.0)).copied()?;
        is_ours.then_some(lot)
    }

    /// Whether any of these devices suits.
    pub(crate) fn any(&self, devices: &[DeviceIndex], model: Option<GpuModel>) -> bool {
        devices.iter().filter_map(|device| self.lot_of(*device)).any(|at| self.lots[at].suits(model))
    }

    /// All devices that suit and that jobs can have, one lot after the other.
    pub(crate) fn suiting(&self, model: Option<GpuModel>) -> impl Iterator<Item = DeviceIndex> {
        let lots = self.lots.iter().enumerate().filter(move |(_, lot)| lot.suits(model));
        lots.flat_map(|(at, _)| {
            let all = (0..).map(DeviceIndex).zip(&self.lot_of);
            all.filter(move |(_, lot)| **lot == (at, true)).map(|(device, _)| device)
        })
    }
}
