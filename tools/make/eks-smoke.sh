#!/usr/bin/env bash
# Croft on EKS, in an AWS account of yours: a small cluster (or a given one), the charts, two tenants on three instances, one
# closed network, one interruption, and the removal of everything. What it does is undone when it ends, however it ends.
#
#   tools/make/eks-smoke.sh             do it
#   tools/make/eks-smoke.sh --plan      print every command, in order; contact nothing
#   tools/make/eks-smoke.sh --teardown  undo what a run left that was killed outright
#
#   REGISTRY   where the images of `make images` are, such as 111122223333.dkr.ecr.eu-central-1.amazonaws.com/croft (required)
#   CLUSTER    an EKS cluster that is there, with nodes for Croft's own pods, the Pod Identity agent and a network plugin that
#              enforces NetworkPolicies; else one is created
#   NAME       prefix of everything that is created (croft-smoke); another name for each run at a time
#   REGION     AWS region (the one that is configured)
#   MINUTES    it stops and undoes after this time (60)
#   COST_CAP   dollars: refused if the upper bound is above (2)
#   SETTLE     seconds that AWS is given to stop listing deleted resources, before they count as left (120)
#   STEPS      only these steps, to repeat one or for tests (all)
set -euo pipefail
cd "$(dirname "$0")/../.."

name=${NAME:-croft-smoke} region=${REGION:-${AWS_REGION:-${AWS_DEFAULT_REGION:-}}}
minutes=${MINUTES:-60} cap=${COST_CAP:-2} cluster=${CLUSTER:-${NAME:-croft-smoke}}
settle=${SETTLE:-120} namespace=croft-system mode=run
case ${1:-} in
    '') ;;
    --plan) mode=plan ;;
    --teardown) mode=teardown ;;
    *) echo "eks-smoke: $1 is no option: write --plan, --teardown or nothing" >&2; exit 2 ;;
esac

say() { echo "eks-smoke: $*" >&2; }
refuse() { say "$*"; exit 2; }

# Runs a command, or prints it. In the background, so that a signal doesn't wait for its end.
call() {
    if [ $mode = plan ]; then printf '%q ' "$@"; echo; return; fi
    "$@" &
    child=$!
    wait $child
    child=
}

# ask VARIABLE COMMAND...: sets the variable to what the command prints, and fails if the command does. A plan has the
# variable's name for it.
ask() {
    local variable=$1 printed
    shift
    if [ $mode = plan ]; then
        call "$@"
        printf -v "$variable" '<%s>' "$variable"
        return
    fi
    printf -v "$variable" '%s' ''
    # With its code: in a trap, a bare return has that of the command before the trap.
    printed=$("$@") || return 1
    # The AWS CLI writes None or an empty line for each page that has nothing.
    [[ $printed =~ ^([[:space:]]|None)*$ ]] || printf -v "$variable" '%s' "$printed"
}

# Undoes by a command that may find nothing to undo. Another failure is told, and the rest is undone all the same.
failed=0
gone() {
    if [ $mode = plan ]; then call "$@"; return; fi
    local answer
    if ! answer=$("$@" 2>&1) && ! grep -qiE 'NotFound|NoSuchEntity|NonExistent|not found|no cluster' <<<"$answer"; then
        say "failed to undo: $*: $answer"
        failed=1
    fi
}

# list VARIABLE COMMAND...: asks for the resources that an undo deletes. A failure is told: resources may be left.
list() {
    ask "$@" && return 0
    say "failed to list: ${*:2}"
    failed=1
    return 1
}

# Waits until a command succeeds: `eventually SECONDS WHAT COMMAND...`.
eventually() {
    local seconds=$1 what=$2
    shift 2
    if [ $mode = plan ]; then call "$@"; return; fi
    local end=$((SECONDS + seconds))
    until "$@"; do
        [ $SECONDS -lt $end ] || { say "$what: not within $seconds s"; return 1; }
        sleep 5
    done
}

