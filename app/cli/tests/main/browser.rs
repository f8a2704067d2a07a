//! A real browser, driven by `ChromeDriver` (W3C `WebDriver` and Chromium's own commands).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::world::eventually;

/// A window without a screen.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one; none where it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        let mut driver = command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let told = lines
            .find_map(|line| line.unwrap().split_once("successfully on port ").map(|told| told.1.to_owned()));
        let port = told.expect("the driver tells its port").trim_end_matches('.').parse().unwrap();
        // Read on, or the driver would stop at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self { driver, port, session: String::new(), profile };
        let profile = format!("--user-data-dir={}", browser.profile.path().display());
        let flags =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", &profile];
        let wanted = json!({"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}});
        let session = browser.call("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}}));
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    /// One command to the driver; its answer must be a success.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// One command to the driver.
    fn try_call(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0, "the driver went away");
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        if answer["value"]["error"].is_null() { Ok(answer["value"].clone()) } else { Err(answer) }
    }

    fn post(&self, what: &str, body: &Value) -> Value {
        self.call("POST", &format!("{}/{what}", self.session), body)
    }

    /// Goes to an address.
    pub(crate) fn open(&self, url: &str) {
        self.post("url", &json!({"url": url}));
    }

    /// What a function's body returns in the page.
    pub(crate) fn eval(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until the page shows this text.
    pub(crate) fn shows(&self, text: &str) {
        eventually(&format!("the page shows {text:?}"), || {
            self.eval("return document.body.innerText").as_str().unwrap().contains(text)
        });
    }

    /// Waits until the row of a job shows this text.
    pub(crate) fn row_shows(&self, job: &str, text: &str) {
        let row = format!(
            "return [...document.querySelectorAll('tr')].map(r => r.innerText).find(t => t.startsWith('{job}\\t'))"
        );
        eventually(&format!("job {job} shows {text:?}"), || {
            self.eval(&row).as_str().is_some_and(|row| row.contains(text))
        });
    }

    /// Clicks what a selector finds first.
    pub(crate) fn click(&self, selector: &str) {
        let click = format!(
            "const found = document.querySelector(\"{selector}\"); setTimeout(() => found?.click()); return !!found"
        );
        eventually(&format!("{selector} is there"), || self.eval(&click) == true);
    }

    /// Answers the question that the page asks.
    pub(crate) fn answer(&self, yes: bool) {
        let path = format!("{}/alert/{}", self.session, if yes { "accept" } else { "dismiss" });
        eventually("the page asks", || self.try_call("POST", &path, &json!({})).is_ok());
    }

    /// A screen of this width, and light or dark colours.
    pub(crate) fn screen(&self, width: u32, scheme: &str) {
        let cdp = |name: &str, params: Value| {
            self.post("goog/cdp/execute", &json!({"cmd": name, "params": params}))
        };
        let metrics = json!({"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": width < 500});
        cdp("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        cdp("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Keeps a picture in the directory that `FOURPLANE_SCREENSHOTS` names, if it is set.
    pub(crate) fn picture(&self, name: &str) {
        let Some(dir) = std::env::var_os("FOURPLANE_SCREENSHOTS") else { return };
        let picture = self.call("GET", &format!("{}/screenshot", self.session), &Value::Null);
        let path = std::path::Path::new(&dir).join(format!("{name}.png.base64"));
        std::fs::write(path, picture.as_str().unwrap()).unwrap();
    }

    /// What the console said since it was asked last: warnings and errors.
    pub(crate) fn complaints(&self) -> Vec<Value> {
        let said = self.post("se/log", &json!({"type": "browser"}));
        said.as_array().unwrap().iter().filter(|line| line["level"] != "INFO").cloned().collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !std::thread::panicking() {
            self.call("DELETE", &self.session, &Value::Null);
        }
        // The browser ends with its driver.
        _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.driver),
            rustix::process::Signal::TERM,
        );
        drop(self.driver.wait());
    }
}
