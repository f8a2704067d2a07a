//! How many jobs a second are accepted durably over HTTP. The jobs are held, so nothing starts.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;

use super::fourplane::Fourplane;
use super::http::{Address, Connection};
use super::peers::{HyperQueue, Slurm};
use super::{Common, Peer, Series, print_table, progress, quantile, rate};

/// Members of the one array that is handed over at once.
const ARRAY: usize = 10_000;
const CLIENTS: [usize; 2] = [1, 32];
/// slurmrestd takes some 300 jobs a second here: its rounds are shortened by this factor.
const SLURM_SHARE: usize = 5;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Submissions a round.
    #[arg(long, default_value_t = 5_000)]
    jobs: usize,
}

/// The request that hands one held job over; made once, as the client runs beside what it measures.
type Request = fn(&Connection) -> Vec<u8>;

pub(crate) fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    let dir = common.dir()?;
    let jobs = if common.smoke { 40 } else { options.jobs };
    let ours = common.with(Peer::Fourplane).then(|| Fourplane::start(&common.binary, &dir, 1)).transpose()?;
    let slurm = common.with(Peer::Slurm).then(Slurm::start).transpose()?;
    let mut hyperqueue = common.with(Peer::Hyperqueue).then(|| HyperQueue::start(&dir, 0)).transpose()?;

    let mut sync = Vec::new();
    let mut rates: Vec<_> = CLIENTS.iter().map(|_| Sides::default()).collect();
    let mut arrays = [Series::new("fourplane"), Series::new("HyperQueue 0.27, not durable")];
    for round in 1..=common.rounds() {
        progress(&format!("round {round} of {}", common.rounds()));
        sync.extend(fdatasync(&dir.join("sync"), jobs.min(1_000))?);
        for (clients, sides) in CLIENTS.iter().zip(&mut rates) {
            if let Some(ours) = &ours {
                sides.ours.measure(&ours.address, *clients, jobs, Fourplane::submission)?;
            }
            if let Some(slurm) = &slurm {
                let address = Address::Unix(slurm.rest());
                sides.slurm.measure(&address, *clients, jobs.div_ceil(SLURM_SHARE), slurm_submission)?;
                slurm.clear()?;
            }
        }
        if let Some(ours) = &ours {
            let mut connection = ours.address.connect()?;
            let start = Instant::now();
            Fourplane::submit_array(&mut connection, ARRAY)?;
            arrays[0].rounds.push(rate(ARRAY, start.elapsed()));
        }
        if let Some(peer) = &mut hyperqueue {
            arrays[1].rounds.push(rate(ARRAY, peer.submit(ARRAY)?));
        }
    }
    for (clients, sides) in CLIENTS.iter().zip(&rates) {
        sides.print(*clients, &sync);
    }
    print_table(&format!("One array of {ARRAY}"), "members/s", &arrays);
    Ok(())
}

/// Both sides with one number of clients.
#[derive(Default)]
struct Sides {
    ours: Side,
    slurm: Side,
}

/// One side: a rate for each round, and how long each submission took (in microseconds).
#[derive(Default)]
struct Side {
    rounds: Vec<f64>,
    latencies: Vec<f64>,
}

impl Side {
    fn measure(&mut self, address: &Address, clients: usize, count: usize, request: Request) -> Result<()> {
        let start = Instant::now();
        let latencies = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..clients)
                .map(|_| scope.spawn(move || submit_many(address, count.div_ceil(clients), request)))
                .collect();
            clients
                .into_iter()
                .map(|client| client.join().expect("clients do not panic"))
                .collect::<Result<Vec<_>>>()
        })?;
        let latencies = latencies.concat();
        self.rounds.push(rate(latencies.len(), start.elapsed()));
        self.latencies.extend(latencies);
        Ok(())
    }
}

impl Sides {
    #[expect(clippy::print_stdout, reason = "this is the tool's output")]
    fn print(&self, clients: usize, sync: &[f64]) {
        let (sync_50, sync_99) = (quantile(sync, 0.5), quantile(sync, 0.99));
        let series = [
            Series { name: "fourplane".into(), rounds: self.ours.rounds.clone() },
            Series { name: "slurmrestd".into(), rounds: self.slurm.rounds.clone() },
            Series { name: "one fdatasync of 8 KiB after another".into(), rounds: vec![1e6 / sync_50] },
        ];
        print_table(&format!("Durable submissions, clients: {clients}"), "jobs/s", &series);
        println!("\nfdatasync of 8 KiB: p50 {sync_50:.0} us, p99 {sync_99:.0} us");
        for (name, side) in [("fourplane", &self.ours), ("slurmrestd", &self.slurm)] {
            if side.latencies.is_empty() {
                continue;
            }
            let (p50, p99) = (quantile(&side.latencies, 0.5), quantile(&side.latencies, 0.99));
            println!("{name}: p50 {p50:.0} us, p99 {p99:.0} us");
        }
    }
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(super) fn submit_many(address: &Address, count: usize, request: Request) -> Result<Vec<f64>> {
    let mut connection = address.connect()?;
    let request = request(&connection);
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let answer = connection.repeat(&request)?;
        latencies.push(micros(start.elapsed()));
        ensure!(answer.contains("\"job"), "the answer names no job: {answer}");
    }
    Ok(latencies)
}

pub(super) fn slurm_submission(connection: &Connection) -> Vec<u8> {
    let body = serde_json::json!({
        "job": {
            "name": "bench", "partition": "batch", "hold": true, "time_limit": 5, "tasks": 1, "memory_per_node": 100,
            "current_working_directory": "/tmp", "standard_output": "/dev/null",
            "environment": {"PATH": "/bin:/usr/bin"},
        },
        "script": "#!/bin/sh\ntrue\n",
    });
    connection.request("POST", "/slurm/v0.0.38/job/submit", &body.to_string())
}

/// How long overwriting and syncing 8 KiB of an allocated file takes, in microseconds.
fn fdatasync(path: &Path, count: usize) -> Result<Vec<f64>> {
    let mut file = File::create(path)?;
    let page = [7; 8 << 10];
    file.write_all(&page)?;
    file.sync_all()?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&page)?;
        file.sync_data()?;
        times.push(micros(start.elapsed()));
    }
    std::fs::remove_file(path)?;
    Ok(times)
}