trust() {
    printf '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"%s"},"Action":["sts:AssumeRole","sts:TagSession"]}]}' "$1"
}

managed() { echo "arn:$partition:iam::aws:policy/$1"; }

# make_role NAME SERVICE POLICY...
make_role() {
    local role=$1 service=$2
    shift 2
    call aws iam create-role --role-name "$role" --assume-role-policy-document "$(trust "$service")" \
        --tags "Key=croft-smoke,Value=$name"
    for policy in "$@"; do
        call aws iam attach-role-policy --role-name "$role" --policy-arn "$(managed "$policy")"
    done
}

# remove_role NAME POLICY...
remove_role() {
    local role=$1
    shift
    for policy in "$@"; do
        gone aws iam detach-role-policy --role-name "$role" --policy-arn "$(managed "$policy")"
    done
    gone aws iam delete-role --role-name "$role"
}

of_nodes=(AmazonEKSWorkerNodePolicy AmazonEKS_CNI_Policy AmazonEC2ContainerRegistryReadOnly)
created_cluster() { [ -z "${CLUSTER:-}" ]; }

# --- The steps. Each has an undo, which is known before the step begins and can be repeated. ---

do_cluster_role() { ! created_cluster || make_role "$name-cluster" eks.amazonaws.com AmazonEKSClusterPolicy; }
undo_cluster_role() { ! created_cluster || remove_role "$name-cluster" AmazonEKSClusterPolicy; }

do_system_role() { ! created_cluster || make_role "$name-system" ec2.amazonaws.com "${of_nodes[@]}"; }
undo_system_role() { ! created_cluster || remove_role "$name-system" "${of_nodes[@]}"; }

do_node_role() { make_role "$name-node" ec2.amazonaws.com "${of_nodes[@]}"; }
undo_node_role() { remove_role "$name-node" "${of_nodes[@]}"; }

do_cluster() {
    created_cluster || return 0
    ask subnets aws ec2 describe-subnets --filters Name=default-for-az,Values=true --query 'Subnets[].SubnetId' --output text
    [ -n "$subnets" ] || { say "the region has no default subnets: give a cluster with CLUSTER=name"; return 1; }
    call aws eks create-cluster --name "$cluster" --role-arn "arn:$partition:iam::$account:role/$name-cluster" \
        --resources-vpc-config "subnetIds=${subnets//[[:space:]]/,}" --access-config authenticationMode=API_AND_CONFIG_MAP \
        --tags "croft-smoke=$name"
    call aws eks wait cluster-active --name "$cluster"
}
undo_cluster() {
    created_cluster || return 0
    gone aws eks delete-cluster --name "$cluster"
    gone aws eks wait cluster-deleted --name "$cluster"
}

# Two nodes for Croft's own pods: no pool's.
do_system_nodes() {
    created_cluster || return 0
    ask subnets aws ec2 describe-subnets --filters Name=default-for-az,Values=true --query 'Subnets[].SubnetId' --output text
    # shellcheck disable=SC2086 # several subnets are several words
    call aws eks create-nodegroup --cluster-name "$cluster" --nodegroup-name "$name-system" --subnets $subnets \
        --node-role "arn:$partition:iam::$account:role/$name-system" --instance-types t3.medium \
        --scaling-config minSize=2,maxSize=2,desiredSize=2 --tags "croft-smoke=$name"
    call aws eks wait nodegroup-active --cluster-name "$cluster" --nodegroup-name "$name-system"
}
undo_system_nodes() {
    created_cluster || return 0
    gone aws eks delete-nodegroup --cluster-name "$cluster" --nodegroup-name "$name-system"
    gone aws eks wait nodegroup-deleted --cluster-name "$cluster" --nodegroup-name "$name-system"
}

