//! Checksums of rows that no hash chain covers, and the chain itself.

use ops::ports::{IdemRow, Lapse, SideTable};
use units::{JobId, Seq, Timestamp};

/// A row's checksum, over its table's name and each of its fields with its length.
fn sum(table: &str, fields: &[&[u8]]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    for field in std::iter::once(&table.as_bytes()).chain(fields) {
        hasher.update(&(field.len() as u64).to_le_bytes()).update(field);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(first)
}

/// What a row says whose checksum does not fit.
pub(crate) const MISMATCH: &str = "its bytes do not match their checksum";

pub(crate) fn idem_sum(row: &IdemRow) -> i64 {
    sum("idem", &[&row.key.0, &row.request.0, &row.seq.0.to_le_bytes()])
}

/// A row of the table `lapse`: its time and event.
pub(crate) fn lapse(row: &rusqlite::Row<'_>) -> rusqlite::Result<Lapse> {
    let seq: i64 = row.get(1)?;
    Ok(Lapse { at: Timestamp(row.get(0)?), seq: Seq(seq.cast_unsigned()) })
}

pub(crate) fn lapse_sum(lapse: &Lapse) -> i64 {
    sum("lapse", &[&lapse.at.0.to_le_bytes(), &lapse.seq.0.to_le_bytes()])
}

pub(crate) fn payload_sum(job: JobId, bytes: &[u8]) -> i64 {
    sum("payload", &[&job.0.to_le_bytes(), bytes])
}

pub(crate) fn side_sum(kind: u8, key: &[u8], value: &[u8]) -> i64 {
    sum("side", &[&[kind], key, value])
}

/// A side table's number in the database; never reused.
pub(crate) fn kind(table: SideTable) -> u8 {
    match table {
        SideTable::Subject => 1,
        SideTable::Token => 2,
        SideTable::Output => 3,
        SideTable::Session => 4,
        SideTable::Watch => 5,
        SideTable::Delivery => 6,
    }
}
