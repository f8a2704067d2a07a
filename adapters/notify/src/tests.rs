//! What the tests of all channels tell.

use std::sync::Arc;

use facts::Outcome;
use facts::notify::{Channel, DeliverySetV1, Occasion};
use ops::notify::{Delivery, Notice, Parcel, Progress, Target};
use units::{JobId, SubjectId, Timestamp};

pub(crate) fn notice() -> Notice {
    Notice {
        occasion: Occasion::Failed,
        at: Timestamp::from_secs(1_800_000_060),
        job: JobId(12),
        name: "train".to_owned(),
        team: "research".to_owned(),
        submitted: Timestamp::from_secs(1_800_000_000),
        outcome: Some(Outcome::Code(3)),
        detail: String::new(),
        simulated: false,
    }
}

pub(crate) fn parcel(channel: Channel, to: &str, settings: DeliverySetV1) -> Parcel {
    let delivery = Delivery {
        id: 7,
        notice: notice(),
        owner: SubjectId(1),
        asked_by: None,
        target: Target { channel, to: to.to_owned() },
        rights: None,
        progress: Progress::Waiting,
        tries: 0,
        tried: None,
        said: String::new(),
    };
    Parcel { delivery: Arc::new(delivery), settings: Arc::new(settings) }
}
