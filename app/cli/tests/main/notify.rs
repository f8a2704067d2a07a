//! Telling people of jobs: real receivers on loopback, failures, and servers that die in between.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::world::{World, eventually, finish, skip_without_root};

/// What a receiver was told, in order.
type Told = Arc<Mutex<Vec<String>>>;

/// Listens on a port, any if it is 0, and talks with each that comes.
fn listen(port: u16, talk: impl Fn(&TcpStream) -> Option<String> + Send + 'static) -> (u16, Told) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = Told::default();
    let all = Arc::clone(&told);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if let Some(said) = talk(&stream.unwrap()) {
                all.lock().unwrap().push(said);
            }
        }
    });
    (port, told)
}

/// A receiver of webhooks that gives these answers, the last of them for ever; tells the bodies.
fn hook(port: u16, answers: &'static [&'static str]) -> (u16, Told) {
    let asked = Mutex::new(0);
    listen(port, move |stream| {
        let mut reader = BufReader::new(stream);
        let (mut line, mut length) = (String::new(), 0);
        while reader.read_line(&mut line).unwrap_or(0) > 2 {
            if let Some(value) = line.strip_prefix("Content-Length: ") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let mut asked = asked.lock().unwrap();
        let answer = answers[usize::min(*asked, answers.len() - 1)];
        *asked += 1;
        (&*stream).write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).ok()?;
        String::from_utf8(body).ok()
    })
}

/// A mail server; tells each letter with its envelope.
fn relay() -> (u16, Told) {
    listen(0, |stream| {
        let (mut reader, mut writer) = (BufReader::new(stream), stream);
        writer.write_all(b"220 relay\r\n").ok()?;
        let (mut all, mut line, mut in_data) = (String::new(), String::new(), false);
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            all.push_str(&line);
            let answer = match line.as_str() {
                ".\r\n" => "250 queued\r\n",
                _ if in_data => "",
                "DATA\r\n" => "354 go on\r\n",
                "QUIT\r\n" => "221 bye\r\n",
                _ => "250 ok\r\n",
            };
            in_data = (in_data || line == "DATA\r\n") && line != ".\r\n";
            writer.write_all(answer.as_bytes()).ok()?;
            line.clear();
        }
        Some(all)
    })
}

/// Applies a specification whose webhooks may reach this machine.
fn apply(world: &World, relay: Option<u16>, more: &str) {
    let relay = relay.map_or_else(String::new, |port| format!("relay: '127.0.0.1:{port}', "));
    let text = format!("fourplane: 1\ncluster: aurora\ndelivery: {{ {relay}allow: [127.0.0.0/8] }}\n{more}");
    std::fs::write(world.work().join("fourplane.yaml"), text).unwrap();
    let checked = world.run(&["check"]);
    assert_eq!((checked.code, checked.out.as_str()), (0, "fourplane.yaml: nothing found\n"), "{checked:?}");
    let applied = world.run(&["apply", "--yes"]);
    assert_eq!(applied.code, 0, "{applied:?}");
}

/// What is told to whom, oldest first.
fn deliveries(world: &World) -> Vec<Value> {
    let mut all: Vec<Value> = serde_json::from_str(&world.run(&["notifications", "--json"]).out).unwrap();
    all.reverse();
    all
}

fn settled(world: &World, count: usize) -> Vec<Value> {
    eventually("all is delivered or given up", || {
        let all = deliveries(world);
        all.len() == count && all.iter().all(|one| one["state"] != "waiting")
    });
    deliveries(world)
}

