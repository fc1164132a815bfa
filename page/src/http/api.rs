//! The views as JSON. Each handler takes a [`Reader`], so that there is no view without a scope.

use axum::{
    Json,
    extract::{Path, Query, Request},
};
use croft_inspect::{AdviceRows, NodeRemoval, WhatIf, advice::Focus};
use croft_manifest::InputError;
use croft_record::{
    entry::Entry,
    ledger::book::{HOUR_MILLIS, Statement, hour_of},
    record::History,
};
use serde::{Deserialize, Serialize};

use super::{
    error::ApiError,
    page::Page,
    reader::{Reader, read_body},
};
use crate::{
    access::Scope,
    model::facts::{Model, PodFacts},
    state::{sampled::sampled, store::State},
    views::{
        bill::{self, Bill},
        curves::{self, Curves},
        entries::{self, Selection},
        map::{self, MapView},
        node::{self, NodeDetail},
        overview::{self, Overview, Rows},
        past::{self, Part, Past},
        pod::{self, PodDetail},
        pool::{self, PoolView},
        tenant::{self, TenantNow, TenantThen},
        what_if,
    },
};

/// Bytes of a manifest.
const MANIFEST_BYTES: usize = 256 << 10;
/// Scheduling runs of an answer.
const PLANS: usize = 50;
/// Entries of an answer.
const ENTRIES: usize = 1_000;
/// Clusters without a constraint that advice for a tenant searches.
const COUNTERFACTUALS: usize = 20;
/// The same for one node or pod: an answer about one object comes soon.
const COUNTERFACTUALS_OF_ONE: usize = 8;
/// The longest time of a statement: a year and a month.
const STATEMENT_MILLIS: i64 = 400 * 24 * HOUR_MILLIS;

type Answer<T> = Result<Json<T>, ApiError>;

/// A view of the present, and since when the past can be shown.
#[derive(Serialize)]
pub struct Present<T> {
    /// The time of the first entry or snapshot of the record.
    begins: Option<i64>,
    #[serde(flatten)]
    view: T,
}

impl<T> Present<T> {
    fn new(reader: &Reader, view: T) -> Json<Self> {
        Json(Self { begins: reader.page.state.log().begins(), view })
    }
}

/// All tenants and pools.
///
/// # Errors
/// None of its own.
pub async fn overview(reader: Reader) -> Answer<Present<Overview>> {
    let Reader { page, scope, model, .. } = &reader;
    let view = overview::view(model, &page.state.log(), scope, page.now());
    Ok(Present::new(&reader, view))
}

/// Every node.
pub async fn map(reader: Reader) -> Json<MapView> {
    Json(map::view(&reader.model, &reader.scope))
}

/// A time.
#[derive(Deserialize)]
pub struct At {
    at: i64,
}

/// All tenants and pools at a time.
///
/// # Errors
/// If too much is computed already.
pub async fn at(reader: Reader, Query(At { at }): Query<At>) -> Answer<Past<Rows>> {
    let view = |model: &Model, scope: &Scope| Some(overview::rows(model, scope));
    past(reader, at, Part::default(), view).await.map(Json)
}

/// One pool at a time.
///
/// # Errors
/// If the reader may see no such pool, now or then, or too much is computed already.
pub async fn pool_at(
    reader: Reader,
    Path(name): Path<String>,
    Query(At { at }): Query<At>,
) -> Answer<Past<PoolView>> {
    let missing = missing("TenantPool", &name);
    if !reader.scope.sees_pool(&reader.model, &name) {
        return Err(missing);
    }
    let is_there = reader.model.pools.contains_key(&name);
    let part = Part { pool: Some(name.clone()), ..Part::default() };
    let past = past(reader, at, part, move |model, scope| pool::view(model, scope, &name)).await?;
    if is_there || past.view.is_some() { Ok(Json(past)) } else { Err(missing) }
}