do_identity_agent() { ! created_cluster || call aws eks create-addon --cluster-name "$cluster" --addon-name eks-pod-identity-agent; }
undo_identity_agent() { ! created_cluster || gone aws eks delete-addon --cluster-name "$cluster" --addon-name eks-pod-identity-agent; }

# The VPC CNI enforces NetworkPolicies once it is told to.
do_network_plugin() {
    ! created_cluster || call aws eks create-addon --cluster-name "$cluster" --addon-name vpc-cni --resolve-conflicts OVERWRITE \
        --configuration-values '{"enableNetworkPolicy":"true"}'
}
undo_network_plugin() { ! created_cluster || gone aws eks delete-addon --cluster-name "$cluster" --addon-name vpc-cni; }

# Lets instances of this role join as nodes.
do_node_access() {
    call aws eks create-access-entry --cluster-name "$cluster" --principal-arn "arn:$partition:iam::$account:role/$name-node" --type EC2_LINUX
}
undo_node_access() {
    gone aws eks delete-access-entry --cluster-name "$cluster" --principal-arn "arn:$partition:iam::$account:role/$name-node"
}

# What the EC2NodeClass finds: the cluster's subnets and security group. The value is this run's, so that no other class does.
do_discovery() {
    ask found aws eks describe-cluster --name "$cluster" --output text \
        --query 'cluster.resourcesVpcConfig.[subnetIds, clusterSecurityGroupId][]'
    # shellcheck disable=SC2086
    call aws ec2 create-tags --resources $found --tags "Key=croft.dev/discovery,Value=$name"
}
undo_discovery() {
    local found
    list found aws ec2 describe-tags --filters Name=key,Values=croft.dev/discovery "Name=value,Values=$name" --query 'Tags[].ResourceId' --output text \
        || return 1
    # shellcheck disable=SC2086
    [ -z "$found" ] || gone aws ec2 delete-tags --resources $found --tags "Key=croft.dev/discovery,Value=$name"
}

do_queue() { call aws sqs create-queue --queue-name "$name" --tags "croft-smoke=$name"; }
undo_queue() {
    local url
    if [ $mode = plan ]; then ask url aws sqs get-queue-url --queue-name "$name" --query QueueUrl --output text
    else url=$(aws sqs get-queue-url --queue-name "$name" --query QueueUrl --output text 2>/dev/null) || return 0; fi
    gone aws sqs delete-queue --queue-url "$url"
}

# Croft tags what it creates in AWS with the UID of the cluster. A Croft that is there already isn't this run's to remove.
do_cluster_uid() {
    ask installed kubectl get crd tenants.croft.dev --ignore-not-found -o name
    [ $mode = plan ] || [ -z "$installed" ] || {
        say "Croft is in the cluster $cluster already: give another one with CLUSTER=name, or run --teardown if a run of this script left it"
        return 1
    }
    know_cluster_uid
}
# `croft uninstall` leaves launch templates and instance profiles, and a role that an instance profile holds can't be deleted.
undo_cluster_uid() {
    [ -n "${cluster_uid:-}" ] || return 0
    terminate_instances
    delete_launch_templates
    delete_instance_profiles
}

know_cluster_uid() {
    [ -n "${cluster_uid:-}" ] || ask cluster_uid kubectl get namespace kube-system -o 'jsonpath={.metadata.uid}'
}

# An instance that could not be drained isn't left to be paid for: nothing manages it any more.
terminate_instances() {
    local instances
    list instances aws ec2 describe-instances --filters "Name=tag:croft.dev/cluster,Values=$cluster_uid" \
        Name=instance-state-name,Values=pending,running,stopping,stopped --query 'Reservations[].Instances[].InstanceId' --output text \
        || return 1
    [ -n "$instances" ] || return 0
    # shellcheck disable=SC2086
    gone aws ec2 terminate-instances --instance-ids $instances
    # shellcheck disable=SC2086
    gone aws ec2 wait instance-terminated --instance-ids $instances
}

