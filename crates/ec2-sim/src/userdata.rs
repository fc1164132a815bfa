//! The kubelet settings in an instance's user data, for the image families that Croft supports.

use std::{collections::BTreeMap, io::Read as _};

use serde::Deserialize;

/// Limit of user data after decompression, in bytes.
const MOST_UNPACKED: u64 = 1 << 20;

/// The program that starts the kubelet, which decides what is configured that the user data doesn't say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Starter {
    /// nodeadm of AL2023.
    #[default]
    Nodeadm,
    /// bootstrap.sh of AL2 and Ubuntu.
    Bootstrap,
    /// Bottlerocket's settings.
    Bottlerocket,
}

/// Amounts by resource, or thresholds by signal.
pub type Amounts = BTreeMap<String, String>;

/// The kubelet's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletSettings {
    /// The program that starts it.
    pub starter: Starter,
    /// API server to join.
    pub endpoint: String,
    /// Cluster's name.
    pub cluster: String,
    /// Labels to register with.
    pub labels: BTreeMap<String, String>,
    /// Taints to register with.
    pub taints: Vec<Taint>,
    /// Maximum number of pods, if set.
    pub max_pods: Option<u32>,
    /// Resources reserved for Kubernetes, as far as set.
    pub kube_reserved: Amounts,
    /// Resources reserved for the system, as far as set.
    pub system_reserved: Amounts,
    /// Thresholds of eviction, as far as set.
    pub eviction_hard: Amounts,
    /// True if the local disks are one RAID 0 under the kubelet.
    pub raid0: bool,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(default)]
    pub value: String,
    /// Effect.
    pub effect: String,
}

/// Why an instance doesn't join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// No part of it starts a kubelet.
    #[error("no NodeConfig, bootstrap.sh or Bottlerocket settings in the user data: no kubelet was started")]
    NothingToStart,
    /// It can't be read.
    #[error("failed to read the user data: {0}")]
    Malformed(String),
}

/// Reads user data as the image would.
///
/// # Errors
/// If it starts no kubelet, or can't be read.
pub fn read(user_data: &[u8]) -> Result<KubeletSettings, UserDataError> {
    let unpacked = unpack(user_data)?;
    let text =
        std::str::from_utf8(&unpacked).map_err(|_| UserDataError::Malformed("it is not UTF-8".to_owned()))?;
    let parts = mime_parts(text);
    let mut node_configs = Vec::new();
    let mut scripts = Vec::new();
    match parts {
        Some(parts) => {
            for (kind, body) in parts {
                match kind.as_str() {
                    "application/node.eks.aws" => node_configs.push(body),
                    kind if kind.starts_with("text/x-shellscript") => scripts.push(body),
                    _ => {}
                }
            }
        }
        None if text.contains("node.eks.aws/") => node_configs.push(text.to_owned()),
        None if text.trim_start().starts_with("#!") => scripts.push(text.to_owned()),
        None if text.contains("settings") => return bottlerocket(text),
        None => return Err(UserDataError::NothingToStart),
    }
    if !node_configs.is_empty() {
        return nodeadm(&node_configs);
    }
    scripts
        .iter()
        .find_map(|script| script.lines().find(|line| line.contains("/etc/eks/bootstrap.sh")))
        .map(bootstrap)
        .ok_or(UserDataError::NothingToStart)
}

/// User data before compression: every supported image reads gzip.
fn unpack(user_data: &[u8]) -> Result<Vec<u8>, UserDataError> {
    if !user_data.starts_with(&[0x1f, 0x8b]) {
        return Ok(user_data.to_vec());
    }
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(user_data)
        .take(MOST_UNPACKED)
        .read_to_end(&mut unpacked)
        .map_err(|error| UserDataError::Malformed(error.to_string()))?;
    Ok(unpacked)
}

