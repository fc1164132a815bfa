//! AdmissionReview responses, written straight into the bytes that are sent. Called by `admit`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;

/// The parts of an answer besides allowed or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// Sentences that the API server shows to the user.
    pub warnings: &'a [String],
    /// Entries of the API server's audit log; each key gets the webhook's name as prefix.
    pub audit: &'a [(&'a str, &'a str)],
}

/// A refusal.
#[derive(Clone, Copy, Debug)]
pub struct Refusal<'a> {
    /// The sentence that the user reads.
    pub message: &'a str,
    /// HTTP code of the API server's answer.
    pub code: u16,
    /// Reason as Kubernetes spells it.
    pub reason: &'a str,
    /// Seconds after which a client should retry; client-go does so by itself.
    pub retry_after_seconds: Option<u32>,
}

impl<'a> Refusal<'a> {
    /// A refusal by a rule.
    #[must_use]
    pub const fn forbidden(message: &'a str) -> Self {
        Self { message, code: 403, reason: "Forbidden", retry_after_seconds: None }
    }

    /// A refusal for the moment.
    #[must_use]
    pub const fn unavailable(message: &'a str, retry_after_seconds: u32) -> Self {
        Self {
            message,
            code: 503,
            reason: "ServiceUnavailable",
            retry_after_seconds: Some(retry_after_seconds),
        }
    }
}

/// An answer that allows, with the operations of `patch` (a JSON array), if any.
#[must_use]
pub fn allow(uid: &str, patch: Option<&str>, extras: Extras<'_>) -> Bytes {
    // base64 writes 4 bytes for 3; the envelope and a UID have about 200 bytes.
    let mut writer = Writer::open(uid, true, 256 + patch.map_or(0, |patch| patch.len() / 3 * 4 + 64));
    if let Some(patch) = patch {
        writer.raw(",\"patchType\":\"JSONPatch\",\"patch\":\"");
        STANDARD.encode_string(patch, &mut writer.text);
        writer.raw("\"");
    }
    writer.close(extras)
}

/// An answer that refuses.
#[must_use]
pub fn deny(uid: &str, refusal: Refusal<'_>, extras: Extras<'_>) -> Bytes {
    let mut writer = Writer::open(uid, false, 384 + refusal.message.len());
    writer.raw(",\"status\":{\"status\":\"Failure\",\"code\":");
    writer.raw(&refusal.code.to_string());
    writer.raw(",\"reason\":");
    writer.string(refusal.reason);
    writer.raw(",\"message\":");
    writer.string(refusal.message);
    if let Some(seconds) = refusal.retry_after_seconds {
        writer.raw(",\"details\":{\"retryAfterSeconds\":");
        writer.raw(&seconds.to_string());
        writer.raw("}");
    }
    writer.raw("}");
    writer.close(extras)
}

struct Writer {
    text: String,
}

impl Writer {
    fn open(uid: &str, allowed: bool, capacity: usize) -> Self {
        let mut writer = Self { text: String::with_capacity(capacity) };
        writer.raw(
            "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"response\":{\"uid\":",
        );
        writer.string(uid);
        writer.raw(if allowed { ",\"allowed\":true" } else { ",\"allowed\":false" });
        writer
    }

    fn raw(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn string(&mut self, text: &str) {
        croft_policy::patch::string(&mut self.text, text);
    }

    fn close(mut self, extras: Extras<'_>) -> Bytes {
        for (index, warning) in extras.warnings.iter().enumerate() {
            self.raw(if index == 0 { ",\"warnings\":[" } else { "," });
            self.string(warning);
        }
        if !extras.warnings.is_empty() {
            self.raw("]");
        }
        for (index, (key, value)) in extras.audit.iter().enumerate() {
            self.raw(if index == 0 { ",\"auditAnnotations\":{" } else { "," });
            self.string(key);
            self.raw(":");
            self.string(value);
        }
        if !extras.audit.is_empty() {
            self.raw("}");
        }
        self.raw("}}");
        Bytes::from(self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

    #[test]
    fn answer_has_every_part_where_kubernetes_reads_it() {
        let warnings = ["a \"quoted\" one".to_owned(), "two\nlines".to_owned()];
        let extras = Extras { warnings: &warnings, audit: &[("tenant", "a"), ("rule", "pin")] };
        let patch = r#"[{"op":"add","path":"/spec/nodeSelector","value":{"k":"v"}}]"#;
        let bytes = allow(UID, Some(patch), extras);
        assert_eq!(
            serde_json::from_slice::<Value>(&bytes).unwrap(),
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
                "uid": UID, "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch),
                "warnings": warnings, "auditAnnotations": {"tenant": "a", "rule": "pin"}}})
        );
    }

    #[test]
    fn refusal_has_code_reason_and_retry_after() {
        let bytes = deny(UID, Refusal::unavailable("not yet", 1), Extras::default());
        assert_eq!(
            serde_json::from_slice::<Value>(&bytes).unwrap(),
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
                "uid": UID, "allowed": false,
                "status": {"status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": "not yet",
                    "details": {"retryAfterSeconds": 1}}}})
        );
        let bytes = deny("", Refusal::forbidden("no"), Extras::default());
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["response"]["status"]["code"], 403);
    }

    #[test]
    fn empty_parts_are_left_out() {
        let bytes = allow("u", None, Extras::default());
        assert_eq!(
            bytes,
            r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u","allowed":true}}"#
        );
    }
}
