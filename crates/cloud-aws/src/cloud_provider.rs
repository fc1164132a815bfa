//! The trait [`CloudProvider`]: each method of the controller's interface, by the modules below it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use croft_api::EC2NodeClass;
use croft_cloud::{
    Account, CallCount, ClassFindings, CloudError, CloudInstance, CloudProvider, Fault, FaultClass, InUse,
    Interruption, LaunchError, LaunchRequest, Launched, ObservedNode, OfferingKey, Prepared, Shortage,
    Terminated, tags, unavailable::UnavailableEntry,
};
use croft_scheduler::InstanceType;
use futures::future::join_all;

use crate::{
    health::{self, Health},
    instances::{self, DescribedInstance},
    interruption, launch, profile,
    provider::{AwsProvider, Identity},
    refusal, template,
};

/// Launch templates that were not used for this long are deleted.
const TEMPLATE_IDLE: Duration = Duration::from_secs(30 * 60);
/// Pause between two empty reads if there is no interruption queue.
const NO_QUEUE_PAUSE: Duration = Duration::from_secs(20);

impl AwsProvider {
    async fn queue_url(&self) -> Result<Option<String>, Fault> {
        let Some(name) = &self.options.interruption_queue else { return Ok(None) };
        let (url, _) = self.queue.get(&(), interruption::queue_url(&self.clients, &self.paces, name)).await?;
        Ok(Some(url.as_ref().clone()))
    }

    /// The health of instances; `None` while it can't be read. A kept answer is none: a check that failed may pass again.
    async fn health(&self) -> Option<Arc<Health>> {
        let fault = match self.health.get(&(), health::of_account(&self.clients, &self.paces)).await {
            Ok((health, None)) => return Some(health),
            Ok((_, Some(fault))) | Err(fault) => fault,
        };
        let error = refusal::refused("read the status checks of the instances", fault);
        tracing::warn!(%error, "status checks and scheduled changes of instances aren't known");
        None
    }
}

/// The fault of an answer that doesn't say what became of an instance: it proves nothing.
fn lacks(action: &'static str, id: &str) -> Fault {
    refusal::of_code(action, "NoAnswer".to_owned(), format!("the answer lacks {id}"), None)
}

#[async_trait]
impl CloudProvider for AwsProvider {
    async fn resolve(&self, class: &EC2NodeClass) -> ClassFindings {
        self.look_up(class).await.findings
    }

    async fn instance_types(&self, class: &EC2NodeClass) -> Result<Arc<[InstanceType]>, CloudError> {
        self.offers(class).await
    }

    async fn prepare(&self, request: &LaunchRequest) -> Result<Prepared, LaunchError> {
        self.prepare_launch(request).await
    }

    async fn launch(&self, prepared: &Prepared) -> Result<Launched, LaunchError> {
        self.send_launch(prepared).await
    }

    async fn find_by_claim(&self, claim_uid: &str) -> Result<Option<Launched>, CloudError> {
        let ask = async |uids: Vec<String>| {
            instances::of_claims(&self.clients, &self.paces, &self.options.cluster_uid, &uids)
                .await
                .map(Arc::new)
        };
        let seen =
            self.batches.of_claims.join(claim_uid.to_owned(), ask).await.map_err(|fault| {
                refusal::refused(format!("find the instance of claim {claim_uid}"), fault)
            })?;
        // A claim has one instance; if it ever has two, the older may have registered.
        let instance = seen
            .iter()
            .filter(|s| s.instance.claim_uid.as_deref() == Some(claim_uid))
            .min_by_key(|s| (!s.instance.state.is_alive(), s.instance.launched_at));
        match instance {
            Some(seen) => Ok(Some(self.describe_launched(seen.clone()).await)),
            None => Ok(None),
        }
    }

    async fn list(&self) -> Result<Vec<CloudInstance>, CloudError> {
        let seen = instances::of_cluster(&self.clients, &self.paces, &self.options.cluster_uid)
            .await
            .map_err(|fault| {
                refusal::refused(format!("list the instances of {}", self.options.cluster_name), fault)
            })?;
        let health = self.health().await;
        let with_health = |seen: DescribedInstance| {
            let health = health.as_ref().and_then(|health| health.get(&seen.instance.id)).cloned();
            CloudInstance { health, ..seen.instance }
        };
        Ok(seen.into_iter().map(with_health).collect())
    }

    async fn describe(&self, ids: &[String]) -> Result<Vec<CloudInstance>, CloudError> {
        let ask =
            async |ids: Vec<String>| instances::by_id(&self.clients, &self.paces, &ids).await.map(Arc::new);
        let mut found = Vec::new();
        let one = async |id: &String| self.batches.by_id.join(id.clone(), ask).await;
        for (id, answer) in ids.iter().zip(join_all(ids.iter().map(one)).await) {
            let seen = answer.map_err(|fault| refusal::refused(format!("describe {id}"), fault))?;
            found.extend(seen.iter().find(|s| s.instance.id == *id).map(|s| s.instance.clone()));
        }
        Ok(found)
    }

    async fn account(&self) -> Result<Account, CloudError> {
        let Identity { account, region, .. } = self.identity().await?;
        Ok(Account { id: account, region })
    }

