//! The cluster as an [`Input`]: what `-f` would read if somebody had dumped it all.

use std::{future::Future, path::PathBuf};

use anyhow::Context as _;
use clap::Args;
use croft_api::stored::{Kind, Stored};
use kube::{Api, Client, Resource, api::ListParams};
use serde::de::DeserializeOwned;

use crate::{
    failure::Failure,
    input::{self, Input, LoadOptions, Objects, Origin},
};

/// Large lists come in pages, so that the API server needn't hold them at once.
const PAGE: u32 = 500;

/// Where a command looks: in files, or in the cluster.
#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// Read these files, folders or - (standard input) instead of the cluster; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filenames: Vec<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Which cluster is asked.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// The cluster; else KUBECONFIG, the pod's service account, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl SourceArgs {
    /// Reads the files, or the cluster where none is named.
    pub(crate) fn load(&self, namespace: &str) -> Result<Input, Failure> {
        let Self { filenames, cluster } = self;
        if filenames.is_empty() {
            Ok(cluster.run(async |client| read(&client).await)?)
        } else {
            Ok(input::load(filenames, &LoadOptions { namespace: namespace.to_owned() })?)
        }
    }

    /// The cluster to ask.
    pub(crate) const fn cluster(&self) -> &ClusterArgs {
        &self.cluster
    }

    /// True if the cluster is asked.
    pub(crate) fn is_live(&self) -> bool {
        self.filenames.is_empty()
    }
}

impl ClusterArgs {
    /// Runs `work` with a client of the cluster.
    pub(crate) fn run<T, F: Future<Output = anyhow::Result<T>>>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> anyhow::Result<T> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("failed to start")?;
        runtime.block_on(async {
            let client = croft_runtime::connect::connect(self.kubeconfig.as_deref()).await?;
            work(client).await
        })
    }
}

/// Everything of the cluster that a command may ask for.
pub(crate) async fn read(client: &Client) -> anyhow::Result<Input> {
    let mut input = Input::default();
    macro_rules! list {
        ($($field:ident),*) => { $(list(client, &mut input.$field).await?;)* };
    }
    own(client, &mut input.tenants)
        .await
        .context("failed to read Croft's resources; are its CRDs installed (croft check)?")?;
    own(client, &mut input.pools).await?;
    own(client, &mut input.classes).await?;
    own(client, &mut input.claims).await?;
    own(client, &mut input.configs).await?;
    list!(
        namespaces,
        nodes,
        pods,
        deployments,
        replica_sets,
        stateful_sets,
        daemon_sets,
        replication_controllers,
        jobs,
        cron_jobs,
        volume_claims,
        volumes,
        storage_classes,
        csi_nodes,
        priority_classes,
        runtime_classes,
        limit_ranges,
        budgets
    );
    Ok(input)
}

/// Croft's own objects, each as far as it can be read: one that can't be must not hide the others.
async fn own<K: Kind>(client: &Client, into: &mut Objects<K>) -> anyhow::Result<()> {
    let mut stored: Objects<Stored<K>> = Objects::default();
    list(client, &mut stored).await?;
    for stored in stored.iter() {
        if let Some(object) = stored.object.clone().legible() {
            into.put(object, stored.origin.clone());
        }
    }
    Ok(())
}

async fn list<K>(client: &Client, into: &mut Objects<K>) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let origin = Origin { file: "cluster".into(), line: 0 };
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&params).await.with_context(|| format!("failed to list {}", K::plural(&())))?;
        for object in list.items {
            into.put(object, origin.clone());
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}