delete_launch_templates() {
    local templates
    list templates aws ec2 describe-launch-templates --filters "Name=tag:croft.dev/cluster,Values=$cluster_uid" \
        --query 'LaunchTemplates[].LaunchTemplateId' --output text || return 1
    for template in $templates; do
        gone aws ec2 delete-launch-template --launch-template-id "$template"
    done
}

# By path once more, as not every implementation of IAM regards the prefix.
own_profiles() { echo "InstanceProfiles[?starts_with(Path, '/croft/$cluster_uid/')]"; }

delete_instance_profiles() {
    local profiles profile role
    list profiles aws iam list-instance-profiles --path-prefix "/croft/$cluster_uid/" \
        --query "$(own_profiles).[InstanceProfileName, Roles[0].RoleName]" --output text || return 1
    while read -r profile role; do
        [ -n "$profile" ] || continue
        [ "$role" = None ] \
            || gone aws iam remove-role-from-instance-profile --instance-profile-name "$profile" --role-name "${role:-$name-node}"
        gone aws iam delete-instance-profile --instance-profile-name "$profile"
    done <<<"$profiles"
}

# The controller's role: manifests/aws/iam-policy.json for this cluster, given to its ServiceAccount.
do_controller_role() {
    know_cluster_uid
    make_role "$name-controller" pods.eks.amazonaws.com
    call aws iam put-role-policy --role-name "$name-controller" --policy-name croft --policy-document "$(
        sed -e "s/CLUSTER_UID/$cluster_uid/g; s/CLUSTER_NAME/$cluster/g; s/REGION/$region/g; s/ACCOUNT/$account/g
            s/NODE_ROLE/$name-node/g; s/:QUEUE/:$name/g; s/arn:aws:/arn:$partition:/g" manifests/aws/iam-policy.json | tr -d '\n ')"
    call aws eks create-pod-identity-association --cluster-name "$cluster" --namespace $namespace \
        --service-account croft-controller --role-arn "arn:$partition:iam::$account:role/$name-controller"
}
undo_controller_role() {
    local found
    if [ $mode = plan ]; then
        ask found aws eks list-pod-identity-associations --cluster-name "$cluster" --namespace $namespace --query 'associations[].associationId' --output text
    else
        found=$(aws eks list-pod-identity-associations --cluster-name "$cluster" --namespace $namespace \
            --query 'associations[].associationId' --output text 2>/dev/null) || found=
    fi
    for association in $found; do
        gone aws eks delete-pod-identity-association --cluster-name "$cluster" --association-id "$association"
    done
    gone aws iam delete-role-policy --role-name "$name-controller" --policy-name croft
    remove_role "$name-controller"
}

do_croft() {
    call croft check --preflight --croft-namespace $namespace --skip-aws
    call helm install croft-crds manifests/chart/croft-crds --namespace $namespace --create-namespace
    call kubectl label namespace $namespace app.kubernetes.io/part-of=croft pod-security.kubernetes.io/enforce=restricted
    call helm install croft manifests/chart/croft --namespace $namespace --wait --timeout 5m --set "imageRegistry=$REGISTRY" \
        --set "controller.settings.clusterName=$cluster" --set "controller.settings.awsRegion=$region" \
        --set "controller.settings.interruptionQueue=$name" --set webhook.networkPolicy.enabled=false
    eventually 120 "a whole installation" croft check --croft-namespace $namespace --skip-aws
}
undo_croft() {
    [ -z "${cluster_is_gone:-}" ] || return 0
    gone croft uninstall --croft-namespace $namespace --yes --timeout 15m --aws-region "$region"
    gone helm uninstall croft --namespace $namespace --wait
    gone helm uninstall croft-crds --namespace $namespace
    gone croft uninstall --croft-namespace $namespace --yes --crds --aws-region "$region"
    gone kubectl delete namespace $namespace tenant-a tenant-b --wait=false
}