    async fn terminate(&self, ids: &[String]) -> Result<Vec<Terminated>, CloudError> {
        let call =
            async |ids: Vec<String>| Arc::new(instances::terminate(&self.clients, &self.paces, ids).await);
        let one = async |id: &String| {
            let each = self.batches.terminate.join(id.clone(), call).await;
            match each.get(id) {
                Some(Ok(state)) => Ok(Terminated { id: id.clone(), state: *state }),
                Some(Err(fault)) => Err(refusal::refused(format!("terminate {id}"), fault.clone())),
                None => Err(refusal::refused(format!("terminate {id}"), lacks("TerminateInstances", id))),
            }
        };
        let (mut done, mut failed) = (Vec::new(), None);
        for outcome in join_all(ids.iter().map(one)).await {
            match outcome {
                Ok(terminated) => done.push(terminated),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            // Terminated instances are reported by the next call.
            Some(error) if done.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(%error, "some instances could not be terminated, and are tried again");
                Ok(done)
            }
            None => Ok(done),
        }
    }

    async fn tag(&self, id: &str, more: &BTreeMap<String, String>) -> Result<(), CloudError> {
        let mut all = more.clone();
        all.insert(tags::CLUSTER.to_owned(), self.options.cluster_uid.clone());
        let call = async |wanted: Vec<instances::Tagged>| {
            Arc::new(instances::tag(&self.clients, &self.paces, wanted).await)
        };
        let each = self.batches.tag.join((id.to_owned(), all), call).await;
        match each.get(id) {
            Some(Ok(())) => Ok(()),
            Some(Err(fault)) => Err(refusal::refused(format!("tag {id}"), fault.clone())),
            None => Err(refusal::refused(format!("tag {id}"), lacks("CreateTags", id))),
        }
    }

    async fn interruptions(&self) -> Result<Vec<Interruption>, CloudError> {
        let failed = |fault| refusal::refused("read the interruption queue", fault);
        let Some(url) = self.queue_url().await.map_err(failed)? else {
            tokio::time::sleep(NO_QUEUE_PAUSE).await;
            return Ok(Vec::new());
        };
        interruption::receive(&self.clients, &self.paces, &url).await.map_err(|fault| {
            if fault.class == FaultClass::NotFound {
                self.queue.clear();
            }
            failed(fault)
        })
    }

    async fn acknowledge(&self, news: &[Interruption]) -> Result<(), CloudError> {
        let failed = |fault| refusal::refused("take messages off the interruption queue", fault);
        let Some(url) = self.queue_url().await.map_err(failed)? else { return Ok(()) };
        interruption::acknowledge(&self.clients, &self.paces, &url, news).await.map_err(failed)
    }

    fn observe_capacity(&self, node: &ObservedNode) -> bool {
        let mut memory = self.memory();
        let setup = memory.setup_of(&node.class, &node.image_id);
        memory.observed.note(node, setup)
    }

    fn shortages(&self) -> Vec<Shortage> {
        let now = self.now();
        let memory = self.memory();
        let shortage = |entry: UnavailableEntry<'_, OfferingKey>| Shortage {
            offering: entry.key.clone(),
            fault: entry.fault.clone(),
            strikes: entry.strikes,
            next_try: entry.next_try,
        };
        memory.offerings.current(now).map(shortage).collect()
    }

    fn calls(&self) -> Vec<CallCount> {
        self.paces.calls()
    }

    async fn sweep(&self, used: &InUse) -> Result<usize, CloudError> {
        let failed = |fault| refusal::refused("sweep", fault);
        let cluster = &self.options.cluster_uid;
        let mut keep: BTreeSet<String> = used.unanswered.iter().flat_map(launch::templates).collect();
        {
            let memory = self.memory();
            let recent = memory.templates.iter().filter(|(_, used)| used.elapsed() < TEMPLATE_IDLE);
            keep.extend(recent.map(|(name, _)| name.clone()));
        }
        let idle = i64::try_from(TEMPLATE_IDLE.as_secs()).unwrap_or(i64::MAX);
        let older_than = self.stopwatch.clock.wall().as_second() - idle;
        let swept = template::sweep(&self.clients, &self.paces, cluster, older_than, &keep).await;
        let (gone, undeleted) = swept.map_err(failed)?;
        {
            let mut memory = self.memory();
            for name in &gone {
                memory.templates.remove(name);
            }
            let now = self.now();
            memory.offerings.prune(now);
            memory.subnets.prune(now);
            memory.new_profiles.retain(|_, made| made.elapsed() < profile::SETTLES);
        }
        // An instance loses its credentials with its profile, so profiles of instances are kept, not only those of
        // classes.
        let mut seen = instances::of_cluster(&self.clients, &self.paces, cluster).await.map_err(failed)?;
        let listed: BTreeSet<&str> = seen.iter().map(|seen| seen.instance.id.as_str()).collect();
        let lost: Vec<String> =
            used.instances.iter().filter(|id| !listed.contains(id.as_str())).cloned().collect();
        seen.extend(instances::by_id(&self.clients, &self.paces, &lost).await.map_err(failed)?);
        let mut held: BTreeSet<String> = seen.into_iter().filter_map(|seen| seen.profile).collect();
        held.extend(
            used.classes
                .iter()
                .filter_map(|c| c.spec.role.as_deref())
                .map(|role| profile::name(cluster, role)),
        );
        let profiles = profile::sweep(&self.clients, &self.paces, cluster, |name| held.contains(name))
            .await
            .map_err(failed)?;
        if profiles > 0 {
            self.profiles.clear();
        }
        match undeleted {
            Some(fault) => Err(failed(fault)),
            None => Ok(gone.len() + profiles),
        }
    }
}
