//! Every error code of the calls, with its class and remedy.
//!
//! Sources: "Error codes for the Amazon EC2 API", "EC2 Fleet: instance launch errors", and the common errors of IAM,
//! SSM, SQS, Pricing, STS and EKS. Other codes are classified by their HTTP status: since calls are idempotent, an
//! unknown 4xx ends a launch attempt, and an unknown 5xx is retried.

use croft_cloud::FaultClass;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// The code; one that ends in `*` is a prefix.
    pub code: &'static str,
    /// How it is handled.
    pub class: FaultClass,
    /// Its meaning.
    pub meaning: &'static str,
    /// The remedy for the user.
    pub remedy: &'static str,
}

const fn row(code: &'static str, class: FaultClass, meaning: &'static str, remedy: &'static str) -> Code {
    Code { code, class, meaning, remedy }
}

use FaultClass::{
    Exists, Forbidden, Invalid, NoCapacity, NotFound, Quota, Throttled, TokenReused, Unauthenticated,
    Unavailable,
};

const WAIT: &str = "Croft waits and tries again; nothing to do";
const OTHER_TYPES: &str = "Croft tries other types and zones; allow the pool more of them if this stays (fewer requirements, more subnets)";
const CREDENTIALS: &str =
    "Give the controller valid credentials (IRSA, EKS Pod Identity or an instance profile)";
const RIGHTS: &str = "Attach the policy of manifests/aws/iam-policy.json to the controller's role";
const RAISE: &str = "Ask for an increase in Service Quotas, or lower the pool's limits";
const CLASS: &str = "Correct the EC2NodeClass";