/// The parts of a MIME multi-part text: content type and body.
fn mime_parts(text: &str) -> Option<Vec<(String, String)>> {
    let text = text.replace("\r\n", "\n");
    let (head, body) = text.split_once("\n\n")?;
    let head = head.replace("\n ", " ").replace("\n\t", " ");
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-type: multipart/"))?;
    let boundary = line.split_once("boundary=")?.1.split(';').next()?.trim().trim_matches('"');
    let mut parts = Vec::new();
    for part in body.split(&format!("--{boundary}")) {
        let Some((head, body)) = part.trim_start_matches('\n').split_once("\n\n") else { continue };
        let kind = head
            .lines()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-type:").map(str::to_owned))
            .unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_owned();
        parts.push((kind, body.to_owned()));
    }
    Some(parts)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeConfig {
    #[serde(default)]
    spec: NodeConfigSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeConfigSpec {
    #[serde(default)]
    cluster: Option<ClusterConfig>,
    #[serde(default)]
    instance: InstanceConfig,
    #[serde(default)]
    kubelet: KubeletConfig,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InstanceConfig {
    #[serde(default)]
    local_storage: LocalStorage,
}

#[derive(Default, Deserialize)]
struct LocalStorage {
    #[serde(default)]
    strategy: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfig {
    name: String,
    api_server_endpoint: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeletConfig {
    #[serde(default)]
    config: KubeletFile,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KubeletFile {
    #[serde(default)]
    max_pods: Option<u32>,
    #[serde(default)]
    register_with_taints: Vec<Taint>,
    #[serde(default)]
    kube_reserved: Amounts,
    #[serde(default)]
    system_reserved: Amounts,
    #[serde(default)]
    eviction_hard: Amounts,
}

/// nodeadm merges the NodeConfigs of all parts; later ones override earlier ones.
fn nodeadm(documents: &[String]) -> Result<KubeletSettings, UserDataError> {
    let mut settings = KubeletSettings::default();
    for document in documents {
        let config: NodeConfig =
            serde_saphyr::from_str(document).map_err(|e| UserDataError::Malformed(e.to_string()))?;
        if let Some(cluster) = config.spec.cluster {
            settings.cluster = cluster.name;
            settings.endpoint = cluster.api_server_endpoint;
        }
        settings.raid0 |= config.spec.instance.local_storage.strategy == "RAID0";
        let kubelet = config.spec.kubelet;
        settings.kube_reserved.extend(kubelet.config.kube_reserved);
        settings.system_reserved.extend(kubelet.config.system_reserved);
        settings.eviction_hard.extend(kubelet.config.eviction_hard);
        if let Some(pods) = kubelet.config.max_pods {
            settings.max_pods = Some(pods);
        }
        if !kubelet.config.register_with_taints.is_empty() {
            settings.taints = kubelet.config.register_with_taints;
        }
        for flag in kubelet.flags {
            apply_flag(&mut settings, &flag);
        }
    }
    if settings.endpoint.is_empty() {
        return Err(UserDataError::Malformed("the NodeConfig names no cluster".to_owned()));
    }
    Ok(settings)
}

fn apply_flag(settings: &mut KubeletSettings, flag: &str) {
    let pairs = |text: &str, between: char| {
        let pairs = text.split(',').filter_map(|pair| pair.split_once(between));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<Amounts>()
    };
    if let Some(amounts) = flag.strip_prefix("--kube-reserved=") {
        settings.kube_reserved = pairs(amounts, '=');
    } else if let Some(amounts) = flag.strip_prefix("--system-reserved=") {
        settings.system_reserved = pairs(amounts, '=');
    } else if let Some(thresholds) = flag.strip_prefix("--eviction-hard=") {
        settings.eviction_hard = pairs(thresholds, '<');
    } else if let Some(labels) = flag.strip_prefix("--node-labels=") {
        settings.labels.extend(pairs(labels, '='));
    } else if let Some(taints) = flag.strip_prefix("--register-with-taints=") {
        settings.taints.extend(taints.split(',').filter_map(taint));
    } else if let Some(pods) = flag.strip_prefix("--max-pods=") {
        settings.max_pods = pods.parse().ok();
    }
}

/// `key=value:effect`, with the value optional.
fn taint(text: &str) -> Option<Taint> {
    let (head, effect) = text.rsplit_once(':')?;
    let (key, value) = head.split_once('=').unwrap_or((head, ""));
    Some(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() })
}

/// The AL2 images' script: `/etc/eks/bootstrap.sh 'name' --apiserver-endpoint '...' --kubelet-extra-args '...'`.
fn bootstrap(line: &str) -> KubeletSettings {
    let mut settings = KubeletSettings { starter: Starter::Bootstrap, ..KubeletSettings::default() };
    let words = shell_words(line);
    let mut words = words.iter().skip_while(|word| !word.ends_with("/etc/eks/bootstrap.sh")).skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--apiserver-endpoint" => settings.endpoint = words.next().cloned().unwrap_or_default(),
            "--local-disks" => settings.raid0 = words.next().is_some_and(|word| word == "raid0"),
            "--kubelet-extra-args" => {
                for flag in words.next().cloned().unwrap_or_default().split_whitespace() {
                    apply_flag(&mut settings, flag);
                }
            }
            word if word.starts_with("--") => {
                words.next();
            }
            word => word.clone_into(&mut settings.cluster),
        }
    }
    settings
}

fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut inside = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (Some(_), c) => word.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                inside = true;
            }
            (None, c) if c.is_whitespace() => {
                if inside || !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                inside = false;
            }
            (None, c) => word.push(c),
        }
    }
    if inside || !word.is_empty() {
        words.push(word);
    }
    words
}

