//! The simulated cloud on a socket.

use std::{
    collections::BTreeMap,
    path::Path as FilePath,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use croft_runtime::clock::{Clock, SystemClock};
use serde_json::Value;
use tokio::sync::{Notify, mpsc};

use crate::{
    answer::{Answer, Call, Refusal, Service},
    control::Control,
    journal::{Entry, Journal, JournalError},
    params::Params,
    wire,
    world::{Happening, Settings, World},
};

/// The source of the simulator's time.
#[derive(Debug)]
enum Time {
    /// A clock, plus what was added to it.
    Real(AtomicU64),
    /// Only what is added.
    Virtual(AtomicU64),
}

impl Time {
    fn now(&self) -> u64 {
        match self {
            Self::Real(ahead) => {
                let wall = u64::try_from(SystemClock.wall().as_millisecond()).unwrap_or_default();
                wall + ahead.load(Ordering::Relaxed)
            }
            Self::Virtual(now) => now.load(Ordering::Relaxed),
        }
    }

    fn advance(&self, ms: u64) {
        match self {
            Self::Real(counter) | Self::Virtual(counter) => counter.fetch_add(ms, Ordering::Relaxed),
        };
    }
}

/// A world with its time, shared by server, kubelets and tests.
#[derive(Debug)]
pub struct Simulator {
    world: Mutex<World>,
    time: Time,
    changed: Notify,
    happenings: mpsc::UnboundedSender<Happening>,
    journal: Option<Mutex<Journal>>,
}

/// A simulator with a journal.
#[derive(Debug)]
pub struct Remembering {
    /// The simulator.
    pub simulator: Arc<Simulator>,
    /// Changes of instances' states; those before the restart are repeated.
    pub happenings: mpsc::UnboundedReceiver<Happening>,
    /// False if an earlier process began the journal.
    pub fresh: bool,
}

impl Simulator {
    /// On a real clock. The receiver gets changes of instances' states.
    #[must_use]
    pub fn real(settings: Settings) -> (Arc<Self>, mpsc::UnboundedReceiver<Happening>) {
        let time = Time::Real(AtomicU64::new(0));
        let world = World::new(settings, time.now());
        Self::new(world, time, None)
    }

    /// On a real clock, replaying `file` and recording into it.
    ///
    /// # Errors
    /// If the file can't be read or written.
    pub fn remembering(settings: Settings, file: &FilePath) -> Result<Remembering, JournalError> {
        let (mut journal, entries) = Journal::open(file)?;
        let fresh = entries.is_empty();
        let time = Time::Real(AtomicU64::new(0));
        let begun = match entries.first() {
            Some(Entry::Begun(at)) => *at,
            _ => {
                let now = time.now();
                journal.write(&Entry::Begun(now))?;
                now
            }
        };
        let mut world = World::new(settings, begun);
        for entry in entries {
            match entry {
                Entry::Begun(_) => {}
                Entry::Call(at, call) => drop(world.handle(&call, at)),
                Entry::Control(at, control) => {
                    if let Control::Advance { ms } = control {
                        time.advance(ms);
                    }
                    world.advance(at);
                    let policy = |source| JournalError::Policy { path: file.to_owned(), source };
                    world.control(control).map_err(policy)?;
                }
            }
        }
        let (simulator, happenings) = Self::new(world, time, Some(Mutex::new(journal)));
        Ok(Remembering { simulator, happenings, fresh })
    }

    /// On virtual time from `start` on (milliseconds since 1970).
    #[must_use]
    pub fn on_virtual_time(
        settings: Settings,
        start: u64,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Happening>) {
        Self::new(World::new(settings, start), Time::Virtual(AtomicU64::new(start)), None)
    }

    fn new(
        world: World,
        time: Time,
        journal: Option<Mutex<Journal>>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Happening>) {
        let (happenings, receiver) = mpsc::unbounded_channel();
        let world = Mutex::new(world);
        (Arc::new(Self { world, time, changed: Notify::new(), happenings, journal }), receiver)
    }

    /// Records a request before it takes effect. One that can't be recorded has no effect: a later process wouldn't
    /// know of it.
    fn remember(&self, entry: impl FnOnce() -> Entry) -> Result<(), Refusal> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let written = journal.lock().unwrap_or_else(PoisonError::into_inner).write(&entry());
        written.map_err(|error| {
            tracing::error!(%error, "a call was refused");
            Refusal::new("InternalError", error.to_string())
        })
    }

    /// Carries out a control request.
    ///
    /// # Errors
    /// A policy that can't be enforced, or a journal that can't be written.
    pub fn control(&self, wanted: Control) -> Result<(), Refusal> {
        if let Control::Advance { ms } = wanted {
            self.time.advance(ms);
        }
        self.with(|world| {
            let at = self.time.now();
            self.remember(|| Entry::Control(at, wanted.clone()))?;
            world.control(wanted).map_err(|error| Refusal::new("ValidationError", error.to_string()))
        })
    }

    /// Calls a function with the world at the present time.
    pub fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let result = self.look(act);
        self.changed.notify_waiters();
        result
    }

    /// [`Simulator::with`] without waking waiters.
    fn look<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        // A panic in a test doesn't invalidate the world.
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.advance(self.time.now());
        let result = act(&mut world);
        for happening in world.take_happenings() {
            // Without a cluster there is no receiver.
            let _ = self.happenings.send(happening);
        }
        result
    }

    /// Milliseconds since 1970.
    pub fn now(&self) -> u64 {
        self.time.now()
    }

    /// Advances virtual time.
    pub fn advance(&self, by: Duration) {
        self.time.advance(u64::try_from(by.as_millis()).unwrap_or(u64::MAX));
        self.with(|_| ());
    }

    pub(crate) fn call(&self, call: &Call) -> (Answer, u64) {
        self.with(|world| {
            let now = self.time.now();
            match self.remember(|| Entry::Call(now, call.clone())) {
                Ok(()) => world.handle(call, now),
                Err(refusal) => (Answer::Refused(refusal), 0),
            }
        })
    }

    /// Wakes whenever an instance's state changes, so that its kubelet learns of it. Runs until dropped; on virtual
    /// time it returns at once, since [`Simulator::advance`] checks.
    pub async fn tick(self: Arc<Self>) {
        loop {
            let next = self.look(|world| world.next_change());
            let wait = next.map_or(Duration::from_secs(3600), |at| {
                Duration::from_millis(at.saturating_sub(self.now()).max(1))
            });
            let changed = self.changed.notified();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = changed => {}
            }
        }
    }
}

