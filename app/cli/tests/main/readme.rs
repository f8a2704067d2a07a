//! The session that README.md shows is one of the real program. `UPDATE=1` records it anew.

use std::time::Duration;

use crate::world::World;

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");

const SESSION: [&str; 6] = [
    "fourplane run --detach --gpus 8 --time 2h --name train -- ./train.sh",
    "fourplane run --detach --gpus 1 --name eval -- ./eval.sh",
    "fourplane why 2",
    "fourplane cancel 1",
    "fourplane wait 2",
    "fourplane report usage --since now-1h",
];

/// The block of the README that begins with the first command.
fn shown(readme: &str) -> (usize, usize) {
    let begin = readme.find(&format!("$ {}", SESSION[0])).unwrap_or_else(|| panic!("no {:?}", SESSION[0]));
    (begin, begin + readme[begin..].find("```").unwrap())
}

/// Words in their order; times, dates and shares differ from one session to the next.
fn alike(session: &str) -> String {
    let is_figure =
        |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains([':', '%', '-']);
    let words = |line: &str| {
        let words = line.split_whitespace().map(|word| if is_figure(word) { "#" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    session.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_session_of_the_readme_is_real() {
    let world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "8:h100"]);
    for (name, script) in [("train.sh", "exec sleep 600"), ("eval.sh", "exec true")] {
        let path = world.work().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let is_recorded = std::env::var_os("UPDATE").is_some();
    let mut session = String::new();
    for command in SESSION {
        if is_recorded && command.contains("cancel") {
            // Something to report.
            std::thread::sleep(Duration::from_secs(30));
        }
        let args: Vec<&str> = command.split(' ').skip(1).collect();
        let ran = world.run(&args);
        assert_eq!(ran.code, 0, "{command}: {ran:?}");
        session.extend(["$ ", command, "\n", &ran.out, &ran.err]);
        if command.contains("--name train") {
            world.until("1", "running");
        }
    }
    let owner = world.job("1")["owner"].as_str().unwrap().to_owned();
    let session = session.replace(&format!(" of {owner}"), " of ada");
    let session = session.replace(world.work().to_str().unwrap(), "/home/ada");
    let readme = std::fs::read_to_string(README).unwrap();
    let (begin, end) = shown(&readme);
    if is_recorded {
        std::fs::write(README, format!("{}{session}{}", &readme[..begin], &readme[end..])).unwrap();
        return;
    }
    assert_eq!(
        alike(&readme[begin..end]),
        alike(&session),
        "record it anew: UPDATE=1 cargo test -p fourplane-cli --test main readme"
    );
}
