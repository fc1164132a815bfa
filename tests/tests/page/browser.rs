//! The page in headless Chromium: first view, launch and drain, keyboard, axe-core, no error on the console.

use std::{env, fs, path::PathBuf, time::Duration};

use croft_testkit::{Browser, Options, Part};
use croft_tests::{
    page_reader::{AUDIENCE, OPERATOR},
    stack::claims,
};
use k8s_openapi::jiff::Timestamp;
use kube::{Api, ResourceExt as _, api::DeleteParams};
use serde_json::{Value, json};

use crate::world::{READER, SHARED, TENANTS, World};

/// The folder for screenshots; without it there are none. `make page-screenshots` sets it.
const SHOTS: &str = "CROFT_PAGE_SCREENSHOTS";
/// Findings of axe-core that fail the test.
const SERIOUS: [&str; 2] = ["serious", "critical"];

/// A window of the browser.
pub(crate) struct Window<'a> {
    browser: &'a mut Browser,
    name: &'static str,
    origin: String,
}

impl<'a> Window<'a> {
    /// Opens a window with cookies of its own.
    async fn open(browser: &'a mut Browser, name: &'static str, origin: String, scheme: &str) -> Self {
        Self::sized(browser, name, origin, scheme, 1_280).await
    }

    /// The same, of so many pixels' width.
    pub(crate) async fn sized(
        browser: &'a mut Browser,
        name: &'static str,
        origin: String,
        scheme: &str,
        width: u32,
    ) -> Self {
        let mut window = Self { browser, name, origin };
        let origin = window.origin.clone();
        window.ask(json!({"do": "session", "origin": origin, "scheme": scheme, "width": width})).await;
        window
    }

    /// Fails if the view is wider than the window, or a word is broken in two.
    pub(crate) async fn fits(&mut self, view: &str) {
        let found = self.ask(json!({"do": "fits"})).await;
        assert_eq!((&found["beyond"], &found["broken"]), (&json!(0), &json!([])), "{}: {view}", self.name);
    }

    pub(crate) async fn ask(&mut self, mut command: Value) -> Value {
        command["session"] = json!(self.name);
        self.browser.ask(&command).await.unwrap()
    }

    /// Signs in by the address that `croft page` prints. Returns the milliseconds until the first view was there.
    pub(crate) async fn sign_in(&mut self, token: &str) -> f64 {
        let url = format!("{}/#token={token}", self.origin);
        self.ask(json!({"do": "goto", "url": url})).await;
        let millis = self.ask(json!({"do": "viewed"})).await["millis"].as_f64().unwrap();
        let url = self.ask(json!({"do": "url"})).await;
        assert_eq!(url["url"], json!(format!("{}/", self.origin)), "the address keeps no token");
        millis
    }

    pub(crate) async fn goto(&mut self, hash: &str, title: &str) {
        self.ask(json!({"do": "goto", "url": format!("{}/#/{hash}", self.origin)})).await;
        self.appears("h1", title).await;
        self.appears("main[aria-busy=false]", "").await;
    }

    pub(crate) async fn appears(&mut self, selector: &str, text: &str) -> i64 {
        let answer = self.ask(json!({"do": "appears", "selector": selector, "text": text})).await;
        answer["at"].as_i64().unwrap()
    }

    async fn text(&mut self, selector: &str) -> String {
        self.ask(json!({"do": "text", "selector": selector})).await["text"].as_str().unwrap().to_owned()
    }

    /// Fails if axe-core finds anything serious.
    pub(crate) async fn is_accessible(&mut self, view: &str) {
        let found = self.ask(json!({"do": "axe"})).await;
        let serious: Vec<&Value> = found["violations"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| SERIOUS.iter().any(|impact| one["impact"] == json!(impact)))
            .collect();
        assert!(serious.is_empty(), "{view}: {serious:#?}");
    }

    /// Fails if the paper lacks something that the screen shows, or a table is clipped. Returns the printed text.
    async fn prints(&mut self, view: &str) -> String {
        let printed = self.ask(json!({"do": "print"})).await;
        assert_eq!((&printed["missing"], &printed["clipped"]), (&json!([]), &json!([])), "{view}");
        assert_eq!(printed["isPdf"], json!(true), "{view}: {printed}");
        assert!(printed["bytes"].as_u64() > Some(5_000), "{view}: an empty page: {printed}");
        printed["text"].as_str().unwrap().to_owned()
    }

    /// Fails if anything was written to the console as an error, or another origin was asked.
    pub(crate) async fn has_no_errors(&mut self) {
        let found = self.ask(json!({"do": "errors"})).await;
        assert_eq!(found["errors"], json!([]), "{}", self.name);
    }

    async fn shot(&mut self, name: &str) {
        let Some(folder) = env::var_os(SHOTS).map(PathBuf::from) else { return };
        fs::create_dir_all(&folder).unwrap();
        self.ask(json!({"do": "shot", "path": folder.join(format!("{name}.png"))})).await;
    }
}

