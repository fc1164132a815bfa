//! The kubelet settings in an instance's user data, for the image families that Croft supports.

use std::{collections::BTreeMap, io::Read as _};

use serde::Deserialize;

/// Limit of user data after decompression, in bytes.
const MOST_UNPACKED: u64 = 1 << 20;

/// The kubelet's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletSettings {
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
        None if text.contains("[settings.kubernetes]") => return bottlerocket(text),
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
    kubelet: KubeletConfig,
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
        let kubelet = config.spec.kubelet;
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
    if let Some(labels) = flag.strip_prefix("--node-labels=") {
        settings.labels.extend(
            labels
                .split(',')
                .filter_map(|pair| pair.split_once('='))
                .map(|(k, v)| (k.to_owned(), v.to_owned())),
        );
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
    let mut settings = KubeletSettings::default();
    let words = shell_words(line);
    let mut words = words.iter().skip_while(|word| !word.ends_with("/etc/eks/bootstrap.sh")).skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--apiserver-endpoint" => settings.endpoint = words.next().cloned().unwrap_or_default(),
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

/// Bottlerocket settings of the kubelet: tables of `key = value` lines.
fn bottlerocket(text: &str) -> Result<KubeletSettings, UserDataError> {
    let mut settings = KubeletSettings::default();
    let mut table = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut table);
            continue;
        }
        let (key, value) = line
            .split_once(" = ")
            .ok_or_else(|| UserDataError::Malformed(format!("{line} is no `key = value`")))?;
        let key = key.trim_matches('"').to_owned();
        let plain = value.trim_matches('"').to_owned();
        match table.as_str() {
            "settings.kubernetes" => match key.as_str() {
                "api-server" => settings.endpoint = plain,
                "cluster-name" => settings.cluster = plain,
                "max-pods" => settings.max_pods = plain.parse().ok(),
                _ => {}
            },
            "settings.kubernetes.node-labels" => {
                settings.labels.insert(key, plain);
            }
            "settings.kubernetes.node-taints" => {
                for one in value.trim_matches(['[', ']']).split(',') {
                    let one = one.trim().trim_matches('"');
                    let (value, effect) = one.rsplit_once(':').unwrap_or(("", one));
                    settings.taints.push(Taint {
                        key: key.clone(),
                        value: value.to_owned(),
                        effect: effect.to_owned(),
                    });
                }
            }
            _ => {}
        }
    }
    if settings.endpoint.is_empty() {
        return Err(UserDataError::NothingToStart);
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODEADM: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n\
        Content-Type: text/x-shellscript\n\n#!/bin/bash\necho hello\n--//\nContent-Type: application/node.eks.aws\n\n\
        apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n    name: c\n    \
        apiServerEndpoint: https://x\n  kubelet:\n    config:\n      maxPods: 29\n      registerWithTaints:\n      \
        - {key: node-pool, value: pool-a, effect: NoSchedule}\n    flags:\n    - --node-labels=a=b,c/d=e\n--//--\n";

    fn pool_taint() -> Vec<Taint> {
        vec![Taint { key: "node-pool".into(), value: "pool-a".into(), effect: "NoSchedule".into() }]
    }

    fn labels() -> BTreeMap<String, String> {
        BTreeMap::from([("a".into(), "b".into()), ("c/d".into(), "e".into())])
    }

    #[test]
    fn user_data_of_every_family_is_parsed() {
        let bootstrap = "#!/bin/bash -xe\n/etc/eks/bootstrap.sh 'c' --apiserver-endpoint 'https://x' \
            --b64-cluster-ca 'Q0E=' --kubelet-extra-args '--node-labels=a=b,c/d=e \
            --register-with-taints=node-pool=pool-a:NoSchedule --max-pods=29'\n";
        let bottlerocket = "[settings.kubernetes]\napi-server = \"https://x\"\ncluster-name = \"c\"\nmax-pods = 29\n\
            [settings.kubernetes.node-labels]\n\"a\" = \"b\"\n\"c/d\" = \"e\"\n\
            [settings.kubernetes.node-taints]\n\"node-pool\" = [\"pool-a:NoSchedule\"]\n";
        let wanted = KubeletSettings {
            endpoint: "https://x".into(),
            cluster: "c".into(),
            labels: labels(),
            taints: pool_taint(),
            max_pods: Some(29),
        };
        for text in [NODEADM, bootstrap, bottlerocket] {
            assert_eq!(read(text.as_bytes()).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn user_data_without_a_kubelet_is_an_error() {
        assert_eq!(read(b"#!/bin/bash\necho hi\n"), Err(UserDataError::NothingToStart));
        assert_eq!(read(b""), Err(UserDataError::NothingToStart));
        assert!(matches!(read(&[0xff]), Err(UserDataError::Malformed(_))));
    }
}
