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

    let long = "long-name-".repeat(1_000);
    let long = world.submit(&["--hold", "--name", &long, "--", "true"]);
    browser.row_shows(&long, "held");
    let many = world.submit(&["--array", "0-999", "--name", "many words in a name", "--", "sleep", "600"]);
    browser.row_shows(&many, "waiting");
    for (width, scheme) in [(1_200, "light"), (1_200, "dark"), (360, "light"), (360, "dark")] {
        browser.screen(width, scheme);
        assert_eq!(browser.eval(TOO_WIDE), false, "{width} {scheme}");
        let contrast = browser.eval(CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{width} {scheme}: a contrast of {contrast}");
        browser.picture(&format!("{width}-{scheme}"));
    }
    assert_eq!(json!(browser.complaints()), json!([]), "its own policy lets it do what it does");
}