# The example, on at most three nodes of two cores: the bound of the cost rests on the limits.
do_tenants() {
    call kubectl apply -f "$(write_platform)"
    for tenant in a b; do
        call kubectl create deployment web --namespace "tenant-$tenant" --image registry.k8s.io/pause:3.10 --replicas "$([ $tenant = a ] && echo 2 || echo 1)"
        call kubectl set resources deployment web --namespace "tenant-$tenant" --requests cpu=1200m,memory=256Mi
    done
    for tenant in a b; do
        call kubectl rollout status deployment web --namespace "tenant-$tenant" --timeout 10m
    done
    eventually 60 "three nodes of pools" three_nodes
}
undo_tenants() { :; } # undo_croft drains them

write_platform() {
    local file=$folder/platform.yaml
    sed -e "s/cpu: 1000/cpu: 4/; s/croft.dev\/discovery: croft/croft.dev\/discovery: $name/; s/role: croft-node/role: $name-node/" \
        -e 's/consolidateAfter: 30s/consolidateAfter: 10m/; s/values: \[amd64, arm64\]/values: [amd64]/' \
        -e "s/\(instance-generation.*\)/\1\n      - {key: karpenter.k8s.aws\/instance-cpu, operator: In, values: [\"2\"]}/" \
        manifests/examples/two-tenants/platform.yaml >"$file"
    echo "$file"
}
three_nodes() { [ "$(kubectl get nodes -l node-pool --no-headers | grep -c ' Ready ')" = 3 ]; }

# Every pod of a tenant runs on its pool, and no other pod does but those of DaemonSets that tolerate everything.
do_isolation() {
    for tenant in a b; do
        ask nodes kubectl get pods --namespace "tenant-$tenant" -o 'jsonpath={.items[*].spec.nodeName}'
        for node in $nodes; do
            ask pool kubectl get node "$node" -o 'jsonpath={.metadata.labels.node-pool}'
            [ $mode = plan ] || [ "$pool" = "pool-$tenant" ] || { say "a pod of tenant-$tenant runs on $node of pool '$pool'"; return 1; }
        done
    done
    call croft audit
}
undo_isolation() { :; }

# Packets from one tenant to a pod of the other arrive, then are dropped, then arrive again.
do_network() {
    local image=registry.k8s.io/e2e-test-images/agnhost:2.53
    call kubectl create deployment server --namespace tenant-b --image $image -- /agnhost netexec --http-port=8080
    call kubectl create deployment client --namespace tenant-a --image $image -- /agnhost pause
    call kubectl rollout status deployment server --namespace tenant-b --timeout 5m
    call kubectl rollout status deployment client --namespace tenant-a --timeout 5m
    ask server kubectl get pods --namespace tenant-b --selector app=server -o 'jsonpath={.items[0].status.podIP}'
    eventually 60 "a connection to tenant-b" reaches "$server"
    call kubectl patch tenant tenant-b --type merge --patch '{"spec":{"networkIsolation":{"enabled":true}}}'
    call kubectl wait --for condition=ObjectsKept tenant/tenant-b --timeout 1m
    eventually 120 "packets to tenant-b dropped (does the network plugin enforce NetworkPolicies?)" is_closed "$server"
    call kubectl patch tenant tenant-b --type merge \
        --patch '{"spec":{"networkIsolation":{"allowFrom":[{"namespace":"tenant-a"}]}}}'
    eventually 120 "a connection to tenant-b that allowFrom allows" reaches "$server"
}
undo_network() { :; } # undo_croft deletes the namespaces
reaches() { kubectl exec --namespace tenant-a deployment/client -- /agnhost connect --timeout=3s "$1:8080"; }
is_closed() { ! reaches "$1"; }