/// One tenant at a time, with its pods.
///
/// # Errors
/// If the reader may see no such tenant, now or then, or too much is computed already.
pub async fn tenant_at(
    reader: Reader,
    Path(name): Path<String>,
    Query(At { at }): Query<At>,
) -> Answer<Past<TenantThen>> {
    let missing = missing("Tenant", &name);
    if !reader.scope.sees_tenant(&reader.model, &name) {
        return Err(missing);
    }
    let is_there = reader.model.tenants.contains_key(&name);
    let part = Part { tenant: Some(name.clone()), ..Part::default() };
    let past = past(reader, at, part, move |model, scope| tenant::then(model, scope, &name)).await?;
    if is_there || past.view.is_some() { Ok(Json(past)) } else { Err(missing) }
}

/// A part of the cluster at a time; `view` shows it of a model, for a scope.
async fn past<T: Send + 'static>(
    reader: Reader,
    at: i64,
    part: Part,
    view: impl FnOnce(&Model, &Scope) -> Option<T> + Send + 'static,
) -> Result<Past<T>, ApiError> {
    let now = reader.page.now();
    let work = move |state: &State, model: &Model, scope: &Scope| {
        let then = crate::state::past::model(state, at, now);
        let seen = then.as_ref().map(|then| past::seen(then, model, scope));
        let snapshot = seen.as_ref().map(|(model, _)| model.at);
        let view = seen.and_then(|(model, scope)| view(&model, &scope));
        Past::new(model, &state.log(), scope, (at, part), (snapshot, view))
    };
    reader.compute(work).await
}

/// One tenant.
///
/// # Errors
/// If there is no such tenant that the reader may see.
pub async fn tenant(reader: Reader, Path(name): Path<String>) -> Answer<Present<TenantNow>> {
    let missing = || missing("Tenant", &name);
    tenant::seen(&reader.model, &reader.scope, &name).ok_or_else(missing)?;
    let bill = bill_of(&reader, &name).await?;
    let view = tenant::view(&reader.model, &reader.scope, &name).ok_or_else(missing)?;
    Ok(Present::new(&reader, TenantNow { view, bill }))
}

/// The pods of one tenant.
///
/// # Errors
/// If there is no such tenant that the reader may see.
pub async fn tenant_pods(reader: Reader, Path(name): Path<String>) -> Answer<Vec<PodFacts>> {
    let found = tenant::pods(&reader.model, &reader.scope, &name);
    found.map(Json).ok_or_else(|| missing("Tenant", &name))
}

/// The prices of a tenant's constraints, ranked.
///
/// # Errors
/// If there is no such tenant that the reader may see, or too much is computed already.
pub async fn tenant_advice(reader: Reader, Path(name): Path<String>) -> Answer<AdviceRows> {
    tenant::seen(&reader.model, &reader.scope, &name).ok_or_else(|| missing("Tenant", &name))?;
    advice(reader, Focus::All, Some(name)).await
}

/// The prices of the constraints of a node, its pods and its pool, ranked.
///
/// # Errors
/// If there is no such node that the reader may see, or too much is computed already.
pub async fn node_advice(reader: Reader, Path(name): Path<String>) -> Answer<AdviceRows> {
    let node = node::seen(&reader.model, &reader.scope, &name).map(|node| node.info.name.clone());
    let node = node.ok_or_else(|| missing("node", &name))?;
    advice(reader, Focus::Node(node), None).await
}