/// The table, by code.
pub const CODES: &[Code] = &[
    // Throttling.
    row("RequestLimitExceeded", Throttled, "the account makes too many calls", WAIT),
    row("Throttling*", Throttled, "the account makes too many calls", WAIT),
    row("RequestThrottled*", Throttled, "the account makes too many calls", WAIT),
    row("TooManyRequestsException", Throttled, "the account makes too many calls", WAIT),
    row("ResourceCountExceeded", Throttled, "the account changes too much at once", WAIT),
    row("SlowDown", Throttled, "the account makes too many calls", WAIT),
    row("OverLimit", Throttled, "too many messages are in flight", WAIT),
    // Errors of the cloud itself.
    row("InternalError", Unavailable, "AWS has an internal error", WAIT),
    row("InternalFailure", Unavailable, "AWS has an internal error", WAIT),
    row("InternalErrorException", Unavailable, "AWS has an internal error", WAIT),
    row("InternalServerError", Unavailable, "AWS has an internal error", WAIT),
    row("ServerException", Unavailable, "AWS has an internal error", WAIT),
    row("ServiceFailure", Unavailable, "AWS has an internal error", WAIT),
    row("ServiceUnavailable*", Unavailable, "the service is down", WAIT),
    row("Unavailable", Unavailable, "the service is overloaded", WAIT),
    row("Server.InternalError", Unavailable, "AWS could not start the instance", WAIT),
    row("RequestTimeout*", Unavailable, "the request took too long on its way", WAIT),
    row("ConcurrentModification*", Unavailable, "something else changes the same resource", WAIT),
    row("IncorrectState", Unavailable, "a resource of the request is changing", WAIT),
    row(
        "NoEndpoint",
        Unavailable,
        "the service's address can't be resolved: the region may not exist, or DNS doesn't work",
        "Check the controller's region and the cluster's DNS",
    ),
    row("NoAnswer", Unavailable, "AWS can't be reached, or the answer was lost", WAIT),
    row(
        "NoPriceList",
        Unavailable,
        "no endpoint serves the prices of the region",
        "Nothing to do: the built-in prices are used, marked as estimates",
    ),
    // Credentials.
    row("AuthFailure", Unauthenticated, "the credentials are not valid", CREDENTIALS),
    row("InvalidClientTokenId", Unauthenticated, "the access key does not exist", CREDENTIALS),
    row("UnrecognizedClientException", Unauthenticated, "the access key does not exist", CREDENTIALS),
    row("InvalidAccessKeyId", Unauthenticated, "the access key does not exist", CREDENTIALS),
    row("MissingAuthenticationToken*", Unauthenticated, "the request carries no credentials", CREDENTIALS),
    row("SignatureDoesNotMatch", Unauthenticated, "the secret key is wrong", CREDENTIALS),
    row("IncompleteSignature", Unauthenticated, "the signature is malformed", CREDENTIALS),
    row(
        "RequestExpired",
        Unauthenticated,
        "the credentials expired or the clock is wrong",
        "Renew the credentials and check the node's clock",
    ),
    row("ExpiredToken*", Unauthenticated, "the credentials have expired", CREDENTIALS),
    row("NoCredentials", Unauthenticated, "no credentials were found", CREDENTIALS),
    row(
        "OptInRequired",
        Unauthenticated,
        "the account is not subscribed to the service",
        "Activate the account or the region",
    ),
    row("Blocked", Unauthenticated, "the account is blocked", "Contact AWS Support"),
    row(
        "PendingVerification",
        Unauthenticated,
        "the account is being verified",
        "Wait for AWS to verify the account",
    ),
    row("NoRegion", Unauthenticated, "no region is set", "Set --aws-region or AWS_REGION of the controller"),
    // Permissions.
    row("UnauthorizedOperation", Forbidden, "the policy does not grant the call", RIGHTS),
    row("AccessDenied*", Forbidden, "the policy does not grant the call", RIGHTS),
    row("UnauthorizedAccess", Forbidden, "the policy does not grant the call", RIGHTS),
    row("NotAuthorized", Forbidden, "the policy does not grant the call", RIGHTS),
    row("Client.UnauthorizedOperation", Forbidden, "the policy does not grant the call", RIGHTS),
    row("AuthorizationError*", Forbidden, "the policy does not grant the call", RIGHTS),
    row("InvalidSecurity", Forbidden, "the queue wants an encrypted connection", "Use an https endpoint"),
    // Capacity.
    row(
        "InsufficientInstanceCapacity",
        NoCapacity,
        "no instance of the type is free in the zone",
        OTHER_TYPES,
    ),
    row("InsufficientHostCapacity", NoCapacity, "no host is free in the zone", OTHER_TYPES),
    row("InsufficientReservedInstanceCapacity", NoCapacity, "the reservation is used up", OTHER_TYPES),
    row("InsufficientCapacity*", NoCapacity, "no instance of the type is free in the zone", OTHER_TYPES),
    row(
        "InsufficientCapacityOnOutpost",
        NoCapacity,
        "no instance of the type is free on the Outpost",
        OTHER_TYPES,
    ),
    row("UnfulfillableCapacity", NoCapacity, "no spot instance of the type is free in the zone", OTHER_TYPES),
    row(
        "Unsupported",
        NoCapacity,
        "the type is not supported in the zone, or the account may not launch it",
        OTHER_TYPES,
    ),
    row("ReservationCapacityExceeded", NoCapacity, "the capacity reservation is used up", OTHER_TYPES),
    row(
        "InsufficientFreeAddressesInSubnet",
        NoCapacity,
        "the subnet has no free addresses",
        "Croft tries other subnets; add larger ones to the EC2NodeClass",
    ),
    row(
        "Server.InsufficientInstanceCapacity",
        NoCapacity,
        "no instance of the type was free when it was to start",
        OTHER_TYPES,
    ),
    row("Server.SpotInstanceTermination", NoCapacity, "spot took the instance back at once", OTHER_TYPES),
    row("InsufficientVolumeCapacity", NoCapacity, "no volume of the type is free in the zone", OTHER_TYPES),
    row("SpotMaxPriceTooLow", NoCapacity, "the spot price is above the highest price allowed", OTHER_TYPES),
    row("InstanceTypeNotSupported*", NoCapacity, "the type is not supported in the zone", OTHER_TYPES),
    // Quotas.
    row("VcpuLimitExceeded", Quota, "the account's vCPU quota is used up", RAISE),
    row("InstanceLimitExceeded", Quota, "the account's quota of instances is used up", RAISE),
    row("MaxSpotInstanceCountExceeded", Quota, "the account's spot quota is used up", RAISE),
    row("MaxSpotFleetRequestCountExceeded", Quota, "the account's quota of fleets is used up", RAISE),
    row("FleetLimitExceeded*", Quota, "the account's quota of fleets is used up", RAISE),
    row(
        "LaunchTemplateLimitExceeded",
        Quota,
        "the account's quota of launch templates is used up",
        "Delete launch templates that nothing uses, or ask for an increase",
    ),
    row(
        "NetworkInterfaceLimitExceeded",
        Quota,
        "the account's quota of network interfaces is used up",
        RAISE,
    ),
    row("VolumeLimitExceeded", Quota, "the account's quota of volumes is used up", RAISE),
    row("Client.VolumeLimitExceeded", Quota, "the account's quota of volumes is used up", RAISE),
    row("MaxIOPSLimitExceeded", Quota, "the account's quota of IOPS is used up", RAISE),
    row("TagLimitExceeded", Quota, "the resource has more than 50 tags", "Write fewer spec.tags"),
    row("LimitExceeded*", Quota, "a quota of the account is used up", RAISE),
    row("AddressLimitExceeded", Quota, "the account's quota of addresses is used up", RAISE),
    // Not found.
    row("InvalidInstanceID.NotFound", NotFound, "the instance is not there, or not visible yet", ""),
    row("InvalidInstanceID", NotFound, "the instance is not there", ""),
    row("InvalidLaunchTemplate*.NotFoundException", NotFound, "the launch template is gone", WAIT),
    row("InvalidLaunchTemplateId.NotFound", NotFound, "the launch template is gone", WAIT),
    row("InvalidSubnetID.NotFound", NotFound, "the subnet is gone", "Check spec.subnetSelectorTerms"),
    row("InvalidSubnet", NotFound, "the subnet is gone", "Check spec.subnetSelectorTerms"),
    row(
        "InvalidGroup.NotFound",
        NotFound,
        "the security group is gone",
        "Check spec.securityGroupSelectorTerms",
    ),
    row(
        "InvalidSecurityGroupID.NotFound",
        NotFound,
        "the security group is gone",
        "Check spec.securityGroupSelectorTerms",
    ),
    row("InvalidAMIID.NotFound", NotFound, "the image is gone", "Check spec.amiSelectorTerms"),
    row(
        "InvalidAMIID.Unavailable",
        NotFound,
        "the image is deregistered or not ready",
        "Check spec.amiSelectorTerms",
    ),
    row("InvalidSnapshot.NotFound", NotFound, "the snapshot is gone", CLASS),
    row(
        "InvalidCapacityReservationId*",
        NotFound,
        "the capacity reservation is gone",
        "Check spec.capacityReservationSelectorTerms",
    ),
    row(
        "ParameterNotFound",
        NotFound,
        "no image is published under that name",
        "Check the alias in spec.amiSelectorTerms: family, version, and that it exists for the cluster's Kubernetes version",
    ),
    row(
        "ParameterVersionNotFound",
        NotFound,
        "no image is published under that version",
        "Check the alias in spec.amiSelectorTerms",
    ),
    row(
        "NoSuchEntity",
        NotFound,
        "the role or instance profile is not there",
        "Check spec.role or spec.instanceProfile",
    ),
    row(
        "ResourceNotFoundException",
        NotFound,
        "the cluster is not there",
        "Check --cluster-name and the region",
    ),
    row("NotFoundException", NotFound, "it is not there", ""),
    row("QueueDoesNotExist", NotFound, "the interruption queue is not there", "Check --interruption-queue"),
    row(
        "AWS.SimpleQueueService.NonExistentQueue",
        NotFound,
        "the interruption queue is not there",
        "Check --interruption-queue",
    ),
    // Already exists.
    row(
        "InvalidLaunchTemplateName.AlreadyExistsException",
        Exists,
        "the launch template is there already",
        "",
    ),
    row("EntityAlreadyExists*", Exists, "the instance profile is there already", ""),
    // Tokens.
    row(
        "IdempotentParameterMismatch",
        TokenReused,
        "the same attempt was sent before with another request",
        "Croft looks for the instance that the earlier request launched",
    ),
    row(
        "IdempotentInstanceTerminated",
        Invalid,
        "the instance of this attempt was terminated",
        "Croft makes the next attempt",
    ),
    row(
        "IdempotencyTokenExpired",
        Invalid,
        "the attempt is too old to repeat",
        "Croft makes the next attempt",
    ),
    row(
        "Client.User*",
        Invalid,
        "a user ended the instance while it started",
        "Croft makes the next attempt",
    ),
    // Invalid requests.
    row(
        "Client.InternalError",
        Invalid,
        "the instance ended as it started: most often a volume's key that EC2 may not use",
        "Let EC2 use the keys of spec.blockDeviceMappings, or choose others",
    ),
    row(
        "Client.InvalidSnapshot*",
        Invalid,
        "a volume's snapshot is gone or can't be used",
        "Correct spec.blockDeviceMappings",
    ),
    row(
        "Client.InvalidKMSKey*",
        Invalid,
        "a volume's key can't be used",
        "Correct the keys of spec.blockDeviceMappings",
    ),
    row("InvalidParameter*", Invalid, "a value of the request is not valid", CLASS),
    row("MissingParameter", Invalid, "a value of the request is missing", CLASS),
    row(
        "InvalidUserData*",
        Invalid,
        "the user data is malformed or too large",
        "Correct or shorten spec.userData",
    ),
    row("UserDataLimitExceeded", Invalid, "the user data is larger than 16 KiB", "Shorten spec.userData"),
    row(
        "InvalidBlockDeviceMapping",
        Invalid,
        "a block device mapping is not valid",
        "Correct spec.blockDeviceMappings",
    ),
    row("InvalidAMIID.Malformed", Invalid, "an image id is malformed", "Correct spec.amiSelectorTerms"),
    row("InvalidSubnetID.Malformed", Invalid, "a subnet id is malformed", "Correct spec.subnetSelectorTerms"),
    row(
        "InvalidGroupId.Malformed",
        Invalid,
        "a security group id is malformed",
        "Correct spec.securityGroupSelectorTerms",
    ),
    row("InvalidInstanceID.Malformed", Invalid, "an instance's id is malformed", ""),
    row("InvalidInstanceType", Invalid, "the instance type does not exist", ""),
    row("InvalidKeyPair.NotFound", Invalid, "the key pair is not there", CLASS),
    row(
        "InvalidPlacementGroup*",
        Invalid,
        "the placement group is not there or does not fit",
        "Correct spec.placementGroup",
    ),
    row("PlacementGroup*", Invalid, "the placement group does not fit", "Correct spec.placementGroup"),
    row("InvalidNetworkInterface*", Invalid, "a network interface is not valid", CLASS),
    row("InvalidAvailabilityZone", Invalid, "the zone does not exist", "Correct the pool's zone requirement"),
    row(
        "InvalidIamInstanceProfile*",
        Invalid,
        "the instance profile is not valid",
        "Check spec.role or spec.instanceProfile",
    ),
    row("InvalidTagKey.Malformed", Invalid, "a tag key is not valid", "Correct spec.tags"),
    row(
        "SecurityGroupsPerInterfaceLimitExceeded",
        Invalid,
        "a network interface can't have so many security groups",
        "Select fewer groups in spec.securityGroupSelectorTerms",
    ),
    row(
        "SecurityGroupsPerInstanceLimitExceeded",
        Invalid,
        "an instance can't have so many security groups",
        "Select fewer groups in spec.securityGroupSelectorTerms",
    ),
    row("EncryptedVolumesNotSupported", Invalid, "the type can't have encrypted volumes", CLASS),
    row("DeleteConflict", Invalid, "it is still in use", ""),
    row("UnknownParameter", Invalid, "the endpoint does not know a parameter", "Check the endpoint"),
    row("InvalidAction", Invalid, "the endpoint does not know the call", "Check the endpoint"),
    row("UnknownOperationException", Invalid, "the endpoint does not know the call", "Check the endpoint"),
    row("InvalidNextToken", Invalid, "a page's token is no longer valid", WAIT),
    row("ValidationError*", Invalid, "the request is not valid", CLASS),
    row("ValidationException", Invalid, "the request is not valid", CLASS),
    row("MalformedQueryString", Invalid, "the request is malformed", "Check the endpoint"),
    row("ReceiptHandleIsInvalid", Invalid, "the message is gone already", ""),
    row("DryRunOperation", Invalid, "it was a dry run", ""),
];

