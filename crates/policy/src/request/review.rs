//! AdmissionReview v1, parsed in one pass and borrowed from the request's body. Called by the webhook for every review.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny},
};
use thiserror::Error;

use crate::request::{
    text::{Text, objects},
    view::{Binding, DaemonSet, Namespace, Node, Pod, RoleBinding, Workload, nullable},
};

/// The only supported API version of reviews.
pub const API_VERSION: &str = "admission.k8s.io/v1";

/// Why a body can't be evaluated.
#[derive(Debug, Error)]
pub enum ReviewError {
    /// The body isn't UTF-8.
    #[error("failed to read the AdmissionReview: the body is not UTF-8 (byte {0})")]
    Utf8(usize),
    /// The body isn't JSON, or a field has another type than Kubernetes gives it.
    #[error("failed to read the AdmissionReview: {0}")]
    Json(#[from] serde_json::Error),
    /// The body is another object, or of an unsupported version.
    #[error(
        "failed to read the AdmissionReview: it is {kind} {version}; only AdmissionReview {API_VERSION} is understood"
    )]
    Version {
        /// Its kind.
        kind: String,
        /// Its version.
        version: String,
    },
    /// The request of the review is missing.
    #[error("failed to read the AdmissionReview: request is missing")]
    NoRequest,
    /// The request is about an unsupported version of the kind.
    #[error("failed to read AdmissionReview {uid}: it is about {kind} {version:?}; only v1 is understood")]
    KindVersion {
        /// The request's UID.
        uid: String,
        /// The kind.
        kind: String,
        /// The version.
        version: String,
    },
    /// The object is of another kind than the request says.
    #[error("failed to read AdmissionReview {uid}: request.kind is {kind}, but request.{field} is a {found}")]
    Contradiction {
        /// The request's UID.
        uid: String,
        /// The kind in the request.
        kind: String,
        /// The field with the object.
        field: &'static str,
        /// The kind that the object itself states.
        found: String,
    },
    /// A field is missing that a request of this operation has.
    #[error("failed to read AdmissionReview {uid}: request.{field} is missing")]
    Missing {
        /// The request's UID.
        uid: String,
        /// The field.
        field: &'static str,
    },
}

/// The operation on the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// The object is created.
    Create,
    /// The object is changed.
    Update,
    /// The object is deleted.
    Delete,
    /// A connection to the object is opened, such as exec.
    #[default]
    Connect,
}

impl Operation {
    const ALL: &[&str] = &["CREATE", "UPDATE", "DELETE", "CONNECT"];

    fn parse(text: &str) -> Option<Self> {
        match text {
            "CREATE" => Some(Self::Create),
            "UPDATE" => Some(Self::Update),
            "DELETE" => Some(Self::Delete),
            "CONNECT" => Some(Self::Connect),
            _ => None,
        }
    }
}

/// The kind of the object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A Pod.
    Pod,
    /// An apps DaemonSet.
    DaemonSet,
    /// A Binding.
    Binding,
    /// A Node.
    Node,
    /// A Namespace.
    Namespace,
    /// A RoleBinding, or a ClusterRoleBinding.
    RoleBinding,
    /// Any other workload with a pod template.
    Workload,
    /// Any other kind: allowed, unchanged.
    #[default]
    Other,
}

impl Kind {
    /// The kind of `kind` in the API group `group`.
    #[must_use]
    pub fn parse(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Pod") => Self::Pod,
            ("", "Binding") => Self::Binding,
            ("", "Node") => Self::Node,
            ("", "Namespace") => Self::Namespace,
            ("apps", "DaemonSet") => Self::DaemonSet,
            ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => Self::RoleBinding,
            ("apps", "Deployment" | "StatefulSet" | "ReplicaSet")
            | ("batch", "Job" | "CronJob")
            | ("", "ReplicationController" | "PodTemplate") => Self::Workload,
            _ => Self::Other,
        }
    }
}

