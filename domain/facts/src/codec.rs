//! How an [`Envelope`] is written: postcard's documented wire format, with the event's kind
//! and version in front of its body so that any old log can be read (decision D4).

use serde::{Deserialize, Serialize};
use units::{Seq, Timestamp};

use crate::applied::PriorityClassSetV1;
use crate::envelope::{Actor, Envelope, Hash32, Source};
use crate::event::{Event, StopOrderedV1, SubmittedV1, TeamSetV1};

/// How much the events' bytes have grown: the lines of `tests/data/events.golden`, which has one
/// for each kind, version and variant and only ever gets longer. A program knows all up to its own.
pub const FORMAT: u32 = 62;

/// Why bytes are no event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Cut short, or not written by this codec.
    #[error("not a readable event: {0}")]
    Malformed(String),
    /// Written by a newer program.
    #[error("event kind {kind} version {version} is not known to this version of fourplane")]
    UnknownKind {
        /// The kind's number.
        kind: u16,
        /// Its version.
        version: u8,
    },
}

/// The fixed part in front of the body.
#[derive(Serialize, Deserialize)]
struct Header {
    seq: Seq,
    ledger_time: Timestamp,
    wall_time: Timestamp,
    source: Source,
    source_time: Option<Timestamp>,
    actor: Actor,
    cause: Option<Seq>,
    idem_key: Option<Hash32>,
    kind: u16,
    version: u8,
}

macro_rules! kinds {
    (
        $($kind:literal v $version:literal => $variant:ident),+ $(,)?;
        $($old_kind:literal v $old_version:literal => $old_variant:ident from $body:ident),+ $(,)?
    ) => {
        /// The number and version an event is written under.
        fn kind_of(event: &Event) -> (u16, u8) {
            match event { $(Event::$variant(_) => ($kind, $version)),+ }
        }

        fn write_body(event: &Event, to: Vec<u8>) -> Result<Vec<u8>, postcard::Error> {
            match event { $(Event::$variant(body) => postcard::to_extend(body, to)),+ }
        }

        fn read_body(kind: u16, version: u8, bytes: &[u8]) -> Result<Event, CodecError> {
            match (kind, version) {
                $(($kind, $version) => exactly(bytes).map(Event::$variant),)+
                $(($old_kind, $old_version) => {
                    exactly::<$body>(bytes).map(|old| Event::$old_variant(old.into()))
                })+
                _ => Err(CodecError::UnknownKind { kind, version }),
            }
        }
    };
}

// Append only. A number is never reused; a new version takes the line of the one before, which
// moves to those that are only read.
kinds! {
    1 v 1 => ServerStarted,
    2 v 1 => ClockStepped,
    3 v 1 => NodeDeclared,
    4 v 1 => NodeSchedulable,
    5 v 2 => TeamSet,
    6 v 2 => Submitted,
    7 v 1 => Held,
    8 v 1 => Released,
    9 v 1 => PrioritySet,
    10 v 1 => CancelRequested,
    11 v 1 => Started,
    12 v 1 => TaskRunning,
    13 v 2 => StopOrdered,
    14 v 1 => TaskEnded,
    15 v 1 => TaskFreed,
    16 v 1 => HoldLeaked,
    17 v 1 => AttemptClosed,
    18 v 1 => MembersEnded,
    19 v 1 => SegmentSealed,
    20 v 1 => HealthChanged,
    21 v 1 => PassCut,
    22 v 1 => PreemptionSet,
    23 v 1 => PreemptibleSet,
    24 v 1 => TeamRemoved,
    25 v 1 => Applied,
    26 v 2 => PriorityClassSet,
    27 v 1 => PreemptsSet,
    28 v 1 => RetriesSet,
    29 v 1 => NotificationSet,
    30 v 1 => DeliverySet,
    31 v 1 => OutsideHeld,
    32 v 1 => ReservationSet,
    33 v 1 => ReservationCancelled;
    5 v 1 => TeamSet from TeamSetV1,
    6 v 1 => Submitted from SubmittedV1,
    13 v 1 => StopOrdered from StopOrderedV1,
    26 v 1 => PriorityClassSet from PriorityClassSetV1,
}

/// Reads a value that must use up all of `bytes`.
fn exactly<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(malformed)?;
    if rest.is_empty() {
        Ok(value)
    } else {
        Err(CodecError::Malformed(format!("{} bytes left over", rest.len())))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn malformed(error: postcard::Error) -> CodecError {
    CodecError::Malformed(error.to_string())
}

/// The bytes that the log keeps for `envelope`.
pub fn encode(envelope: &Envelope) -> Vec<u8> {
    let (kind, version) = kind_of(&envelope.event);
    let header = Header {
        seq: envelope.seq,
        ledger_time: envelope.ledger_time,
        wall_time: envelope.wall_time,
        source: envelope.source,
        source_time: envelope.source_time,
        actor: envelope.actor,
        cause: envelope.cause,
        idem_key: envelope.idem_key,
        kind,
        version,
    };
    postcard::to_extend(&header, Vec::with_capacity(192))
        .and_then(|bytes| write_body(&envelope.event, bytes))
        .expect("a growing buffer takes every event, and no event has an unsized sequence")
}

/// Reads what [`encode`] wrote, under any version this program knows.
pub fn decode(bytes: &[u8]) -> Result<Envelope, CodecError> {
    let (header, body): (Header, _) = postcard::take_from_bytes(bytes).map_err(malformed)?;
    let event = read_body(header.kind, header.version, body)?;
    Ok(Envelope {
        seq: header.seq,
        ledger_time: header.ledger_time,
        wall_time: header.wall_time,
        source: header.source,
        source_time: header.source_time,
        actor: header.actor,
        cause: header.cause,
        idem_key: header.idem_key,
        event,
    })
}
