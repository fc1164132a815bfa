//! Labels that a kubelet may set, and resources that it reserves.

/// Reserved resources and eviction threshold, as the EKS images configure them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// kube-reserved cpu, in thousandths.
    pub cpu_milli: u64,
    /// kube-reserved memory, in MiB.
    pub memory_mib: u64,
    /// Hard eviction threshold of memory, in MiB.
    pub eviction_mib: u64,
}

/// The kubelet's default threshold `memory.available<100Mi`.
pub const EVICTION_MIB: u64 = 100;

/// The thresholds of the EKS images, by signal.
/// Source: awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go.
pub const EVICTION_HARD: [(&str, &str); 3] =
    [("memory.available", "100Mi"), ("nodefs.available", "10%"), ("nodefs.inodesFree", "5%")];

/// kube-reserved as nodeadm and bootstrap.sh compute it: 255 MiB and 11 MiB per pod; of the cpus 6 % of the
/// first, 1 % of the second, 0.5 % of the next two and 0.25 % of the rest.
/// Source: awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go.
#[must_use]
pub fn reserved(vcpus: u32, max_pods: u32) -> Reserved {
    // In hundred-thousandths, so that 0.25 % of a cpu (2.5m) is an integer.
    let per_cpu = |index: u32| match index {
        0 => 6_000u64,
        1 => 1_000,
        2 | 3 => 500,
        _ => 250,
    };
    let cpu: u64 =
        (0..vcpus.min(4)).map(per_cpu).sum::<u64>() + u64::from(vcpus.saturating_sub(4)) * per_cpu(4);
    Reserved { cpu_milli: cpu / 100, memory_mib: 255 + 11 * u64::from(max_pods), eviction_mib: EVICTION_MIB }
}

/// Keys in the kubernetes.io and k8s.io namespaces that a kubelet may set.
/// Source: kubernetes, staging/src/k8s.io/kubelet/pkg/apis/well_known_labels.go.
const ALLOWED: [&str; 11] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// True if a kubelet may register with label `key`. With another one it exits: "unknown 'kubernetes.io' or 'k8s.io'
/// labels specified with --node-labels". Source: kubernetes, cmd/kubelet/app/options/options.go
/// (`ValidateKubeletFlags`).
#[must_use]
pub fn may_set_label(key: &str) -> bool {
    let Some((namespace, _)) = key.split_once('/') else { return true };
    let within = |domain: &str| {
        namespace == domain || namespace.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
    };
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    within("kubelet.kubernetes.io") || within("node.kubernetes.io") || ALLOWED.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_resources_equal_those_of_the_eks_images() {
        for (vcpus, pods, cpu, memory) in
            [(1, 8, 60, 343), (2, 29, 70, 574), (4, 58, 80, 893), (8, 58, 90, 893), (96, 737, 310, 8362)]
        {
            let r = reserved(vcpus, pods);
            assert_eq!((r.cpu_milli, r.memory_mib), (cpu, memory), "{vcpus} cpus, {pods} pods");
        }
    }

    #[test]
    fn labels_that_a_kubelet_exits_on_are_refused() {
        for key in [
            "node-restriction.kubernetes.io/pool",
            "node-role.kubernetes.io/worker",
            "kubernetes.io/role",
            "foo.k8s.io/x",
            "k8s.io/x",
        ] {
            assert!(!may_set_label(key), "{key}");
        }
        for key in [
            "node-pool",
            "karpenter.sh/capacity-type",
            "karpenter.sh/nodepool",
            "karpenter.sh/provisioner-name",
            "karpenter.k8s.aws/instance-family",
            "kubernetes.io/arch",
            "node.kubernetes.io/anything",
            "x.node.kubernetes.io/anything",
            "kubelet.kubernetes.io/x",
            "notkubernetes.io/x",
            "topology.kubernetes.io/zone",
        ] {
            assert!(may_set_label(key), "{key}");
        }
    }
}