/// The object of a request.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per request, on the stack; a box would be an allocation each"
)]
pub enum Object<'a> {
    /// A Pod.
    Pod(Pod<'a>),
    /// A DaemonSet.
    DaemonSet(DaemonSet<'a>),
    /// A Binding.
    Binding(Binding<'a>),
    /// A Node.
    Node(Node<'a>),
    /// A Namespace.
    Namespace(Namespace<'a>),
    /// A RoleBinding, or a ClusterRoleBinding.
    RoleBinding(RoleBinding<'a>),
    /// Another workload with a pod template.
    Workload(Workload<'a>),
    /// An object that isn't parsed.
    Other,
}

impl Object<'_> {
    /// The kind that the object itself states; empty if it states none, or isn't parsed.
    fn kind(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.kind,
            Self::DaemonSet(daemonset) => &daemonset.kind,
            Self::Binding(binding) => &binding.kind,
            Self::Node(node) => &node.kind,
            Self::Namespace(namespace) => &namespace.kind,
            Self::RoleBinding(binding) => &binding.kind,
            Self::Workload(workload) => &workload.kind,
            Self::Other => "",
        }
    }
}

/// The user of the request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(remote = "Self")]
pub struct User<'a> {
    /// The user's name.
    #[serde(borrow, default)]
    pub username: Text<'a>,
    /// The user's groups.
    #[serde(borrow, default, deserialize_with = "nullable")]
    pub groups: Vec<Text<'a>>,
}

/// The request of a review.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// Its UID, which the response repeats.
    pub uid: Text<'a>,
    /// The kind of its object.
    pub kind: Kind,
    /// The kind as it is spelled.
    pub kind_name: Text<'a>,
    /// The version of the kind.
    pub kind_version: Text<'a>,
    /// The subresource; empty for the object itself.
    pub subresource: Text<'a>,
    /// The object's name; empty if the API server will generate it.
    pub name: Text<'a>,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Text<'a>,
    /// The operation.
    pub operation: Operation,
    /// The user.
    pub user: User<'a>,
    /// The object after the operation.
    pub object: Option<Object<'a>>,
    /// The object before the operation.
    pub old_object: Option<Object<'a>>,
}

/// Parses an AdmissionReview. The text of the request borrows from `body`.
///
/// ```
/// use croft_policy::review::{self, Operation};
///
/// let body = br#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
///     "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "a",
///     "operation": "CREATE", "userInfo": {"username": "jane"}, "object": {"spec": {}}}}"#;
/// assert_eq!(review::parse(body)?.operation, Operation::Create);
/// assert!(review::parse(b"{}").is_err());
/// # Ok::<(), review::ReviewError>(())
/// ```
///
/// # Errors
/// If the body isn't an AdmissionReview v1, a field that is used has another type, or one is missing.
pub fn parse(body: &[u8]) -> Result<Request<'_>, ReviewError> {
    // Checked once for the whole body, so that ignored fields are UTF-8 too and strings need no check of their own.
    let text = std::str::from_utf8(body).map_err(|e| ReviewError::Utf8(e.valid_up_to()))?;
    let mut request = Request::default();
    let mut envelope = read(text, None, &mut request)?;
    if envelope.late {
        // The API server writes the kind first. A request that has it later costs a second pass.
        let kind = std::mem::take(&mut request).kind;
        envelope = read(text, Some(kind), &mut request)?;
    }
    if envelope.kind != "AdmissionReview" || envelope.api_version != API_VERSION {
        return Err(ReviewError::Version {
            kind: envelope.kind.to_string(),
            version: envelope.api_version.to_string(),
        });
    }
    if !envelope.has_request {
        return Err(ReviewError::NoRequest);
    }
    let missing = |field| Err(ReviewError::Missing { uid: request.uid.to_string(), field });
    if request.uid.is_empty() {
        return missing("uid");
    }
    if request.kind_name.is_empty() {
        return missing("kind");
    }
    if request.kind == Kind::Other {
        return Ok(request);
    }
    if request.kind_version != "v1" {
        return Err(ReviewError::KindVersion {
            uid: request.uid.to_string(),
            kind: request.kind_name.to_string(),
            version: request.kind_version.to_string(),
        });
    }
    if request.user.username.is_empty() {
        return missing("userInfo.username");
    }
    if matches!(request.operation, Operation::Create | Operation::Update) && request.object.is_none() {
        return missing("object");
    }
    if request.operation == Operation::Update && request.old_object.is_none() {
        return missing("oldObject");
    }
    let is_in_none =
        matches!(request.kind, Kind::Node | Kind::Namespace) || request.kind_name == "ClusterRoleBinding";
    if request.namespace.is_empty() && !is_in_none {
        return missing("namespace");
    }
    for (field, object) in [("object", &request.object), ("oldObject", &request.old_object)] {
        let Some(object) = object else { continue };
        let found = object.kind();
        if !found.is_empty() && found != request.kind_name.as_str() {
            return Err(ReviewError::Contradiction {
                uid: request.uid.to_string(),
                kind: request.kind_name.to_string(),
                field,
                found: found.to_owned(),
            });
        }
        // The API server itself refuses a ReplicationController without a template later.
        if let Object::Workload(workload) = object
            && workload.template().is_none()
            && request.kind_name != "ReplicationController"
        {
            return missing(if field == "object" {
                "object's pod template"
            } else {
                "oldObject's pod template"
            });
        }
    }
    Ok(request)
}

/// Parses into `request` in place: the request is large, and every return would copy it.
fn read<'a>(
    text: &'a str,
    known: Option<Kind>,
    request: &mut Request<'a>,
) -> Result<Envelope<'a>, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let envelope = EnvelopeSeed { known, request }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(envelope)
}

#[derive(Default)]
struct Envelope<'a> {
    kind: Text<'a>,
    api_version: Text<'a>,
    has_request: bool,
    /// True if an object was skipped because its kind came after it.
    late: bool,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum EnvelopeField {
    Kind,
    ApiVersion,
    Request,
    #[serde(other)]
    Ignored,
}

struct EnvelopeSeed<'r, 'de> {
    known: Option<Kind>,
    request: &'r mut Request<'de>,
}

