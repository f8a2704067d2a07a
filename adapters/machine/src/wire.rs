//! Frames between server and supervisor: a length (u32, little endian) and a postcard body.
//! Variants are only ever appended; the hello carries the version that each side speaks, so
//! that a new server can serve an old supervisor.

use std::io::{self, Read, Write};

use ops::ports::{NodeCommand, NodeHello, NodeReport};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use units::Epoch;

/// The newest version of these frames. Since 2 a start has fields that one of version 1 passes
/// over where nothing follows them.
pub(crate) const VERSION: u16 = 2;

/// A frame holds a script and an environment; more than this is damage.
const FRAME_MAX: usize = 64 << 20;

/// Server to supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToNode {
    Hello { version: u16, epoch: Epoch },
    Commands(Vec<NodeCommand>),
}

/// Supervisor to server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromNode {
    Hello { version: u16, hello: NodeHello },
    Superseded(Epoch),
    Reports(Vec<NodeReport>),
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Appends one frame to `out`.
pub(crate) fn put<T: Serialize>(message: &T, out: &mut Vec<u8>) -> io::Result<()> {
    let start = out.len();
    let mut framed = std::mem::take(out);
    framed.extend([0; 4]);
    *out = postcard::to_extend(message, framed).map_err(invalid)?;
    let length = u32::try_from(out.len() - start - 4).map_err(invalid)?;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Takes one whole frame off the front of `bytes` and moves `bytes` on.
pub(crate) fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> io::Result<Option<T>> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_le_bytes(*head) as usize;
    if length > FRAME_MAX {
        return Err(invalid("a frame is too long"));
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    *bytes = &rest[length..];
    postcard::from_bytes(body).map(Some).map_err(invalid)
}

/// Writes one frame, blocking.
pub(crate) fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    let mut frame = Vec::new();
    put(message, &mut frame)?;
    stream.write_all(&frame)
}

/// Reads one frame, blocking.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> io::Result<T> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > FRAME_MAX {
        return Err(invalid("a frame is too long"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    postcard::from_bytes(&body).map_err(invalid)
}