/// The prices of a pod's constraints, ranked.
///
/// # Errors
/// If there is no such pod that the reader may see, or too much is computed already.
pub async fn pod_advice(
    reader: Reader,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer<AdviceRows> {
    let key = format!("{namespace}/{name}");
    if !reader.scope.sees_namespace(&namespace) || !reader.model.pods.contains_key(&key) {
        return Err(missing("pod", &key));
    }
    advice(reader, Focus::Pod { namespace, name }, None).await
}

/// The prices of the constraints in `focus` that the reader may see, in the reader's part of the cluster.
async fn advice(reader: Reader, focus: Focus, tenant: Option<String>) -> Answer<AdviceRows> {
    let most = if tenant.is_some() { COUNTERFACTUALS } else { COUNTERFACTUALS_OF_ONE };
    let computed = reader.compute(move |state, model, scope| {
        let part = what_if::part_of(&state.cluster().input, model, scope);
        croft_inspect::advice_rows(&part, focus, tenant.as_deref(), scope.namespaces(), most)
    });
    computed.await?.map(Json).map_err(|error| {
        tracing::warn!(%error, "the prices of constraints can't be computed");
        ApiError::Failed
    })
}

async fn bill_of(reader: &Reader, tenant: &str) -> Result<Bill, ApiError> {
    let page = &reader.page;
    let now = page.now();
    let from = bill::month_of(now);
    let read = |page: &Page| {
        let log = page.state.log();
        let lines = log.month(from, now)?;
        let begins = log.costs_begin();
        Some(Bill { from, to: now, begins, ..Bill::new(&reader.model, &reader.scope, tenant, lines) })
    };
    if let Some(bill) = read(page) {
        return Ok(bill);
    }
    let state = page.state.clone();
    page.compute(&reader.held, move || {
        let is_read = state.log().month(from, now).is_some();
        if !is_read {
            state.change_log(|log| log.read_month(from, now));
        }
    })
    .await?;
    Ok(read(page).unwrap_or_default())
}

/// One pool.
///
/// # Errors
/// If there is no such pool that the reader may see.
pub async fn pool(reader: Reader, Path(name): Path<String>) -> Answer<Present<PoolView>> {
    let found = pool::view(&reader.model, &reader.scope, &name);
    let view = found.ok_or_else(|| missing("TenantPool", &name))?;
    Ok(Present::new(&reader, view))
}

/// One node.
///
/// # Errors
/// If there is no such node that the reader may see.
pub async fn node(reader: Reader, Path(name): Path<String>) -> Answer<NodeDetail> {
    let found = node::view(&reader.model, &reader.page.state.log(), &reader.scope, &name);
    found.map(Json).ok_or_else(|| missing("node", &name))
}

/// Whether a node could be removed now, and what keeps it.
///
/// # Errors
/// If there is no such node that the reader may see, or too much is computed already.
pub async fn node_removal(reader: Reader, Path(name): Path<String>) -> Answer<NodeRemoval> {
    node::seen(&reader.model, &reader.scope, &name).ok_or_else(|| missing("node", &name))?;
    let computed = reader.compute(move |state, model, scope| {
        let part = what_if::part_of(&state.cluster().input, model, scope);
        let Some(node) = node::seen(model, scope, &name) else { return Ok(NodeRemoval::default()) };
        let found = croft_inspect::node_removal(&part, &node.info.name)?;
        Ok::<_, InputError>(node::removal(model, scope, node, found))
    });
    computed.await?.map(Json).map_err(|error| {
        tracing::warn!(%error, "what keeps a node can't be computed");
        ApiError::Failed
    })
}

/// One pod. Of a pending pod also its place in a plan that is made now.
///
/// # Errors
/// If there is no such pod that the reader may see.
pub async fn pod(reader: Reader, Path((namespace, name)): Path<(String, String)>) -> Answer<PodDetail> {
    let found = pod::view(&reader.model, &reader.page.state.log(), &reader.scope, &namespace, &name);
    let mut detail = found.ok_or_else(|| missing("pod", &format!("{namespace}/{name}")))?;
    if detail.pod.as_ref().is_some_and(|pod| pod.node.is_none()) {
        let outlook = reader.compute(move |state, model, scope| {
            let part = what_if::part_of(&state.cluster().input, model, scope);
            croft_inspect::outlook(&part, &namespace, &name)
        });
        detail.outlook = match outlook.await {
            Ok(Ok(outlook)) => Some(outlook),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the place of a pending pod can't be computed");
                None
            }
            Err(_) => None,
        };
    }
    Ok(Json(detail))
}

fn missing(kind: &str, name: &str) -> ApiError {
    ApiError::Missing(format!("{kind} {name}"))
}