#[test]
fn a_job_tells_whom_it_was_asked_to() {
    let world = World::new();
    let (port, hooked) = hook(0, &["200 OK"]);
    let (relay, mailed) = relay();
    apply(&world, Some(relay), "");
    let tell = world.work().join("tell");
    std::fs::write(&tell, "#!/bin/sh\necho \"$FOURPLANE_EVENT $FOURPLANE_JOB_ID\" > told\ncat >> told\n")
        .unwrap();
    std::fs::set_permissions(&tell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let url = format!("start,end=http://127.0.0.1:{port}/hook");
    let asked = ["--notify", &url, "--notify", "fail=ada@example.org", "--notify", "end=./tell"];
    let failed = world.submit(&[&asked[..], &["-J", "train", "--", "sh", "-c", "exit 3"]].concat());
    let told = settled(&world, 4);
    let seen: Vec<_> = told.iter().map(|one| (one["event"].as_str(), one["kind"].as_str())).collect();
    let [started, webhook, email, command] =
        [("started", "webhook"), ("failed", "webhook"), ("failed", "email"), ("failed", "command")]
            .map(|(event, kind)| (Some(event), Some(kind)));
    assert_eq!(seen, [started, webhook, email, command]);
    assert!(told.iter().all(|one| one["state"] == "delivered" && one["tries"] == 1), "{told:?}");

    // Each on its own way: they may overtake each other.
    let mut bodies: Vec<Value> =
        hooked.lock().unwrap().iter().map(|body| serde_json::from_str(body).unwrap()).collect();
    bodies.sort_by_key(|body| body["delivery"].as_u64());
    assert_eq!((&bodies[0]["event"], bodies.len()), (&Value::from("started"), 2));
    assert_eq!(bodies[1]["text"], format!("job {failed} (train) failed: exited with code 3"));
    let letters = mailed.lock().unwrap().clone();
    assert!(letters.len() == 1 && letters[0].contains("RCPT TO:<ada@example.org>\r\n"), "{letters:?}");
    assert!(world.file("told").starts_with(&format!("failed {failed}\n{{\"delivery\":")));

    let quiet = world.submit(&["--notify", "fail=ada@example.org", "--", "true"]);
    assert_eq!(world.run(&["wait", &quiet]).code, 0);
    assert_eq!(deliveries(&world).len(), 4, "it did not fail");
    let table = world.run(&["notifications"]).out;
    assert!(
        table.starts_with("ID  AT (UTC)") && table.contains("  delivered  1      answered 200\n"),
        "{table}"
    );
}

#[test]
fn nothing_is_lost_when_the_server_dies() {
    let mut world = World::new();
    // Reserved by being bound once: nobody listens there yet.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    apply(&world, None, "");
    let url = format!("end=http://127.0.0.1:{port}/");
    let jobs: Vec<String> = (0..20).map(|_| world.submit(&["--notify", &url, "--", "true"])).collect();
    for _ in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(120));
        world.kill_server();
        world.up();
    }
    for job in &jobs {
        assert_eq!(world.run(&["wait", job]).code, 0);
    }
    let waiting = deliveries(&world);
    assert!(waiting.iter().all(|one| one["state"] == "waiting"), "{waiting:?}");
    let (_, hooked) = hook(port, &["200 OK"]);
    let told = settled(&world, jobs.len());
    assert!(told.iter().all(|one| one["state"] == "delivered"), "{told:?}");
    let mut seen: Vec<String> = hooked
        .lock()
        .unwrap()
        .iter()
        .map(|body| serde_json::from_str::<Value>(body).unwrap()["job"].to_string())
        .collect();
    seen.sort_by_key(|job| job.parse::<u64>().unwrap());
    seen.dedup();
    assert_eq!(seen, jobs, "each was told");
}

#[test]
fn what_fails_is_tried_again_or_given_up() {
    let world = World::new();
    let check = |answers: &'static [&'static str], state: &str, tries: u64, said: &str| {
        let (port, _) = hook(0, answers);
        apply(&world, None, "");
        let before = deliveries(&world).len();
        world.submit(&["--notify", &format!("end=http://127.0.0.1:{port}/"), "--", "true"]);
        let last = settled(&world, before + 1).pop().unwrap();
        let seen = (
            last["state"].as_str().unwrap(),
            last["tries"].as_u64().unwrap(),
            last["said"].as_str().unwrap(),
        );
        assert_eq!(seen, (state, tries, said));
    };
    check(&["503 Busy", "429 Slowly", "200 OK"], "delivered", 3, "answered 200");
    check(&["302 Found\r\nLocation: /"], "gave-up", 1, "answered 302; redirects are not followed");
    check(&["410 Gone"], "gave-up", 1, "answered 410");

    // A job that ended before is told of as it was then; the address is judged as it is now.
    let (port, hooked) = hook(0, &["200 OK"]);
    std::fs::write(world.work().join("fourplane.yaml"), "fourplane: 1\ncluster: aurora\n").unwrap();
    assert_eq!(world.run(&["apply", "--yes"]).code, 0);
    let before = deliveries(&world).len();
    world.submit(&["--notify", &format!("end=http://localhost:{port}/"), "--", "true"]);
    let last = settled(&world, before + 1).pop().unwrap();
    let said = last["said"].as_str().unwrap();
    assert!(last["state"] == "gave-up" && said.contains("which is of the machine itself"), "{last}");
    assert_eq!(hooked.lock().unwrap().len(), 0);
}

