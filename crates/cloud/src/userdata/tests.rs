use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;

use super::*;

fn taints() -> Vec<Taint> {
    let taint = |key: &str, value: &str, effect: &str| Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()).filter(|v| !v.is_empty()),
        effect: effect.to_owned(),
        time_added: None,
    };
    vec![taint("node-pool", "pool-a", "NoSchedule"), taint("croft.dev/unregistered", "", "NoExecute")]
}

fn labels() -> BTreeMap<String, String> {
    [
        ("team", "blue"),
        ("node-restriction.kubernetes.io/pool", "pool-a"),
        ("node.kubernetes.io/role", "app"),
        ("karpenter.sh/capacity-type", "spot"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into()
}

fn with<T>(custom: Option<&str>, kubelet: &KubeletSetup, act: impl FnOnce(&NodeBoot<'_>) -> T) -> T {
    let (labels, taints) = (labels(), taints());
    act(&NodeBoot {
        cluster: "croft",
        endpoint: "https://127.0.0.1:6443",
        ca: "Q0E=",
        service_cidr: "10.96.0.0/16",
        labels: &labels,
        taints: &taints,
        kubelet,
        instance_store: true,
        custom,
    })
}

fn kubelet() -> KubeletSetup {
    let map = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    KubeletSetup {
        max_pods: Some(58),
        cluster_dns: vec!["10.96.0.10".to_owned()],
        kube_reserved: map("cpu", "100m"),
        system_reserved: map("memory", "200Mi"),
        eviction_hard: map("memory.available", "5%"),
    }
}

fn check(name: &str, family: Family, custom: Option<&str>) {
    let text = with(custom, &kubelet(), |boot| render(family, boot)).unwrap().text;
    insta::with_settings!({snapshot_path => "../../testdata/userdata", prepend_module_to_snapshot => false, omit_expression => true}, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn al2023() {
    check("al2023", Family::Al2023, None);
    check(
        "al2023-with-node-config",
        Family::Al2023,
        Some(
            "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config:\n      registerWithTaints: []\n",
        ),
    );
    check(
        "al2023-with-mime",
        Family::Al2023,
        Some(
            "MIME-Version: 1.0\nContent-Type: multipart/mixed;\n boundary=\"b\"\n\n--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho --//\n\n--b--\n",
        ),
    );
}

#[test]
fn al2() {
    check("al2", Family::Al2, None);
    check("al2-with-script", Family::Al2, Some("#!/bin/bash\necho it\\'s mine\n"));
}

#[test]
fn bottlerocket() {
    check("bottlerocket", Family::Bottlerocket, None);
    check(
        "bottlerocket-with-settings",
        Family::Bottlerocket,
        Some(
            "# mine\n[settings.host-containers.admin]\nenabled = true\n[settings.kubernetes]\nallowed-unsafe-sysctls = [\"net.core.*\"]\ncluster-name = \"other\"\n[settings.kubernetes.node-taints]\nnode-pool = [\"pool-b:NoSchedule\"]\n",
        ),
    );
}

/// Every form that Bottlerocket's documentation uses: lists of tables, inline tables, dotted keys.
#[test]
fn bottlerocket_settings_are_merged_key_by_key() {
    check(
        "bottlerocket-with-mirrors",
        Family::Bottlerocket,
        Some(
            "[settings.kubernetes]\nlog-level = 2\nnode-labels = { team = \"red\", tier = \"web\" }\n\
             kube-reserved.memory = \"1Gi\"\nserver-tls-bootstrap = false\n\n\
             [[settings.container-registry.mirrors]]\nregistry = \"docker.io\"\n\
             endpoint = [\"https://mirror.acme.test\"] # ours\n\n\
             [[settings.container-registry.mirrors]]\nregistry = \"*\"\nendpoint = ['https://other.acme.test']\n\n\
             [settings.kernel.sysctl]\n\"net.core.rmem_max\" = \"1\"\n",
        ),
    );
}

#[test]
fn custom_user_data_is_unchanged() {
    let text =
        with(Some("anything"), &KubeletSetup::default(), |boot| render(Family::Custom, boot)).unwrap().text;
    assert_eq!(text, "anything");
}

#[test]
fn no_family_has_labels_that_a_kubelet_exits_on() {
    for family in [Family::Al2023, Family::Al2, Family::Bottlerocket, Family::Ubuntu] {
        let text = with(None, &kubelet(), |boot| render(family, boot)).unwrap().text;
        assert!(!text.contains("node-restriction"), "{family:?}: {text}");
        assert!(text.contains("node.kubernetes.io/role"), "{family:?}: {text}");
    }
}

#[test]
fn unmergeable_user_data_is_refused_with_a_remedy() {
    let refuse = |family, custom: &str| {
        with(Some(custom), &kubelet(), |boot| render(family, boot)).unwrap_err().to_string()
    };
    assert_eq!(
        refuse(Family::Al2023, "hello"),
        "failed to merge spec.userData: it is neither MIME multi-part, nor a script, nor a NodeConfig; begin it with `#!/bin/bash`, `apiVersion: node.eks.aws/v1alpha1` or `MIME-Version: 1.0`"
    );
    assert!(refuse(Family::Al2, "apiVersion: node.eks.aws/v1alpha1").contains("choose an AL2023 image"));
    assert!(refuse(Family::Bottlerocket, "[a]\nb").contains("spec.userData: line 2: "));
    assert!(refuse(Family::Bottlerocket, "[a]\nb = 1\n\nb = 2").contains("line 4: duplicate key"));
    for (settings, name) in [
        ("settings = 1", "settings is of type integer"),
        ("[[settings.kubernetes]]\na = 1", "settings.kubernetes is of type array"),
        (
            "[settings.kubernetes]\nnode-labels = \"team=red\"",
            "settings.kubernetes.node-labels is of type string",
        ),
    ] {
        assert_eq!(
            refuse(Family::Bottlerocket, settings),
            format!("failed to merge spec.userData: {name}, and Croft adds to it; write it as a table")
        );
    }
    assert!(
        refuse(Family::Al2023, "MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n")
            .contains("no boundary")
    );
    assert!(
        refuse(Family::Al2023, "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=x\n\n--x\n\nhi\n")
            .contains("last boundary is missing")
    );
}

#[test]
fn ubuntu() {
    check("ubuntu", Family::Ubuntu, None);
    check("ubuntu-with-script", Family::Ubuntu, Some("#!/bin/bash\napt-get install -y jq\n"));
}

/// Text that doesn't compress, equal on every run.
fn noise(bytes: usize) -> String {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + u8::try_from((state >> 33) % 75).unwrap())
    };
    (0..bytes).map(|_| next()).collect()
}

#[test]
fn oversized_user_data_is_compressed_if_the_image_supports_it() {
    let script = |body: &str| format!("#!/bin/bash\n# {body}\n");
    for family in [Family::Al2023, Family::Al2, Family::Ubuntu] {
        let long = script(&"x".repeat(MAX_BYTES));
        let made = with(Some(&long), &kubelet(), |boot| render(family, boot)).unwrap();
        assert!(made.text.len() > MAX_BYTES && made.bytes().len() < MAX_BYTES, "{family:?}");
        let mut unpacked = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(made.bytes()), &mut unpacked)
            .unwrap();
        assert_eq!(unpacked, made.text, "{family:?}");
        let again = with(Some(&long), &kubelet(), |boot| render(family, boot)).unwrap();
        assert_eq!(again, made, "the launch template's name depends on it");
    }
    let short = with(Some(&script("x")), &kubelet(), |boot| render(Family::Al2023, boot)).unwrap();
    assert_eq!(short.bytes(), short.text.as_bytes(), "a short one stays readable");

    let refuse = |family, custom: &str| {
        with(Some(custom), &kubelet(), |boot| render(family, boot)).unwrap_err().to_string()
    };
    let words = refuse(Family::Al2023, &script(&noise(3 * MAX_BYTES)));
    assert!(words.starts_with("failed to fit the user data into 16384 bytes: it has "), "{words}");
    assert!(words.contains(" compressed; shorten spec.userData"), "{words}");
    assert_eq!(
        refuse(Family::Custom, &"x".repeat(MAX_BYTES + 1)),
        "failed to fit the user data into 16384 bytes: it has 16385; shorten spec.userData, or let it fetch its larger part"
    );
}
