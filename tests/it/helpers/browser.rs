//! A real headless browser, controlled by its own protocol: it clicks, drags, types, and reports what it fetched.

use crate::helpers::{debian, terminal::PATIENCE};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};
use tempfile::TempDir;

/// Nothing of the browser's own affairs is fetched either.
const QUIET: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
                     --disable-component-update --disable-sync --hide-scrollbars --remote-debugging-pipe";

/// The browser, or why there is none.
pub(crate) fn found() -> Result<&'static Path, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOUND.get_or_init(|| debian::program("chromium", "usr/lib/chromium/chromium")).as_deref().map_err(Clone::clone)
}

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    asked: u64,
    /// The events on the page, as the browser reports them.
    pub(crate) events: Vec<Value>,
    _home: TempDir,
}

impl Browser {
    /// Starts one on a window of so many pixels, and opens a file in it.
    pub(crate) fn open(program: &Path, page: &Path, width: u32, dark: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        // It reads requests from the third descriptor, and answers on the fourth.
        let start = format!("exec \"$1\" {QUIET} --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null");
        let mut command = Command::new("sh");
        command.args(["-c", &start]).arg(home.path()).arg(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut it = Self { child, to, from, session: String::new(), asked: 0, events: Vec::new(), _home: home };
        let target = it.ask("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let attached = it.ask("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        attached["sessionId"].as_str().unwrap().clone_into(&mut it.session);
        for domain in ["Page", "Network", "Runtime", "Log"] {
            it.ask(&format!("{domain}.enable"), &json!({}));
        }
        it.resize(width, dark);
        it.ask("Page.navigate", &json!({"url": format!("file://{}", page.display())}));
        while !it.events.iter().any(|it| it["method"] == "Page.loadEventFired") {
            let event = it.read();
            it.events.push(event);
        }
        it
    }

    /// A window of so many pixels, and the colours that its user prefers.
    pub(crate) fn resize(&mut self, width: u32, dark: bool) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        self.media(&json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}));
    }

    /// Sets the media features of the page.
    pub(crate) fn media(&mut self, media: &Value) {
        self.ask("Emulation.setEmulatedMedia", media);
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.asked += 1;
        let mut request = json!({"id": self.asked, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        self.to.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut reported = self.read();
            if reported["id"] == self.asked {
                assert!(reported["error"].is_null(), "{method}: {reported}");
                return reported["result"].take();
            }
            self.events.push(reported);
        }
    }

    fn read(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&message).unwrap()
    }

    /// Returns the value of an expression on the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let mut reported = self.ask("Runtime.evaluate", &json!({"expression": expression, "returnByValue": true}));
        assert!(reported["exceptionDetails"].is_null(), "{expression}: {reported}");
        reported["result"]["value"].take()
    }

    /// Waits until a condition of the page holds: what follows from input follows when the page comes to it.
    pub(crate) fn until(&mut self, condition: &str) {
        let resize = format!(
            "new Promise(done => {{ const begun = performance.now(); const look = () => {condition} ? done(true) : \
             performance.now() - begun > {} ? done(false) : setTimeout(look, 5); look(); }})",
            PATIENCE.as_millis()
        );
        let reported = self.ask("Runtime.evaluate", &json!({"expression": resize, "awaitPromise": true}));
        assert_eq!(reported["result"]["value"], true, "{condition}: {reported}");
    }

    /// Returns the value of an expression on the page as text.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_else(|| panic!("{expression} is no text")).to_owned()
    }

    /// The middle of the element that a selector names, once it is in view and stays there, and half its size.
    pub(crate) fn place(&mut self, selector: &str) -> [f64; 4] {
        let find = format!(
            "(async () => {{ const it = document.querySelector({selector:?}), frame = () => new Promise(requestAnimationFrame); \
             it.scrollIntoView({{block: 'center'}}); \
             for (let still = 0, last = scrollY; still < 5; last = scrollY) {{ await frame(); still = scrollY === last ? still + 1 : 0; }} \
             it.scrollIntoView({{block: 'center'}}); await frame(); await frame(); \
             const box = it.getBoundingClientRect(); \
             return [box.x + box.width / 2, box.y + box.height / 2, box.width / 2, box.height / 2]; }})()"
        );
        let asked = json!({"expression": find, "awaitPromise": true, "returnByValue": true});
        let place = self.ask("Runtime.evaluate", &asked);
        std::array::from_fn(|at| place["result"]["value"][at].as_f64().unwrap())
    }

    /// Moves the pointer, presses or lets go of it, or turns its wheel.
    pub(crate) fn pointer(&mut self, kind: &str, [x, y]: [f64; 2], down: bool, wheel: f64) {
        let button = if kind == "mouseMoved" && !down || kind == "mouseWheel" { "none" } else { "left" };
        let event = json!({"type": kind, "x": x, "y": y, "button": button, "buttons": u8::from(down), "clickCount": 1,
            "deltaX": 0, "deltaY": wheel});
        self.ask("Input.dispatchMouseEvent", &event);
    }

    /// Clicks into the middle of an element.
    pub(crate) fn click(&mut self, selector: &str) {
        let [x, y, ..] = self.place(selector);
        self.pointer("mousePressed", [x, y], true, 0.0);
        self.pointer("mouseReleased", [x, y], false, 0.0);
    }

    /// Presses a key, by the name that pages know it by.
    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "key": key, "code": key});
            if key == "Tab" {
                event["windowsVirtualKeyCode"] = 9.into();
            }
            self.ask("Input.dispatchKeyEvent", &event);
        }
    }

    /// Returns the requests over a network, and the errors: there must be none.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let is_fetch = |it: &&Value| {
            it["method"] == "Network.requestWillBeSent"
                && !it["params"]["request"]["url"].as_str().is_some_and(|url| url.starts_with("file://"))
        };
        let bad =
            ["Runtime.exceptionThrown", "Page.javascriptDialogOpening", "Log.entryAdded", "Runtime.consoleAPICalled"];
        let is_bad = |it: &&Value| bad.iter().any(|bad| it["method"] == *bad);
        self.events.iter().filter(|it| is_fetch(it) || is_bad(it)).map(ToString::to_string).collect()
    }

    /// Saves a picture of the whole page to `$GPUWATCH_TEST_PICTURES`, if that is set, to review by eye.
    pub(crate) fn picture(&mut self, name: &str) {
        let Some(dir) = std::env::var_os("GPUWATCH_TEST_PICTURES") else { return };
        let shot = self.ask("Page.captureScreenshot", &json!({"format": "png", "captureBeyondViewport": true}));
        fs::create_dir_all(&dir).unwrap();
        fs::write(Path::new(&dir).join(format!("{name}.png")), base64(shot["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.child.wait();
    }
}

fn base64(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let (mut bits, mut held) = (0_u32, 0);
    for byte in text.bytes().take_while(|it| *it != b'=') {
        let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digit = digits.iter().position(|it| *it == byte).unwrap();
        bits = bits << 6 | u32::try_from(digit).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            out.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    out
}