#[test]
fn a_specification_tells_of_its_teams_jobs() {
    let world = World::new();
    let (port, hooked) = hook(0, &["200 OK"]);
    let more = format!(
        "teams: [{{ name: research }}]\nnotifications:\n  - {{ name: ops, kind: webhook, \
         to: 'http://127.0.0.1:{port}/', when: [failed, cancelled], teams: [research] }}\n"
    );
    apply(&world, None, &more);
    let plan = world.run(&["apply", "--dry-run"]);
    assert_eq!((plan.code, plan.out.as_str()), (0, "aurora: nothing to do\n"));
    for flags in [&["--team", "research"][..], &[]] {
        let id = world.submit(&[flags, &["--", "false"]].concat());
        assert_eq!(world.run(&["wait", &id]).code, 1);
    }
    let held = world.submit(&["--team", "research", "--hold", "--", "true"]);
    assert_eq!(world.run(&["cancel", &held]).code, 0);
    let told = settled(&world, 2);
    let seen: Vec<_> = told.iter().map(|one| (&one["job"], one["event"].as_str().unwrap())).collect();
    assert_eq!(seen, [(&Value::from(1), "failed"), (&Value::from(3), "cancelled")]);
    assert!(told.iter().all(|one| one["notification"] == "ops"), "{told:?}");
    assert_eq!(hooked.lock().unwrap().len(), 2);
}

#[test]
fn scripts_of_slurm_send_mail_or_are_told_that_they_do_not() {
    let world = World::new();
    let script = "#!/bin/sh\n#SBATCH --mail-type=END,FAIL\n#SBATCH --mail-user=ada@example.org\nexit 1\n";
    std::fs::write(world.work().join("job.sh"), script).unwrap();
    let without = world.run(&["run", "-W", "job.sh"]);
    assert_eq!(without.code, 1, "{without:?}");
    let warning = "warning: --mail-type: no mail is sent here, as there is no mail server\n";
    assert!(without.err.contains(warning), "{without:?}");
    let refused = world.run(&["run", "--notify", "fail=ada@example.org", "--", "false"]);
    assert!(refused.code == 3 && refused.err.contains("no mail is sent here"), "{refused:?}");
    let whom = world.run(&["run", "--mail-type", "END", "--", "true"]);
    assert!(whom.code == 3 && whom.err.contains("hint: add --mail-user ADDRESS"), "{whom:?}");

    let (relay, mailed) = relay();
    apply(&world, Some(relay), "");
    assert_eq!(world.run(&["run", "-W", "job.sh"]).code, 1);
    settled(&world, 1);
    eventually("it was mailed", || mailed.lock().unwrap().len() == 1);
    assert!(mailed.lock().unwrap()[0].contains("RCPT TO:<ada@example.org>"));
}

/// A user who is in no file of the system.
const SOMEBODY: u32 = 12_345;

#[test]
fn a_program_gets_the_rights_of_the_jobs_owner() {
    if skip_without_root("a_program_gets_the_rights_of_the_jobs_owner") {
        return;
    }
    let world = World::with(&["--cores", "4"]);
    let program = world.work().join("fourplane");
    let mut install = std::process::Command::new("install");
    install.args(["-m", "755", crate::world::PROGRAM]).arg(&program);
    assert_eq!(finish(install).code, 0);
    let tell = world.work().join("tell");
    let script = "#!/bin/sh\n{ id -u; id -g; id -G; pwd; grep NoNewPrivs /proc/self/status; } > told\nkill -9 $PPID\nexit 0\n";
    std::fs::write(&tell, script).unwrap();
    std::fs::set_permissions(&tell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let as_somebody = |uid: u32, args: &[&str]| {
        let mut command = world.command_of(&program, args);
        command.uid(uid).gid(uid);
        finish(command)
    };
    let ran = as_somebody(
        SOMEBODY,
        &["run", "-W", "--notify", "end=./tell", "--notify", "end=/no/such", "--", "true"],
    );
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = settled(&world, 2);
    let here = world.work().canonicalize().unwrap();
    let expect = format!("12345\n12345\n12345\n{}\nNoNewPrivs:\t1\n", here.display());
    assert_eq!(world.file("told"), expect, "{told:?}");
    assert_eq!(told[1]["said"], "there is no such program");
    assert_eq!(world.run(&["jobs"]).code, 0, "it cannot end the server");

    let own: Vec<Value> =
        serde_json::from_str(&as_somebody(SOMEBODY, &["notifications", "--json"]).out).unwrap();
    assert_eq!(own.len(), 2);
    let others = as_somebody(SOMEBODY + 1, &["notifications", "--json"]);
    assert_eq!((others.code, others.out.as_str()), (0, "[]\n"), "{others:?}");
}
