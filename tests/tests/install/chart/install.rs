//! The charts installed by `helm install`, uninstalled, and installed again.

use croft_api::Tenant;
use croft_testkit::{
    ControlPlane, CroftOptions, Options, Part,
    croft::RELEASE,
    wait::{Seen, until},
};
use croft_tests::{
    arena::{SOON, create, kept_arena_of, pod, settled},
    cli::croft,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, api::ListParams};
use serde_json::json;

use super::render::chart;

const NAMESPACE: &str = "platform";

#[tokio::test]
async fn uninstalling_leaves_nothing_stuck_and_installing_again_enforces() {
    let options = CroftOptions::find().unwrap();
    let charts = options.manifests.join("chart");
    let options = options.by_helm(&charts, NAMESPACE, &[]);
    let (plane, mut croft) = kept_arena_of(Options::default(), options).await.unwrap();
    let admin = plane.admin().await.unwrap();
    let into = format!("--namespace={NAMESPACE}");
    let croft_chart = chart("croft").display().to_string();

    // The simulated kubelets run the chart's pods: they can be scheduled, and become available.
    let upgrade = ["upgrade", RELEASE, &croft_chart, &into, "--wait", "--timeout=60s"];
    plane.helm(upgrade).await.unwrap();
    let bare = pod("no-tenant", "probe", json!({"tolerations": [{"operator": "Exists"}], "nodeName": "b-1"}));
    assert!(!create(&admin, &bare, true).await.unwrap().is_done());

    for part in [Part::Webhook, Part::Controller] {
        croft.stop(part, SOON).await.unwrap();
    }
    plane.helm(["uninstall", RELEASE, &into, "--wait", "--timeout=60s"]).await.unwrap();
    plane.helm(["uninstall", &format!("{RELEASE}-crds"), &into]).await.unwrap();
    let kinds = "deployments,services,secrets,serviceaccounts,roles,rolebindings,networkpolicies,poddisruptionbudgets,\
                 clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                 mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let left = ["get", kinds, "--all-namespaces", "-l", "app.kubernetes.io/part-of=croft", "-o", "name"];
    assert_eq!(plane.kubectl(left).await.unwrap().trim(), "");
    // The objects that users declared are kept, and no request waits for Croft any more.
    let tenants: Api<Tenant> = Api::all(admin.clone());
    assert_eq!(tenants.list(&ListParams::default()).await.unwrap().items.len(), 2);
    until("pods that no piece of Croft refuses", SOON, async || {
        let answer = create(&admin, &pod("tenant-a", "probe", json!({})), true).await?;
        let other = create(&admin, &bare, true).await?;
        let free = answer.is_done() && other.is_done();
        anyhow::Ok(Seen::from_option(
            free.then_some(()),
            format!("{} {}", answer.sentence(), other.sentence()),
        ))
    })
    .await
    .unwrap();
    plane.kubectl(["delete", "namespace", NAMESPACE, "--timeout=60s"]).await.unwrap();

    // The CRDs are taken over by a new release, the objects of users stay.
    let crds = chart("croft-crds").display().to_string();
    plane
        .helm(["install", "other-crds", &crds, &into, "--create-namespace", "--take-ownership"])
        .await
        .unwrap();
    plane.helm(["install", "another-name", &croft_chart, &into]).await.unwrap();
    for part in [Part::Webhook, Part::Controller] {
        croft.resume(&plane, part).await.unwrap();
    }
    settled(&admin).await.unwrap();
    until("every tenant ready", SOON, async || {
        let list = tenants.list(&ListParams::default()).await?.items;
        let conditions: Vec<_> =
            list.iter().filter_map(|t| Some(t.status.as_ref()?.conditions.clone())).collect();
        let ready =
            conditions.iter().filter(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True")).count();
        anyhow::Ok(Seen::from_option((ready == 2).then_some(()), format!("{conditions:?}")))
    })
    .await
    .unwrap();
    let own = Api::<Namespace>::all(admin).get(NAMESPACE).await.unwrap();
    let annotations = own.metadata.annotations.unwrap_or_default();
    assert!(annotations.contains_key("policy.croft.dev/revision"), "{annotations:?}");
}

/// The blocks of a language in Markdown.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let start = format!("\n```{language}\n");
    page.split(start.as_str()).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

#[tokio::test]
async fn documented_commands_install_upgrade_roll_back_and_remove() {
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let nodes = ["n-1", "n-2", "n-3"].map(|name| {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"lab.croft.dev/kubelet": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "50"}, "capacity": {"cpu": "8", "memory": "32Gi", "pods": "50"}},
        })
    });
    plane.apply(&croft_tests::manifests::joined(&nodes)).await.unwrap();
    let manifests = CroftOptions::find().unwrap().manifests;
    let page = std::fs::read_to_string(manifests.join("../docs/install.md")).unwrap();
    let values = plane.folder().join("values.yaml");
    std::fs::write(&values, blocks(&page, "yaml")[0]).unwrap();
    let mut run = 0;
    for line in blocks(&page, "sh").into_iter().flat_map(str::lines) {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| match word {
                "values.yaml" => values.display().to_string(),
                _ => word.replace("manifests/", &format!("{}/", manifests.display())),
            })
            .collect();
        let (program, arguments) = words.split_first().unwrap();
        let result = match program.as_str() {
            "helm" => plane.helm(arguments).await,
            "kubectl" => plane.kubectl(arguments).await,
            "croft" => {
                // New nodes become ready in their time. There is no AWS here.
                until(line, SOON, async || {
                    let (code, text) = croft(&plane, &format!("{} --skip-aws", arguments.join(" "))).await?;
                    anyhow::Ok(Seen::from_option((code == 0).then_some(()), text))
                })
                .await
                .unwrap();
                Ok(String::new())
            }
            other => panic!("docs/install.md runs {other}: run it here as well"),
        };
        result.unwrap_or_else(|error| panic!("{line}: {error}"));
        run += 1;
    }
    assert!(run >= 13, "{run} commands");
}