# The message that EventBridge puts on the queue two minutes before a spot instance is taken back.
interruption() {
    printf '{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"%s","instance-action":"terminate"}}' "$1"
}
do_interruption() {
    ask url aws sqs get-queue-url --queue-name "$name" --query QueueUrl --output text
    ask node kubectl get pods --namespace tenant-b -o 'jsonpath={.items[0].spec.nodeName}'
    ask provider_id kubectl get node "$node" -o 'jsonpath={.spec.providerID}'
    call aws sqs send-message --queue-url "$url" --message-body "$(interruption "${provider_id##*/}")"
    call kubectl wait --for=delete "node/$node" --timeout 10m
    call kubectl rollout status deployment web --namespace tenant-b --timeout 10m
    call aws ec2 wait instance-terminated --instance-ids "${provider_id##*/}"
}
undo_interruption() { :; }

all=(cluster_role system_role node_role cluster system_nodes identity_agent network_plugin node_access discovery queue cluster_uid controller_role croft tenants
    isolation network interruption)
read -ra steps <<<"${STEPS:-${all[*]}}"

# --- Cost, tools, and the run. ---

# An upper bound: twice the prices of us-east-1, which are above those of every region. The control plane has 0.10 $/h, two
# t3.medium 0.084, and three instances of two cores, as dear as m, c and r have them, 0.55; with disks and addresses 0.85.
bound() { awk "BEGIN { printf \"%.2f\", 2 * 0.85 * $minutes / 60 }"; }

was_begun() { [[ " ${begun[*]} " = *" $1 "* ]]; }

# Nothing is left: what Croft creates has the cluster's tag or its path, what this script creates its name.
nothing_left() {
    local left=0 end=$((SECONDS + settle)) tag="Name=tag:croft.dev/cluster,Values=${cluster_uid:-}"
    if [ -n "${cluster_uid:-}" ]; then
        none_left instances aws ec2 describe-instances --filters "$tag" Name=instance-state-name,Values=pending,running,stopping,stopped \
            --query 'Reservations[].Instances[].InstanceId' --output text
        none_left volumes aws ec2 describe-volumes --filters "$tag" --query 'Volumes[].VolumeId' --output text
        none_left "network interfaces" aws ec2 describe-network-interfaces --filters "$tag" \
            --query 'NetworkInterfaces[].NetworkInterfaceId' --output text
        none_left "launch templates" aws ec2 describe-launch-templates --filters "$tag" \
            --query 'LaunchTemplates[].LaunchTemplateId' --output text
        none_left "instance profiles" aws iam list-instance-profiles --path-prefix "/croft/$cluster_uid/" \
            --query "$(own_profiles).InstanceProfileName" --output text
    elif was_begun croft; then
        say "not checked by tag: the UID of the cluster is unknown, and no instance profile of Croft holds the role $name-node"
    fi
    none_left roles aws iam list-roles --query "Roles[?starts_with(RoleName, '$name-')].RoleName" --output text
    ! was_begun queue || none_left queues aws sqs list-queues --queue-name-prefix "$name" \
        --query "QueueUrls[?ends_with(@, '/$name')]" --output text
    ! was_begun cluster || ! created_cluster || none_left clusters aws eks list-clusters --query "clusters[?@ == '$cluster']" --output text
    return $left
}

# none_left KIND COMMAND...: the command lists nothing, or soon does. A deleted queue is listed for up to a minute.
none_left() {
    local kind=$1 found
    shift
    while ask found "$@"; do
        [ $mode != plan ] && [ -n "$found" ] || return 0
        [ $SECONDS -lt "$end" ] || { say "left: $kind $found"; left=1; return 0; }
        sleep 2
    done
    say "failed to list $kind: some may be left"
    left=1
}

undo_all() {
    trap '' INT TERM
    set +e
    for ((at = ${#begun[@]} - 1; at >= 0; at--)); do
        say "undoing ${begun[at]}"
        "undo_${begun[at]}"
    done
    nothing_left || failed=1
}

finish() {
    local code=$?
    trap - EXIT
    for process in "${watchdog:-}" "${child:-}"; do
        [ -z "$process" ] || kill "$process" 2>/dev/null || true
    done
    undo_all
    rm -rf "$folder"
    [ $code = 0 ] || say "failed at step ${current:-0}: see above; everything was undone"
    [ $failed = 0 ] || { say "something could not be undone: see above, then run tools/make/eks-smoke.sh --teardown"; exit 1; }
    [ $code != 0 ] || say "done in $((SECONDS / 60)) min; nothing is left"
    exit $code
}

begun=()
folder=$(mktemp -d)
if [ $mode = plan ]; then
    account='<account>' partition=aws region=${region:-'<region>'} REGISTRY=${REGISTRY:-'<registry>'}
else
    for tool in aws kubectl helm croft; do
        command -v $tool >/dev/null || refuse "$tool is missing: install it and put it on PATH"
    done
    [ -n "$region" ] || refuse "no region: write REGION=eu-central-1"
    [ -n "${REGISTRY:-}" ] || [ $mode = teardown ] || refuse "no images: push those of 'make images' and write REGISTRY=where/they/are"
    awk "BEGIN { exit !($(bound) > $cap) }" && refuse "it may cost \$$(bound), which is above COST_CAP=$cap: write fewer MINUTES or a higher COST_CAP"
    export AWS_DEFAULT_REGION=$region
    arn=$(aws sts get-caller-identity --query Arn --output text)
    account=$(cut -d: -f5 <<<"$arn") partition=$(cut -d: -f2 <<<"$arn")
fi

if [ $mode = teardown ]; then
    begun=("${steps[@]}")
    current=teardown
    # As in a run: a KUBECONFIG of the shell is that of a given cluster, never that of one that was created.
    if created_cluster || [ -z "${KUBECONFIG:-}" ]; then
        export KUBECONFIG=$folder/kubeconfig
        if ! answer=$(aws eks update-kubeconfig --name "$cluster" --kubeconfig "$KUBECONFIG" 2>&1); then
            grep -qiE 'NotFound|no cluster' <<<"$answer" && cluster_is_gone=1
            say "the cluster $cluster can't be reached: $answer"
        fi
    fi
    cluster_uid=$(kubectl get namespace kube-system -o 'jsonpath={.metadata.uid}' 2>/dev/null) || cluster_uid=
    if [ -z "$cluster_uid" ]; then
        # The path of the instance profile that holds the nodes' role is /croft/UID/.
        profile_path=$(aws iam list-instance-profiles-for-role --role-name "$name-node" \
            --query "InstanceProfiles[?starts_with(Path, '/croft/')] | [0].Path" --output text 2>/dev/null) || profile_path=None
        [ "$profile_path" = None ] || cluster_uid=$(cut -d/ -f3 <<<"$profile_path")
    fi
    finish
fi

say "account $account, region $region, cluster $cluster; at most \$$(bound) in $minutes min"
if [ $mode = run ]; then
    trap finish EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    (
        trap 'kill $!; exit' TERM
        # It ends with the script, also with one that was killed outright.
        for ((end = SECONDS + minutes * 60; SECONDS < end;)); do
            sleep 2 &
            wait $!
            kill -0 $$ 2>/dev/null || exit
        done
        say "MINUTES=$minutes are over"
        kill -TERM $$
    ) &
    watchdog=$!
fi
for current in "${steps[@]}"; do
    say "$current"
    begun+=("$current")
    "do_$current"
    # kubectl is needed from here on. A given KUBECONFIG is that of the given cluster.
    if [ "$current" = cluster ] && { created_cluster || [ -z "${KUBECONFIG:-}" ]; }; then
        export KUBECONFIG=$folder/kubeconfig
        call aws eks update-kubeconfig --name "$cluster" --kubeconfig "$KUBECONFIG"
    fi
done
if [ $mode = plan ]; then
    echo "# undone at the end, however it ends:"
    undo_all
    rm -rf "$folder"
fi
