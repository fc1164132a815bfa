//! Arguments of `croft-controller`.

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use croft_runtime::process::ProcessArgs;

use crate::config::settings::Settings;

/// Launches nodes for pods that don't fit, and removes nodes that aren't needed.
#[derive(Clone, Debug, Parser)]
#[command(name = "croft-controller", version)]
pub struct Args {
    #[command(flatten)]
    #[expect(missing_docs, reason = "the documentation of a flattened field would replace that of its type")]
    pub process: ProcessArgs,
    /// The cluster's name, by which its instances join
    #[arg(long, value_name = "NAME", env = "CLUSTER_NAME", default_value = "croft")]
    pub cluster_name: String,
    /// The API server's address for instances. Default: asked of EKS
    #[arg(long, value_name = "URL", env = "CLUSTER_ENDPOINT")]
    pub cluster_endpoint: Option<String>,
    /// File with the certificate authority by which instances trust the API server. Default: asked of EKS
    #[arg(long, value_name = "FILE", env = "CROFT_CLUSTER_CA")]
    pub cluster_ca: Option<PathBuf>,
    /// Network of Services, for nodes of a cluster that EKS doesn't know
    #[arg(long, value_name = "CIDR", env = "CROFT_SERVICE_CIDR")]
    pub service_cidr: Option<String>,
    /// Kubernetes version of the images, such as 1.36, for a cluster that EKS doesn't know
    #[arg(long, value_name = "VERSION", env = "CROFT_KUBERNETES_VERSION")]
    pub kubernetes_version: Option<String>,
    /// The network plugin assigns prefixes, so that more pods fit onto a node
    #[arg(long, env = "CROFT_PREFIX_DELEGATION")]
    pub prefix_delegation: bool,
    /// Endpoint of EC2 and the other services, instead of AWS
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL")]
    pub aws_endpoint_url: Option<String>,
    /// Endpoint of S3 alone, such as another vendor's object store
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL_S3")]
    pub aws_endpoint_url_s3: Option<String>,
    /// The region
    #[arg(long, value_name = "REGION", env = "AWS_REGION")]
    pub aws_region: Option<String>,
    /// The interruption queue
    #[arg(long, value_name = "NAME OR URL", env = "CROFT_INTERRUPTION_QUEUE")]
    pub interruption_queue: Option<String>,
    /// Place in S3 that keeps the decision log and the ledger once the cluster has no room for them
    #[arg(long, value_name = "s3://BUCKET/PREFIX", env = "CROFT_RECORD_ARCHIVE")]
    pub record_archive: Option<String>,
    /// Plan a batch of pods when none has arrived for this long
    #[arg(long, value_name = "DURATION", env = "CROFT_BATCH_IDLE", value_parser = duration, default_value = "100ms")]
    pub batch_idle: Duration,
    /// Plan a batch of pods this long after its first pod at the latest
    #[arg(long, value_name = "DURATION", env = "CROFT_BATCH_MAX", value_parser = duration, default_value = "1s")]
    pub batch_max: Duration,
    /// Effort of the search for a cheap plan; 0 is first-fit-decreasing alone
    #[arg(long, value_name = "N", env = "CROFT_EFFORT", default_value_t = 1)]
    pub effort: u32,
    /// Delete a NodeClaim that has no instance after this long
    #[arg(long, value_name = "DURATION", env = "CROFT_LAUNCH_TIMEOUT", value_parser = duration, default_value = "5m")]
    pub launch_timeout: Duration,
    /// Terminate an instance whose node hasn't registered after this long
    #[arg(long, value_name = "DURATION", env = "CROFT_REGISTRATION_TIMEOUT", value_parser = duration, default_value = "15m")]
    pub registration_timeout: Duration,
    /// Launch nothing by a template whose nodes don't register for this long, and twice as long after every further
    /// round of launches, up to twenty times
    #[arg(long, value_name = "DURATION", env = "CROFT_LAUNCH_BACKOFF", value_parser = duration, default_value = "30s")]
    pub launch_backoff: Duration,
    /// Rounds of launches without a registered node that a template may have in an hour; launches in flight together
    /// are one round
    #[arg(long, value_name = "N", env = "CROFT_UNREGISTERED_LAUNCHES_PER_HOUR", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 10)]
    pub unregistered_launches_per_hour: u32,
    /// Time between two lists of instances, by which orphaned instances and claims are found
    #[arg(long, value_name = "DURATION", env = "CROFT_ORPHANS_EVERY", value_parser = duration, default_value = "1m")]
    pub orphans_every: Duration,
    /// Age at which an instance without a claim, or a claim without an instance, counts as orphaned
    #[arg(long, value_name = "DURATION", env = "CROFT_ORPHAN_GRACE", value_parser = duration, default_value = "2m")]
    pub orphan_grace: Duration,
    /// Namespace that Croft is installed in: of the leader's Lease, and always exempt
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE", default_value = croft_policy::model::DEFAULT_NAMESPACE)]
    pub namespace: String,
    /// Name of this process in the Lease and in events. Default: the host's name and a random suffix
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
}

impl Args {
    /// The settings that deciders use.
    #[must_use]
    pub fn settings(&self) -> Settings {
        let Self {
            process: _,
            cluster_name: _,
            cluster_endpoint: _,
            cluster_ca: _,
            service_cidr: _,
            kubernetes_version: _,
            prefix_delegation: _,
            aws_endpoint_url: _,
            aws_endpoint_url_s3: _,
            aws_region: _,
            interruption_queue: _,
            record_archive: _,
            batch_idle,
            batch_max,
            effort,
            launch_timeout,
            registration_timeout,
            launch_backoff,
            unregistered_launches_per_hour,
            orphans_every,
            orphan_grace,
            namespace,
            identity: _,
        } = self;
        Settings {
            namespace: namespace.clone(),
            batch_idle: *batch_idle,
            batch_max: *batch_max,
            effort: *effort,
            launch_timeout: *launch_timeout,
            registration_timeout: *registration_timeout,
            launch_backoff: *launch_backoff,
            unregistered_launches_per_hour: *unregistered_launches_per_hour,
            list_instances_every: *orphans_every,
            orphan_grace: *orphan_grace,
            ..Settings::default()
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    match croft_api::duration::parse(text) {
        Ok(Some(duration)) => Ok(duration),
        Ok(None) => Err("write how long, such as 30s".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_make_sense_and_default_to_the_settings() {
        Args::command().debug_assert();
        let args = Args::parse_from(["croft-controller"]);
        assert_eq!(format!("{:?}", args.settings()), format!("{:?}", Settings::default()));
        assert!(Args::try_parse_from(["croft-controller", "--batch-idle", "soon"]).is_err());
    }
}
