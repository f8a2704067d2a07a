//! The page as people see it, in a real Chromium.

use serde_json::json;

use crate::browser::Browser;
use crate::world::{World, skip};

/// The least contrast of any text with what is behind it; 4.5 is what WCAG 2.2 asks for (1.4.3).
const CONTRAST: &str = r"
const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b; };
const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
const seen = color => { canvas.fillStyle = dark ? '#121212' : '#fff'; canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
const all = [...document.querySelectorAll('body, body *:not(script)')].filter(e => e.innerText).map(e => {
  const style = getComputedStyle(e), [a, b] = [light(seen(style.color)), light(seen(style.backgroundColor))];
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); });
return Math.min(...all);";

/// Whether anything sticks out of the page at the side.
const TOO_WIDE: &str = "return document.documentElement.scrollWidth > innerWidth";

#[test]
fn the_page_lives_in_a_real_browser() {
    let Some(browser) = Browser::start() else {
        return skip("the_page_lives_in_a_real_browser", "chromium and chromedriver are not installed");
    };
    let world = World::with(&["--allow-root", "--cores", "4", "--simulate-gpus", "2"]);
    browser.open(world.told["login"].as_str().unwrap());
    browser.shows("fourplane run -- echo hello");
    assert_eq!(browser.eval("return location.pathname + document.cookie"), "/", "no secret is left to see");
    browser.eval("window.same = true");

    let script = "until [ -e go ]; do sleep 0.05; done";
    let works = world.submit(&["--gpus", "1", "--name", "works", "--", "sh", "-c", script]);
    browser.row_shows(&works, "running");
    browser.shows(&format!("job {works} of "));
    std::fs::write(world.work().join("go"), "").unwrap();
    browser.row_shows(&works, "completed");
    let stays = world.submit(&["--name", "stays", "--", "sleep", "600"]);
    browser.row_shows(&stays, "running");
    assert_eq!(world.run(&["cancel", &stays]).code, 0);
    browser.row_shows(&stays, "cancelled");
    let fails = world.submit(&["--name", "fails", "--", "sh", "-c", "exit 3"]);
    browser.row_shows(&fails, "exited with code 3");
    assert_eq!(browser.eval("return window.same"), true, "it was never loaded anew");

    let home = browser.eval("return location.origin + '/'");
    let home = home.as_str().unwrap();
    let holds = world.submit(&["--gpus", "2", "--time", "2h", "--name", "holds", "--", "sleep", "600"]);
    browser.row_shows(&holds, "running");
    let waits = world.submit(&["--gpus", "1", "--name", "waits", "--", "true"]);
    browser.row_shows(&waits, "it lacks 1 GPU");
    for shown in ["GPU time since 00:00", "simulated", "not measured", "fourplane nodes"] {
        browser.shows(shown);
    }
    browser.click(&format!("a[href='/jobs/{waits}']"));
    browser.shows("it lacks 1 GPU");
    browser.shows(&format!("fourplane cancel {holds}"));
    looks_well(&browser, "why");
    browser.click(&format!("a[href='/jobs/{holds}']"));
    browser.shows("What it asked for");
    browser.click("button");
    browser.answer(false);
    assert_eq!(world.job(&holds)["state"], "running", "a no is a no");
    browser.click("button");
    browser.answer(true);
    browser.shows("cancelled by root");
    assert_eq!(browser.eval("return document.querySelector('button')"), json!(null));
    looks_well(&browser, "cancelled");
    browser.click("h1 a");
    browser.row_shows(&waits, "completed");
    assert_eq!(world.run(&["drain", "--reason", "a fan is loud"]).code, 0);
    // A drain changes no job: a page that is opened shows it.
    browser.open(home);
    browser.shows("takes no new work: a fan is loud");
    browser.shows("Needs attention");
    assert_eq!(world.run(&["resume"]).code, 0);
    browser.open(&format!("{home}jobs/4000"));
    browser.shows("there is no job 4000");
    assert_eq!(json!(browser.complaints().len()), json!(1), "the browser tells of a 404");
    browser.open(home);

    let long = "long-name-".repeat(1_000);
    let long = world.submit(&["--hold", "--name", &long, "--", "true"]);
    browser.row_shows(&long, "somebody holds it");
    let many = world.submit(&["--array", "0-999", "--name", "many words in a name", "--", "sleep", "600"]);
    browser.row_shows(&many, "waiting");
    looks_well(&browser, "first");
    assert_eq!(json!(browser.complaints()), json!([]), "its own policy lets it do what it does");
}

/// At the width of a desktop and of a phone, in light and in dark.
fn looks_well(browser: &Browser, name: &str) {
    for (width, scheme) in [(1_200, "light"), (1_200, "dark"), (360, "light"), (360, "dark")] {
        browser.screen(width, scheme);
        assert_eq!(browser.eval(TOO_WIDE), false, "{name} {width} {scheme}");
        let contrast = browser.eval(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{name} {width} {scheme}: a contrast of {contrast}");
        browser.picture(&format!("{name}-{width}-{scheme}"));
    }
}