/// The row of `code`.
#[must_use]
pub fn find(code: &str) -> Option<&'static Code> {
    let exact = CODES.iter().find(|row| row.code == code);
    exact.or_else(|| {
        CODES
            .iter()
            .filter(|row| matches(row.code, code))
            // The most specific pattern.
            .max_by_key(|row| row.code.len())
    })
}

fn matches(pattern: &str, code: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, tail)) => {
            code.len() >= head.len() + tail.len() && code.starts_with(head) && code.ends_with(tail)
        }
        None => pattern == code,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_match_by_name_and_by_pattern() {
        for (code, class) in [
            ("InsufficientInstanceCapacity", NoCapacity),
            ("RequestLimitExceeded", Throttled),
            ("ThrottlingException", Throttled),
            ("UnauthorizedOperation", Forbidden),
            ("AccessDeniedException", Forbidden),
            ("InvalidLaunchTemplateName.NotFoundException", NotFound),
            ("InvalidLaunchTemplateName.AlreadyExistsException", Exists),
            ("InvalidParameterValue", Invalid),
            ("ExpiredTokenException", Unauthenticated),
        ] {
            assert_eq!(find(code).map(|row| row.class), Some(class), "{code}");
        }
        assert!(find("SomethingNew").is_none());
    }

    #[test]
    fn error_reference_equals_the_table() {
        let page = include_str!("../../../docs/aws-errors.md");
        let rows: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("| code |")).skip(2).collect();
        let table: Vec<String> = CODES
            .iter()
            .map(|row| {
                format!("| `{}` | `{}` | {} | {} |", row.code, row.class.as_str(), row.meaning, row.remedy)
            })
            .collect();
        let wrong: Vec<_> = rows.iter().filter(|row| !table.iter().any(|t| t == **row)).collect();
        let missing: Vec<_> = table.iter().filter(|row| !rows.contains(&row.as_str())).collect();
        assert!(
            wrong.is_empty() && missing.is_empty(),
            "docs/aws-errors.md: {wrong:#?} instead of {missing:#?}"
        );
        assert_eq!(rows, table, "the order of docs/aws-errors.md");
    }

    #[test]
    fn codes_are_unique_and_complete() {
        let mut seen = BTreeSet::new();
        for row in CODES {
            assert!(seen.insert(row.code), "{} is there twice", row.code);
            assert!(!row.meaning.is_empty(), "{}", row.code);
            let self_healing = matches!(row.class, NotFound | Exists | Invalid);
            assert!(!row.remedy.is_empty() || self_healing, "{} has no remedy", row.code);
        }
    }
}
