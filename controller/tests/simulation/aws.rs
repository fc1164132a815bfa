//! Runs whose processes have the provider of croft-cloud-aws: the SDK's own requests, answered by ec2-sim's world in the
//! process and on virtual time.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use croft_cloud_aws::{Access, AwsProvider, Keys, Options, Transport};
use croft_simkit::{CLUSTER, Environment, MakeProvider, Wire};
use futures::FutureExt as _;

use crate::{panics, run::Run, runs};

/// Runs of a thousand with this provider.
pub const SHARE: u64 = 100;

struct InProcess(Wire);

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InProcess")
    }
}

#[async_trait]
impl Transport for InProcess {
    async fn send(&self, request: http::Request<Vec<u8>>) -> Option<http::Response<String>> {
        self.0.send(&request).await
    }
}

fn options(wire: Wire) -> Options {
    Options {
        access: Access {
            region: Some("us-east-1".to_owned()),
            keys: Some(Keys { id: "simulation".to_owned(), secret: "secret".to_owned() }),
            // The SDK counts its own retries in a bucket of the whole program: a run would depend on those beside it.
            attempts: 1,
            transport: Some(Arc::new(InProcess(wire))),
            ..Access::default()
        },
        cluster_uid: CLUSTER.to_owned(),
        cluster_name: "croft".to_owned(),
        cluster_endpoint: Some("https://127.0.0.1:6443".to_owned()),
        cluster_ca: Some("the CA".to_owned()),
        kubernetes_version: Some("1.36".to_owned()),
        interruption_queue: Some("croft".to_owned()),
        ..Options::default()
    }
}

/// Gives processes that start from now on the real provider.
pub fn use_provider(environment: &Environment) {
    let make: Arc<MakeProvider> = Arc::new(|wire, clock| {
        // With region and keys given, nothing is asked for before the first call.
        AwsProvider::connect_on(options(wire), clock).now_or_never().expect("connects at once")
    });
    *environment.make_provider.lock().unwrap() = Some(make);
}

/// True if a process of the run has called AWS through the SDK: the model of the provider knows the types.
pub fn was_used(run: &Run) -> bool {
    run.environment.world.lock().unwrap().calls().contains_key("ec2:DescribeInstanceTypes")
}

#[test]
fn a_cluster_comes_to_rest_with_the_provider_for_ec2() {
    panics::play_or_fail(async {
        let mut run = Run::new(1);
        use_provider(&run.environment);
        let (models, checks) = (run.start_models(), run.start_checks());
        run.start();
        assert_eq!(runs::rest(&mut run).await, Vec::<String>::new());
        assert!(was_used(&run));
        assert!(!run.instances().is_empty());
        models.abort();
        checks.abort();
    });
}