/// Every route of the simulated cloud.
pub fn router(simulator: Arc<Simulator>) -> Router {
    Router::new()
        .route("/", post(query_or_json))
        .route("/clusters", get(eks))
        .route("/clusters/{name}", get(eks))
        .route("/clusters/{name}/{kind}", get(eks))
        .route("/clusters/{name}/{kind}/{id}", get(eks))
        .route("/_control", post(control))
        .route("/_control/state", get(report))
        .with_state(simulator)
}

async fn report(State(simulator): State<Arc<Simulator>>) -> Json<Value> {
    Json(simulator.with(|world| world.report()))
}

async fn control(State(simulator): State<Arc<Simulator>>, Json(wanted): Json<Control>) -> Response {
    match simulator.control(wanted) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
            (status, refusal.message).into_response()
        }
    }
}

/// EKS's reads: the path names the cluster and what of it, the query the rest.
async fn eks(
    State(simulator): State<Arc<Simulator>>,
    Path(path): Path<BTreeMap<String, String>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let part = |name: &str| path.get(name).map(String::as_str);
    let action = match (part("name"), part("kind"), part("id")) {
        (None, ..) => "ListClusters",
        (_, None, _) => "DescribeCluster",
        (_, Some("access-entries"), None) => "ListAccessEntries",
        (_, Some("access-entries"), Some(_)) => "DescribeAccessEntry",
        (_, Some("pod-identity-associations"), None) => "ListPodIdentityAssociations",
        (_, Some("pod-identity-associations"), Some(_)) => "DescribePodIdentityAssociation",
        (_, Some("fargate-profiles"), None) => "ListFargateProfiles",
        (_, Some("fargate-profiles"), Some(_)) => "DescribeFargateProfile",
        (_, Some(_), _) => return StatusCode::NOT_FOUND.into_response(),
    };
    let fields = path.iter().chain(&query).map(|(name, value)| (name.clone(), Value::from(value.as_str())));
    let call = Call {
        service: Service::Eks,
        action: action.to_owned(),
        params: Params::default(),
        json: Value::Object(fields.collect()),
        access_key: wire::access_key(&headers),
    };
    answer(&simulator, &call).await
}

async fn query_or_json(State(simulator): State<Arc<Simulator>>, headers: HeaderMap, body: Bytes) -> Response {
    match wire::read(&headers, &body) {
        Ok(call) => match check_scope(&simulator, call.service, &headers) {
            Ok(()) => answer(&simulator, &call).await,
            Err(refusal) => wire::refuse(call.service, &refusal).into_response(),
        },
        Err(refusal) => wire::refuse(Service::Ec2, &refusal).into_response(),
    }
}

/// A signature is valid in one region only, except for IAM, STS and the price list.
fn check_scope(simulator: &Simulator, service: Service, headers: &HeaderMap) -> Result<(), Refusal> {
    if !matches!(service, Service::Ec2 | Service::Ssm | Service::Sqs | Service::Eks | Service::Events) {
        return Ok(());
    }
    let Some(region) = wire::signed_region(headers) else {
        return Ok(());
    };
    let here = simulator.look(|world| world.settings.region.clone());
    if region == here {
        return Ok(());
    }
    let code = if service == Service::Ec2 { "AuthFailure" } else { "InvalidSignatureException" };
    Err(Refusal::new(code, format!("Credential should be scoped to a valid region, not '{region}'.")))
}

async fn answer(simulator: &Simulator, call: &Call) -> Response {
    let (mut result, latency) = simulator.call(call);
    if call.action == "ReceiveMessage" {
        result = long_poll(simulator, call, result).await;
    }
    if latency > 0 {
        tokio::time::sleep(Duration::from_millis(latency)).await;
    }
    wire::write(call, &result).map_or_else(broken, IntoResponse::into_response)
}

/// An empty queue answers when a message arrives, or after WaitTimeSeconds.
async fn long_poll(simulator: &Simulator, call: &Call, mut result: Answer) -> Answer {
    let wait = call.json.get("WaitTimeSeconds").and_then(Value::as_u64).unwrap_or(0).min(20);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(wait);
    while matches!(&result, Answer::Json(value) if value.get("Messages").is_none()) {
        let changed = simulator.changed.notified();
        if tokio::time::timeout_at(deadline, changed).await.is_err() {
            break;
        }
        let now = simulator.now();
        // The server polls itself; this isn't another call of the client.
        result = simulator.look(|world| world.handle_quietly(call, now));
    }
    result
}

/// A truncated answer: the client can't tell whether the call took effect.
fn broken() -> Response {
    let cut =
        futures::stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut off by a fault rule")) });
    Response::new(Body::from_stream(cut))
}
