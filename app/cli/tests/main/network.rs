//! Tokens and login links, over TCP.

use crate::world::{Ran, World, finish};

#[test]
fn a_token_opens_the_network_port() {
    let world = World::new();
    let url = format!("http://{}", world.told["address"].as_str().unwrap());
    let ask = |token: &str, args: &[&str]| -> Ran {
        let mut command = world.command(args);
        command.env("FOURPLANE_SERVER", &url).env("FOURPLANE_TOKEN", token);
        finish(command)
    };
    let refused = ask("nonsense", &["jobs"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.err.contains("token"), "{refused:?}");

    let made = world.run(&["token", "create", "laptop", "--expires", "1h"]);
    assert_eq!(made.code, 0, "{made:?}");
    let secret = made.out.trim();
    let ran = ask(secret, &["run", "--", "echo", "from afar"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "from afar\n"), "{ran:?}");

    for terminal in [["shell"].as_slice(), &["attach", "1"]] {
        let refused = ask(secret, terminal);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.err.contains("over the network") && refused.err.contains("hint: "), "{refused:?}");
    }

    let listed = world.run(&["token", "list"]).out;
    assert!(listed.contains("laptop") && !listed.contains(secret), "{listed}");
    let id = listed.lines().nth(1).unwrap().split(' ').next().unwrap();
    assert_eq!(world.run(&["token", "revoke", id]).code, 0);
    assert_eq!(ask(secret, &["jobs"]).code, 3);
}

#[test]
fn a_login_link_names_the_servers_address() {
    let world = World::new();
    let link = world.run(&["login"]);
    let address = world.told["address"].as_str().unwrap();
    assert!(link.out.starts_with(&format!("http://{address}/login?token=")), "{link:?}");
    assert!(world.told["login"].as_str().unwrap().starts_with(&format!("http://{address}/login?token=")));
}
