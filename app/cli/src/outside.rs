//! Looking again and again for processes that hold GPUs and were not started here.

use std::path::Path;
use std::time::Duration;

use facts::event::DeviceV1;
use facts::inventory::Inventory;
use ops::ports::NodeEvent;

use crate::commands::inventory;
use crate::failure::{Doing, Failure};
use crate::offer;

/// How often.
const AGAIN: Duration = Duration::from_secs(15);

/// Tells which GPUs are held by processes that were not started here, before any job starts and then
/// again and again, for as long as this process lives. Nobody holds simulated ones.
pub(crate) fn watch(
    state: &Path,
    found: &Inventory,
    devices: &[DeviceV1],
    tell: impl Fn(NodeEvent) + Send + 'static,
) -> Result<(), Failure> {
    let devices: Vec<DeviceV1> = devices.iter().filter(|device| !device.simulated).cloned().collect();
    tell(NodeEvent::Outside(offer::held_outside(&found.gpus, &found.outside, &devices)));
    if devices.is_empty() {
        return Ok(());
    }
    let state = state.to_owned();
    let watch = move || loop {
        std::thread::sleep(AGAIN);
        // What cannot be looked at now stays as it was last seen.
        if let Ok(found) = inventory::of_this_machine(&state) {
            tell(NodeEvent::Outside(offer::held_outside(&found.gpus, &found.outside, &devices)));
        }
    };
    let watcher = std::thread::Builder::new().name("outside".to_owned()).spawn(watch);
    watcher.map(drop).doing(|| "cannot start a thread".to_owned())
}