impl<'de> DeserializeSeed<'de> for EnvelopeSeed<'_, 'de> {
    type Value = Envelope<'de>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Envelope<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> de::Visitor<'de> for EnvelopeSeed<'_, 'de> {
    type Value = Envelope<'de>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an AdmissionReview")
    }
    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        let (mut kind, mut version, mut request) = (false, false, false);
        while let Some(field) = map.next_key()? {
            match field {
                EnvelopeField::Kind => envelope.kind = once(&mut kind, "kind", map.next_value()?)?,
                EnvelopeField::ApiVersion => {
                    envelope.api_version = once(&mut version, "apiVersion", map.next_value()?)?;
                }
                EnvelopeField::Request => {
                    once(&mut request, "request", ())?;
                    let seed = RequestSeed { known: self.known, request: self.request };
                    if let Some(late) = map.next_value_seed(Nullable(seed))? {
                        (envelope.has_request, envelope.late) = (true, late);
                    }
                }
                EnvelopeField::Ignored => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(envelope)
    }
}

fn once<T, E: de::Error>(seen: &mut bool, field: &'static str, value: T) -> Result<T, E> {
    if std::mem::replace(seen, true) { Err(E::duplicate_field(field)) } else { Ok(value) }
}

/// Accepts null, or what the seed accepts.
struct Nullable<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Nullable<S> {
    type Value = Option<S::Value>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> de::Visitor<'de> for Nullable<S> {
    type Value = Option<S::Value>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }
    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(field_identifier, rename_all = "camelCase")]
enum Field {
    Uid,
    Kind,
    SubResource,
    Name,
    Namespace,
    Operation,
    UserInfo,
    Object,
    OldObject,
    #[serde(other)]
    Ignored,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct GroupKind<'a> {
    #[serde(borrow, default)]
    group: Text<'a>,
    #[serde(borrow, default)]
    version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
}

/// Fills the request. Returns whether an object was skipped.
struct RequestSeed<'r, 'de> {
    known: Option<Kind>,
    request: &'r mut Request<'de>,
}

impl<'de> DeserializeSeed<'de> for RequestSeed<'_, 'de> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> de::Visitor<'de> for RequestSeed<'_, 'de> {
    type Value = bool;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request of an AdmissionReview")
    }
    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let request = self.request;
        let (mut known, mut late, mut seen) = (self.known, false, [false; 9]);
        while let Some(field) = map.next_key::<Field>()? {
            if let Some(seen) = seen.get_mut(field as usize) {
                once(seen, NAMES.get(field as usize).copied().unwrap_or_default(), ())?;
            }
            match field {
                Field::Uid => request.uid = map.next_value()?,
                Field::Kind => {
                    let GroupKind { group, version, kind } = map.next_value()?;
                    request.kind = Kind::parse(&group, &kind);
                    request.kind_name = kind;
                    request.kind_version = version;
                    known = Some(request.kind);
                }
                Field::SubResource => request.subresource = text(map.next_value()?),
                Field::Name => request.name = text(map.next_value()?),
                Field::Namespace => request.namespace = text(map.next_value()?),
                Field::Operation => {
                    let text: Text<'de> = map.next_value()?;
                    let unknown = || de::Error::unknown_variant(&text, Operation::ALL);
                    request.operation = Operation::parse(&text).ok_or_else(unknown)?;
                }
                Field::UserInfo => request.user = map.next_value::<Option<_>>()?.unwrap_or_default(),
                Field::Object | Field::OldObject => {
                    let Some(kind) = known else {
                        late = true;
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    let object = map.next_value_seed(Nullable(ObjectSeed(kind)))?;
                    match field {
                        Field::Object => request.object = object,
                        _ => request.old_object = object,
                    }
                }
                Field::Ignored => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if seen.get(Field::Operation as usize) != Some(&true) {
            return Err(de::Error::missing_field("request.operation"));
        }
        Ok(late)
    }
}

objects!(User, GroupKind);

const NAMES: [&str; 9] =
    ["uid", "kind", "subResource", "name", "namespace", "operation", "userInfo", "object", "oldObject"];

fn text(value: Option<Text<'_>>) -> Text<'_> {
    value.unwrap_or_default()
}

struct ObjectSeed(Kind);

impl<'de> DeserializeSeed<'de> for ObjectSeed {
    type Value = Object<'de>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object<'de>, D::Error> {
        Ok(match self.0 {
            Kind::Pod => Object::Pod(Deserialize::deserialize(deserializer)?),
            Kind::DaemonSet => Object::DaemonSet(Deserialize::deserialize(deserializer)?),
            Kind::Binding => Object::Binding(Deserialize::deserialize(deserializer)?),
            Kind::Node => Object::Node(Deserialize::deserialize(deserializer)?),
            Kind::Namespace => Object::Namespace(Deserialize::deserialize(deserializer)?),
            Kind::RoleBinding => Object::RoleBinding(Deserialize::deserialize(deserializer)?),
            Kind::Workload => Object::Workload(Deserialize::deserialize(deserializer)?),
            Kind::Other => {
                IgnoredAny::deserialize(deserializer)?;
                Object::Other
            }
        })
    }
}
