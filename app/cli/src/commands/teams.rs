//! `teams`: what each team is promised, holds, borrows and lends.

use server::wire::Team;
use units::Bytes;

use crate::cli::Common;
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{Printer, plain, table};

/// Shows teams, with a line for each thing that is limited or held.
pub(crate) async fn run(common: &Common, printer: Printer) -> Result<u8, Failure> {
    let teams: Vec<Team> = Client::new(common)?.get("/teams").await?;
    if printer.is_json() {
        printer.json(&teams);
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = teams.iter().flat_map(rows).collect();
    let head = ["TEAM", "OF", "HELD", "QUOTA", "BORROWED", "MAY BORROW", "LENDS"];
    printer.data(table(&head, &rows, true).as_bytes());
    Ok(0)
}

/// What a team has of one thing; `None` is without limit.
struct Share {
    of: &'static str,
    held: u64,
    quota: Option<u64>,
    borrow: Option<u64>,
    lend: Option<u64>,
    say: fn(u64) -> String,
}

fn rows(team: &Team) -> Vec<Vec<String>> {
    let shares = [
        Share {
            of: "cores",
            held: team.cores_held,
            quota: team.max_cores,
            borrow: team.borrow_cores,
            lend: team.lend_cores,
            say: |cores| cores.to_string(),
        },
        Share {
            of: "memory",
            held: team.memory_held_bytes,
            quota: team.max_memory_bytes,
            borrow: team.borrow_memory_bytes,
            lend: team.lend_memory_bytes,
            say: |bytes| Bytes(bytes).to_string(),
        },
        Share {
            of: "GPUs",
            held: team.gpus_held,
            quota: team.max_gpus,
            borrow: team.borrow_gpus,
            lend: team.lend_gpus,
            say: |gpus| gpus.to_string(),
        },
    ];
    let name = plain(&team.name);
    let is_shown = |share: &&Share| share.quota.is_some() || share.held > 0;
    let rows: Vec<_> = shares.iter().filter(is_shown).map(|share| row(name.clone(), share)).collect();
    if rows.is_empty() { vec![row(name, &shares[0])] } else { rows }
}

fn row(team: String, share: &Share) -> Vec<String> {
    let Share { of, held, quota, borrow, lend, say } = *share;
    let borrowed = held.saturating_sub(quota.unwrap_or(u64::MAX));
    let or = |much: Option<u64>, word: &str| much.map_or_else(|| word.to_owned(), say);
    // Whoever has no limit needs no loan, and lends nothing that is counted.
    let (may_borrow, lends) = match quota {
        None => ("-".to_owned(), "-".to_owned()),
        Some(_) => (or(borrow, "all that is free"), or(lend, "all it does not hold")),
    };
    vec![team, of.to_owned(), say(held), or(quota, "unlimited"), say(borrowed), may_borrow, lends]
}