pub(crate) fn now() -> i64 {
    Timestamp::now().as_millisecond()
}

/// The time at which the pool's next NodeClaim is there.
async fn launched(world: &World, pool: &str, known: &[String]) -> i64 {
    loop {
        let all = claims(&world.admin, pool).await.unwrap();
        if all.iter().any(|claim| !known.contains(&claim.name_any())) {
            return now();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn known(world: &World, pool: &str) -> Vec<String> {
    claims(&world.admin, pool).await.unwrap().iter().map(|claim| claim.name_any()).collect()
}

/// The first view: tenants, pools, pending pods; by keyboard alone.
async fn overview(window: &mut Window<'_>) {
    let text = window.text("main").await;
    for part in [TENANTS[0], TENANTS[1], "pool-alpha", SHARED, "2 pending pods", "InsufficientResources"] {
        assert!(text.contains(part), "{part} isn't in {text}");
    }
    window.is_accessible("overview").await;
    window.prints("overview").await;
    window.shot("overview").await;
    // The heading has the focus: the navigation is before it.
    let mut stops = Vec::new();
    for (times, back) in [(6, true), (32, false)] {
        let answer = window.ask(json!({"do": "tab", "times": times, "back": back})).await;
        stops.extend(answer["stops"].as_array().unwrap().clone());
    }
    assert!(stops.iter().all(|stop| stop["isVisible"] == json!(true)), "each focus can be seen: {stops:#?}");
    for name in
        ["Skip to the content", "Overview", "Curves", "Plans", "What if", "Sign out", "alpha", "pool-bravo"]
    {
        assert!(stops.iter().any(|stop| stop["name"] == json!(name)), "{name} can't be reached: {stops:#?}");
    }
}

/// Why a pod is pending, reached from the overview.
async fn pending_pod(window: &mut Window<'_>, pod: &str) {
    window.ask(json!({"do": "click", "selector": format!("a[href='#/pods/alpha/{pod}']")})).await;
    window.appears("h1", pod).await;
    window.appears("section", "Why it is pending").await;
    window.appears(".reasons", "pool-alpha").await;
    let text = window.text("main").await;
    assert!(text.contains("InsufficientResources") && text.contains("64"), "{text}");
    window.is_accessible("pending pod").await;
    window.shot("pending-pod").await;
}

/// A launch and a drain appear without a reload. Returns the milliseconds from the NodeClaim to its block.
async fn launch_and_drain(window: &mut Window<'_>, world: &World, pool: &str) -> i64 {
    window.goto(&format!("pools/{pool}"), pool).await;
    window.appears(".block.ready", "").await;
    let before = known(world, pool).await;
    let scale = ["scale", "deployment/alpha-web", "-n", TENANTS[0], "--replicas", "4"];
    let (_, at, shown) = tokio::join!(
        world.stack.plane.kubectl(scale),
        launched(world, pool, &before),
        window.appears(".block.launching", ""),
    );
    window.ask(json!({"do": "vanishes", "selector": ".block.launching"})).await;
    window.is_accessible("pool").await;
    window.shot("pool").await;

    let api: Api<croft_api::NodeClaim> = Api::all(world.admin.clone());
    let gone = &before[0];
    let now = DeleteParams::default();
    let (deleted, _) =
        tokio::join!(api.delete(gone, &now), window.appears(".block.draining, .block.blocked", ""),);
    deleted.unwrap();
    window.ask(json!({"do": "vanishes", "selector": ".block.draining, .block.blocked"})).await;
    shown - at
}

/// The nodes of a pool by arrow keys, and one's page by Enter.
async fn node_by_keyboard(window: &mut Window<'_>, world: &World, pool: &str) {
    let (node, _) = world.node(pool).await;
    window.goto(&format!("pools/{pool}"), pool).await;
    window.appears(".block.ready", "").await;
    let mut stops = Vec::new();
    for _ in 0..30 {
        let stop = window.ask(json!({"do": "tab", "times": 1})).await["stops"][0].clone();
        if stop["href"].as_str().is_some_and(|href| href.starts_with("#/nodes/")) {
            window.ask(json!({"do": "press", "keys": ["End", "Home", "Enter"]})).await;
            window.appears("h1", "Node ").await;
            window.appears(".timeline", "").await;
            return;
        }
        stops.push(stop);
    }
    panic!("{node} can't be reached: {stops:#?}");
}

/// The beginning of the record, its last snapshot, and the present again, by the keys of the slider.
async fn past_by_slider(window: &mut Window<'_>) {
    for (hash, title, present) in [
        ("", "Overview", "2 tenants"),
        ("pools/pool-bravo", "Pool pool-bravo", "1 node"),
        ("tenants/bravo", "Tenant bravo", "3 pods"),
    ] {
        window.goto(hash, title).await;
        window.appears(".timebar output", "now").await;
        window.ask(json!({"do": "focus", "selector": ".timebar input"})).await;
        window.ask(json!({"do": "press", "keys": ["Home"]})).await;
        window.appears("h2", "The hour before").await;
        window.ask(json!({"do": "press", "keys": ["End", "ArrowLeft"]})).await;
        window.appears(".snapshot", "Snapshot of").await;
        window.is_accessible(&format!("{title} in the past")).await;
        let printed = window.prints(title).await;
        assert!(printed.contains("Snapshot of"), "the paper says of which time it is: {printed}");
        // axe-core and the printed page have moved the focus.
        window.ask(json!({"do": "focus", "selector": ".timebar input"})).await;
        window.ask(json!({"do": "press", "keys": ["End"]})).await;
        window.appears(".timebar output", "now").await;
        window.appears(".sum", present).await;
    }
}

/// The costs since the beginning, on screen and on paper.
async fn curves(window: &mut Window<'_>) {
    window.goto("curves", "Curves").await;
    window.appears(".chart svg .area", "").await;
    window.appears(".area-legend", TENANTS[0]).await;
    window.is_accessible("curves").await;
    window.prints("curves").await;
    window.shot("curves").await;
}

#[tokio::test]
async fn operators_and_tenants_use_the_page_in_chromium() {
    let mut world = World::start(Options::default()).await;
    let [alpha, bravo] = TENANTS;
    let address = world.stack.croft.address(Part::Page).unwrap();
    let forwarded = world.stack.croft.forward().unwrap();
    let token =
        async |(namespace, name)| world.stack.plane.token_for(namespace, name, Some(AUDIENCE)).await.unwrap();
    let mut browser = Browser::start().unwrap();

    let mut window = Window::open(&mut browser, "operator", format!("https://{address}"), "light").await;
    let first_view = window.sign_in(&token(OPERATOR).await).await;
    overview(&mut window).await;
    pending_pod(&mut window, &world.pod(alpha, "alpha-huge").await).await;
    let event = launch_and_drain(&mut window, &world, "pool-alpha").await;
    println!("first_view_ms={first_view:.0} event_ms={event}");
    node_by_keyboard(&mut window, &world, "pool-bravo").await;
    window.appears("#launch", "Why it was launched").await;
    window.appears(".timeline li:first-child b", "plan").await;
    window.ask(json!({"do": "click", "selector": "section[aria-labelledby=kept] button"})).await;
    window.appears("section[aria-labelledby=kept] .sum", "it ").await;
    window.ask(json!({"do": "click", "selector": "section[aria-labelledby=advice] button"})).await;
    window.appears("section[aria-labelledby=advice] .sum", "").await;
    window.is_accessible("node").await;
    window.prints("node").await;
    past_by_slider(&mut window).await;
    window.goto("plans", "Plans").await;
    window.appears("table", "Lower bound").await;
    window.is_accessible("plans").await;
    window.prints("plans").await;
    curves(&mut window).await;
    window.goto("what-if", "What if").await;
    window.ask(json!({"do": "fill", "selector": "input[list]", "text": alpha})).await;
    window.ask(json!({"do": "click", "selector": "main button[type=submit]"})).await;
    window.appears("h2", "It adds $").await;
    window.is_accessible("what if").await;
    let printed = window.prints("what if").await;
    assert!(printed.contains("kind: Deployment"), "the manifest that was tried: {printed}");
    window.shot("what-if").await;
    window.has_no_errors().await;
    window.ask(json!({"do": "click", "selector": "header button"})).await;
    window.appears("main", "Sign in").await;
    window.is_accessible("sign-in").await;

    // A tenant's reader on a forwarded port, in the dark.
    let mut window = Window::open(&mut browser, "tenant", format!("http://{forwarded}"), "dark").await;
    window.sign_in(&token((alpha, READER)).await).await;
    let text = window.text("body").await;
    assert!(text.contains("pool-alpha") && !text.contains(bravo) && !text.contains("Plans"), "{text}");
    window.is_accessible("a tenant's overview").await;
    window.goto(&format!("tenants/{alpha}"), alpha).await;
    window.appears("#bill", "Bill of the month").await;
    window.is_accessible("tenant").await;
    window.ask(json!({"do": "click", "selector": "section[aria-labelledby=advice] button"})).await;
    window.appears("section[aria-labelledby=advice] .sum", "").await;
    window.is_accessible("a tenant's advice").await;
    window.prints("a tenant in the dark").await;
    window.shot("tenant-dark").await;
    window.has_no_errors().await;
    window.goto(&format!("tenants/{bravo}"), bravo).await;
    window.appears(".error", "that you may see").await;
    browser.end().await.unwrap();
    world.stack.check().unwrap();
}
