//! What checking a specification costs: `check check POOLS`, and `check parse POOLS` for reading its YAML
//! alone. It counts nothing itself: `cargo xtask bench check` runs it under callgrind, which collects in
//! functions called `measured`.

use std::fmt::Write;

use granit_parser::Parser;

/// A file with so many pools, a price and a queue for each, and a team for every ten.
fn specification(pools: u32) -> String {
    let mut file = String::from("fourplane: 1\ncluster: large\nengines:\n  - { name: hpc, kind: slurm }\n");
    let mut section = |head: &str, count: u32, item: &dyn Fn(u32) -> String| {
        writeln!(file, "{head}").expect("a string takes all text");
        for at in 0..count {
            writeln!(file, "{}", item(at)).expect("a string takes all text");
        }
    };
    section("compute:\n  pools:", pools, &|at| {
        format!(
            "    - name: pool-{at}
      engine: hpc
      nodes: 16
      shape:
        gpu: H100-SXM-80GB
        gpus: 8
        intra: nvswitch
        cpus: 192
        ram: 2 TiB
        nvme: {{ capacity: 30 TiB, read: 50 GB/s }}
        nics: {{ count: 8, speed: 400 Gb/s, gpudirect: true }}
        power: 10.2 kW
      stack: {{ os: ubuntu-24.04, driver: \"570\", cuda: \"12.8\", runtime: enroot, owner: platform }}
      sharing: whole
      replacement: {{ within: 4 h, spares: 1 }}"
        )
    });
    section("queues:", pools, &|at| format!("  - {{ name: queue-{at}, pools: [pool-{at}], longest: 2 d }}"));
    section("teams:", pools / 10, &|at| {
        format!(
            "  - {{ name: team-{at}, quota: {{ gpus: 64, borrow: 8 }}, budget: {{ amount: 1000 USD per month }} }}"
        )
    });
    let book = "prices:\n  version: a\n  currency: USD\n  as_of: 2026-11-01\n  source: contract\n  pools:";
    section(book, pools, &|at| format!("    - {{ pool: pool-{at}, price: 2.35 USD per GPU-hour }}"));
    file
}

#[inline(never)]
fn measured_check(file: &str) -> bool {
    fourplane_spec::check(file.as_bytes()).cluster.is_some()
}

#[inline(never)]
fn measured_parse(file: &str) -> bool {
    let options = granit_parser::options! { emit_comments: false };
    Parser::new_from_str_with_options(file, options).all(|event| event.is_ok())
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [what, pools] = args.as_slice() else { return };
    let file = specification(pools.parse().expect("a number of pools"));
    let is_good = if what == "parse" { measured_parse(&file) } else { measured_check(&file) };
    assert!(is_good, "the file is good");
}
