//! Requests that don't leave the process: the SDK's HTTP client on a [`Transport`].

use std::{fmt::Debug, sync::Arc};

use async_trait::async_trait;
use aws_smithy_runtime_api::client::{
    http::{HttpConnector, HttpConnectorFuture, SharedHttpClient, SharedHttpConnector, http_client_fn},
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
};
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt as _;

/// Carries requests to AWS in place of the network, such as to a simulator on virtual time.
#[async_trait]
pub trait Transport: Debug + Send + Sync {
    /// The response to a request; `None` if the connection breaks before the response is complete.
    async fn send(&self, request: http::Request<Vec<u8>>) -> Option<http::Response<String>>;
}

/// The SDK's client whose connections are `transport`.
pub(crate) fn client(transport: Arc<dyn Transport>) -> SharedHttpClient {
    http_client_fn(move |_, _| SharedHttpConnector::new(Connector(Arc::clone(&transport))))
}

#[derive(Debug)]
struct Connector(Arc<dyn Transport>);

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let transport = Arc::clone(&self.0);
        HttpConnectorFuture::new(async move {
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(ConnectorError::user)?.to_bytes().to_vec();
            let response = transport.send(http::Request::from_parts(head, body)).await;
            let response = response.ok_or_else(|| ConnectorError::io("the connection broke".into()))?;
            HttpResponse::try_from(response.map(SdkBody::from))
                .map_err(|error| ConnectorError::other(error.into(), None))
        })
    }
}