#[derive(Deserialize)]
struct Document {
    settings: Option<BottlerocketSettings>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct BottlerocketSettings {
    kubernetes: Option<BottlerocketKubelet>,
    #[serde(default)]
    bootstrap_commands: BTreeMap<String, BootstrapCommand>,
}

#[derive(Deserialize)]
struct BootstrapCommand {
    commands: Vec<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct BottlerocketKubelet {
    api_server: String,
    cluster_name: String,
    max_pods: Option<u32>,
    #[serde(default)]
    node_labels: BTreeMap<String, String>,
    #[serde(default)]
    node_taints: BTreeMap<String, OneOrSome>,
    #[serde(default)]
    kube_reserved: Amounts,
    #[serde(default)]
    system_reserved: Amounts,
    #[serde(default)]
    eviction_hard: Amounts,
}

/// Taints of one key: `value:effect`, or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrSome {
    One(String),
    Some(Vec<String>),
}

/// Bottlerocket's settings of the kubelet.
fn bottlerocket(text: &str) -> Result<KubeletSettings, UserDataError> {
    let document: Document = toml::from_str(text).map_err(|e| UserDataError::Malformed(e.to_string()))?;
    let settings = document.settings.ok_or(UserDataError::NothingToStart)?;
    let kubelet = settings.kubernetes.ok_or(UserDataError::NothingToStart)?;
    let mut taints = Vec::new();
    for (key, values) in kubelet.node_taints {
        let values = match values {
            OneOrSome::One(value) => vec![value],
            OneOrSome::Some(values) => values,
        };
        for one in values {
            let (value, effect) = one.rsplit_once(':').unwrap_or(("", &one));
            taints.push(Taint { key: key.clone(), value: value.to_owned(), effect: effect.to_owned() });
        }
    }
    let mut commands = settings.bootstrap_commands.into_values().flat_map(|command| command.commands);
    Ok(KubeletSettings {
        starter: Starter::Bottlerocket,
        endpoint: kubelet.api_server,
        cluster: kubelet.cluster_name,
        labels: kubelet.node_labels,
        taints,
        max_pods: kubelet.max_pods,
        kube_reserved: kubelet.kube_reserved,
        system_reserved: kubelet.system_reserved,
        eviction_hard: kubelet.eviction_hard,
        raid0: commands.any(|words| words.iter().any(|word| word == "ephemeral-storage")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODEADM: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n\
        Content-Type: text/x-shellscript\n\n#!/bin/bash\necho hello\n--//\nContent-Type: application/node.eks.aws\n\n\
        apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n    name: c\n    \
        apiServerEndpoint: https://x\n  instance:\n    localStorage:\n      strategy: RAID0\n  kubelet:\n    config:\n      \
        maxPods: 29\n      kubeReserved: {memory: 574Mi}\n      systemReserved: {cpu: 100m}\n      \
        evictionHard: {memory.available: 5%}\n      registerWithTaints:\n      - {key: node-pool, value: pool-a, effect: NoSchedule}\n    flags:\n    - --node-labels=a=b,c/d=e\n--//--\n";

    fn pool_taint() -> Vec<Taint> {
        vec![Taint { key: "node-pool".into(), value: "pool-a".into(), effect: "NoSchedule".into() }]
    }

    fn amounts(key: &str, value: &str) -> Amounts {
        Amounts::from([(key.to_owned(), value.to_owned())])
    }

    fn labels() -> BTreeMap<String, String> {
        BTreeMap::from([("a".into(), "b".into()), ("c/d".into(), "e".into())])
    }

    #[test]
    fn user_data_of_every_family_is_parsed() {
        let bootstrap = "#!/bin/bash -xe\n/etc/eks/bootstrap.sh 'c' --apiserver-endpoint 'https://x' \
            --b64-cluster-ca 'Q0E=' --local-disks 'raid0' --kubelet-extra-args '--node-labels=a=b,c/d=e \
            --register-with-taints=node-pool=pool-a:NoSchedule --max-pods=29 --kube-reserved=memory=574Mi \
            --system-reserved=cpu=100m --eviction-hard=memory.available<5%'\n";
        let bottlerocket = "[settings.kubernetes]\napi-server = \"https://x\"\ncluster-name = \"c\"\nmax-pods = 29\n\
            [settings.kubernetes.node-labels]\n\"a\" = \"b\"\n\"c/d\" = \"e\"\n\
            [settings.kubernetes.node-taints]\n\"node-pool\" = [\"pool-a:NoSchedule\"]\n\
            [settings.kubernetes.kube-reserved]\nmemory = \"574Mi\"\n\
            [settings.kubernetes.system-reserved]\ncpu = \"100m\"\n\
            [settings.kubernetes.eviction-hard]\n\"memory.available\" = \"5%\"\n\
            [settings.bootstrap-commands.disks]\ncommands = [[\"apiclient\", \"ephemeral-storage\", \"init\"]]\n\
            mode = \"always\"\nessential = true\n";
        let wanted = |starter| KubeletSettings {
            starter,
            endpoint: "https://x".into(),
            cluster: "c".into(),
            labels: labels(),
            taints: pool_taint(),
            max_pods: Some(29),
            kube_reserved: amounts("memory", "574Mi"),
            system_reserved: amounts("cpu", "100m"),
            eviction_hard: amounts("memory.available", "5%"),
            raid0: true,
        };
        for (text, starter) in [
            (NODEADM, Starter::Nodeadm),
            (bootstrap, Starter::Bootstrap),
            (bottlerocket, Starter::Bottlerocket),
        ] {
            assert_eq!(read(text.as_bytes()).unwrap(), wanted(starter), "{text}");
        }
    }

    #[test]
    fn bottlerocket_settings_are_any_toml() {
        let text = "settings.kubernetes.api-server = 'https://x'\nsettings.kubernetes.cluster-name = 'c'\n\
            settings.kubernetes.node-taints = { node-pool = 'pool-a:NoSchedule' }\n\
            [[settings.container-registry.mirrors]]\nregistry = '*'\nendpoint = ['https://m']\n";
        assert_eq!(read(text.as_bytes()).unwrap().taints, pool_taint());
        assert!(matches!(read(b"[settings.kubernetes]\napi-server = "), Err(UserDataError::Malformed(_))));
        assert_eq!(
            read(b"[settings.host-containers.admin]\nenabled = true\n"),
            Err(UserDataError::NothingToStart)
        );
    }

    #[test]
    fn user_data_without_a_kubelet_is_an_error() {
        assert_eq!(read(b"#!/bin/bash\necho hi\n"), Err(UserDataError::NothingToStart));
        assert_eq!(read(b""), Err(UserDataError::NothingToStart));
        assert!(matches!(read(&[0xff]), Err(UserDataError::Malformed(_))));
    }
}