/// The last scheduling runs.
///
/// # Errors
/// [`ApiError::OperatorOnly`].
pub async fn plans(reader: Reader) -> Answer<Vec<Entry>> {
    if !reader.scope.is_operator() {
        return Err(ApiError::OperatorOnly("scheduling runs"));
    }
    Ok(Json(entries::plans(&reader.page.state.log(), PLANS)))
}

/// Which entries.
#[derive(Deserialize)]
pub struct HistoryQuery {
    tenant: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
    limit: Option<usize>,
}

/// Entries of the log, the newest first.
///
/// # Errors
/// If the tenant isn't one that the reader may see.
pub async fn history(reader: Reader, Query(query): Query<HistoryQuery>) -> Answer<History> {
    let HistoryQuery { tenant, from, to, limit } = query;
    if let Some(tenant) = tenant.as_ref().filter(|tenant| !reader.scope.sees_tenant(&reader.model, tenant)) {
        return Err(missing("Tenant", tenant));
    }
    let selection = Selection {
        tenant,
        pool: None,
        from: from.unwrap_or(i64::MIN),
        to: to.unwrap_or(i64::MAX),
        limit: limit.unwrap_or(ENTRIES).min(ENTRIES),
    };
    let log = reader.page.state.log();
    let entries = entries::select(&log, &reader.model, &reader.scope, &selection);
    Ok(Json(History { begins: log.record().begins(), entries }))
}

/// From one time to another.
#[derive(Deserialize)]
pub struct CostQuery {
    from: i64,
    to: Option<i64>,
}

impl CostQuery {
    /// The time from and up to now at the latest.
    fn times(&self, now: i64) -> Result<(i64, i64), ApiError> {
        let to = self.to.unwrap_or(now).min(now);
        if self.from > to || to.saturating_sub(self.from) > STATEMENT_MILLIS {
            return Err(ApiError::Invalid("from must be before to, by 400 days at most".to_owned()));
        }
        Ok((self.from, to))
    }
}

/// The curves of a time.
///
/// # Errors
/// If the time is wrong, or too much is computed already.
pub async fn curves(reader: Reader, Query(query): Query<CostQuery>) -> Answer<Curves> {
    let now = reader.page.now();
    let (from, to) = query.times(now)?;
    let work = move |state: &State, model: &Model, scope: &Scope| {
        curves::view(model, &sampled(state, from, to, now), scope)
    };
    reader.compute(work).await.map(Json)
}

/// Lines of the ledger.
///
/// # Errors
/// If the time is wrong, or too much is computed already.
pub async fn cost(reader: Reader, Query(query): Query<CostQuery>) -> Answer<Statement> {
    let (from, to) = query.times(reader.page.now())?;
    let from = hour_of(from);
    let statement = reader.compute(move |state, model, scope| {
        let log = state.log();
        let mut lines = log.lines(from, to);
        lines.retain(|line| bill::sees_line(model, scope, line));
        Statement { begins: log.costs_begin(), is_complete: log.ledger().is_complete(from, to), lines }
    });
    statement.await.map(Json)
}

/// The namespace of objects that name none.
#[derive(Deserialize)]
pub struct WhatIfQuery {
    namespace: Option<String>,
}

/// The effect of a manifest.
///
/// # Errors
/// If the manifest can't be read, or isn't the reader's to try.
pub async fn what_if(
    reader: Reader,
    Query(WhatIfQuery { namespace }): Query<WhatIfQuery>,
    request: Request,
) -> Answer<WhatIf> {
    let body = read_body(request.into_body(), MANIFEST_BYTES).await?;
    let Ok(text) = String::from_utf8(body.to_vec()) else {
        return Err(ApiError::Invalid("the manifest isn't UTF-8".to_owned()));
    };
    let answer = reader.compute(move |state, model, scope| {
        let added = what_if::read(scope, &text, namespace.as_deref().unwrap_or("default"))?;
        let part = what_if::part_of(&state.cluster().input, model, scope);
        Ok::<_, ApiError>(croft_inspect::what_if(&part, &added).map_err(what_if::WhatIfError::Input)?)
    });
    answer.await?.map(Json)
}
