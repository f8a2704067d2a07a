//! `audit verify`: every event of the log, and the chain of hashes over them.

use std::path::Path;

use crate::client::hex;
use crate::failure::Failure;
use crate::output::Printer;

/// Checks the log in `state`. A running server may go on writing to it.
pub(crate) fn verify(printer: Printer, state: &Path) -> Result<u8, Failure> {
    let report = match store::verify(state) {
        Ok(report) => report,
        Err(error @ store::StoreError::Damaged { .. }) => {
            printer.failure(&Failure::usage(error.to_string()).hint(
                "nothing was changed; keep this directory as it is, and restore a copy to look further",
            ));
            return Ok(1);
        }
        Err(error) => return Err(Failure::usage(error.to_string())),
    };
    let hash = hex(&report.head.hash.0);
    if printer.is_json() {
        printer.json(&serde_json::json!({
            "met": true,
            "seq": report.head.seq,
            "hash": hash,
            "idempotency_keys": report.keys,
            "payloads": report.payloads,
        }));
    } else {
        printer.line(&format!("whole: {} events, head {hash}", report.head.seq));
    }
    Ok(0)
}
