//! Objects as the API server stores them: keys and values in etcd.
//!
//! An API server that runs with `--storage-media-type=application/json` writes values that can be read and kept as text,
//! and every API server reads them. So the objects of one control plane can be the start of another, with their uids,
//! times and versions of a schema, which no request to an API server can write.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kube::Client;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::error::Error;

/// Where the API server stores everything, and the first key after it.
const ROOT: (&str, &str) = ("/registry/", "/registry0");
/// Objects of one answer.
const PAGE: usize = 200;

/// An object in etcd.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredObject {
    /// Where the API server looks for it, such as `/registry/croft.dev/tenants/a`.
    pub key: String,
    /// The object, in the version in which it was stored.
    pub value: Value,
}

#[derive(Deserialize)]
struct Range {
    #[serde(default)]
    kvs: Vec<Pair>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct Pair {
    key: String,
    #[serde(default)]
    value: String,
}

/// Every object that is stored as JSON, by key.
pub(crate) async fn read(etcd: &Client) -> Result<Vec<StoredObject>, Error> {
    let (mut from, end) = (ROOT.0.as_bytes().to_vec(), STANDARD.encode(ROOT.1));
    let mut objects = Vec::new();
    loop {
        let asked = json!({"key": STANDARD.encode(&from), "range_end": end, "limit": PAGE});
        let Range { kvs, more } = call(etcd, "/v3/kv/range", &asked).await?;
        for Pair { key, value } in kvs {
            from = decode(&key)?;
            let value = serde_json::from_slice(&decode(&value)?);
            if let (Ok(key), Ok(value)) = (String::from_utf8(from.clone()), value) {
                objects.push(StoredObject { key, value });
            }
        }
        if !more {
            return Ok(objects);
        }
        // The key after the last one.
        from.push(0);
    }
}

/// Stores objects, over what is stored under their keys.
pub(crate) async fn write(etcd: &Client, objects: &[StoredObject]) -> Result<(), Error> {
    for StoredObject { key, value } in objects {
        let put = json!({"key": STANDARD.encode(key), "value": STANDARD.encode(value.to_string())});
        call::<Value>(etcd, "/v3/kv/put", &put).await?;
    }
    Ok(())
}

/// A call of etcd's JSON gateway.
async fn call<T: DeserializeOwned>(etcd: &Client, path: &str, body: &Value) -> Result<T, Error> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| failed(path, error))?;
    etcd.request(request).await.map_err(Error::kube(format!("call {path} of etcd")))
}

fn decode(text: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|error| failed("/v3/kv/range", error))
}

fn failed(path: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::io(format!("call {path} of etcd"))(std::io::Error::other(error))
}
