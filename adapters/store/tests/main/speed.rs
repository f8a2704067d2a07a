//! Figures, printed on request: `cargo test -p fourplane-store --release -- --ignored speed
//! --nocapture`. Each is a ratio to what the disk or the hash alone takes.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use facts::Hash32;
use fourplane_store::{Options, SqliteLog};
use ops::ports::{Batch, Head, IdemRow, LogStore};
use units::{JobId, Seq};

/// On the disk that a state directory would be on, not in memory.
fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

fn timed(count: usize, mut work: impl FnMut(usize)) -> Vec<Duration> {
    let once = |number| {
        let start = Instant::now();
        work(number);
        start.elapsed()
    };
    (0..count).map(once).collect()
}

fn unique(number: usize) -> Hash32 {
    Hash32(*blake3::hash(&number.to_le_bytes()).as_bytes())
}

fn submission(number: usize, head: Head, events: usize) -> Batch {
    let key = |member: usize| unique(number * 1_000 + member);
    Batch {
        events: (0..events).map(|_| vec![7; 200]).collect(),
        idem: (0..events)
            .map(|member| IdemRow { key: key(member), request: key(member), seq: head.seq.next() })
            .collect(),
        ..Batch::default()
    }
}

#[test]
#[ignore = "prints figures"]
fn speed_of_appends_against_fdatasync() {
    let dir = on_disk();
    let raw = std::fs::File::create(dir.path().join("raw")).unwrap();
    raw.write_all_at(&vec![0; 32 << 20], 0).unwrap();
    raw.sync_all().unwrap();
    let mut log = SqliteLog::open(&dir.path().join("state"), Options::default()).unwrap();
    for round in 0..3 {
        let sync = timed(2_000, |number| {
            raw.write_all_at(&[1; 8192], (number as u64 % 4_000) * 8192).unwrap();
            raw.sync_data().unwrap();
        });
        let head =
            |log: &SqliteLog, number, events| submission(round * 1_000_000 + number, log.head(), events);
        let bare = timed(2_000, |_| {
            log.append(&Batch { events: vec![vec![7; 200]], ..Batch::default() }).unwrap();
        });
        let single = timed(2_000, |number| {
            log.append(&head(&log, number, 1)).unwrap();
        });
        let many = timed(500, |number| {
            log.append(&head(&log, 10_000 + number, 32)).unwrap();
        });
        let payloads = timed(2_000, |number| {
            let job = |back: usize| JobId((round * 10_000 + number).saturating_sub(back) as u64);
            let batch = Batch {
                payloads: vec![(job(0), vec![b'e'; 6_000])],
                erase: vec![job(8)],
                ..submission(round * 1_000_000 + 500_000 + number, log.head(), 1)
            };
            log.append(&batch).unwrap();
        });
        let total: Duration = many.iter().sum();
        println!(
            "fdatasync of 8 KB p50/p99 {:?}; one event {:?}; event and key {:?}; and payload of 6 KB {:?}; \
             32 events and keys {:?} ({:.0} events/s)",
            median(sync),
            median(bare),
            median(single),
            median(payloads),
            median(many),
            500.0 * 32.0 / total.as_secs_f64(),
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn speed_of_a_scan_against_reading_and_hashing() {
    const EVENTS: usize = 1_000_000;
    let dir = on_disk();
    let mut log = SqliteLog::open(dir.path(), Options::default()).unwrap();
    let body = |number: usize| (number as u64).to_le_bytes().repeat(16 + number % 20);
    for start in (0..EVENTS).step_by(1_000) {
        log.append(&Batch { events: (start..start + 1_000).map(body).collect(), ..Batch::default() })
            .unwrap();
    }
    let flat = dir.path().join("flat");
    let bodies: Vec<u8> = (0..EVENTS).flat_map(body).collect();
    std::fs::write(&flat, &bodies).unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        let bytes = std::fs::read(&flat).unwrap();
        let (mut rest, mut sum) = (bytes.as_slice(), 0_u8);
        for number in 0..EVENTS {
            let (one, others) = rest.split_at(8 * (16 + number % 20));
            sum ^= blake3::hash(one).as_bytes()[0];
            rest = others;
        }
        let base = start.elapsed();
        let start = Instant::now();
        let mut seen = Seq(0);
        log.scan(Head::default(), &mut |seq, _| {
            seen = seq;
            Ok(())
        })
        .unwrap();
        let scan = start.elapsed();
        println!(
            "{EVENTS} events: reading and hashing {base:?} ({sum}), verified scan {scan:?}, ratio {:.2}",
            scan.as_secs_f64() / base.as_secs_f64()
        );
        assert_eq!(seen.0, EVENTS as u64);
    }
}
