//! Calls whose answer is a stream.

use std::future::Future;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use super::CriClient;
use super::request::Request;
use crate::error::Error;
use crate::v1::{ContainerEventResponse, GetEventsRequest, MAX_MESSAGE_BYTES};

const GET_CONTAINER_EVENTS: &str = "GetContainerEvents";

impl CriClient {
    /// A list in batches. The deadline applies to the whole list.
    pub(super) async fn list_stream<Q, R, F>(
        &self,
        call: &'static str,
        request: Q,
        send: impl FnOnce(Q) -> F + Send,
    ) -> Result<BoxStream<'static, Result<R, Error>>, Error>
    where
        Q: Request + Send,
        R: Send + 'static,
        F: Future<Output = Result<tonic::Response<Streaming<R>>, Status>> + Send,
    {
        let id = request.id();
        let after = self.timeout;
        let deadline = Instant::now() + after;
        let timed_out = move || Error::Timeout {
            call,
            id: String::new(),
            after,
        };
        match timeout_at(deadline, send(request)).await {
            Err(_) => Err(timed_out()),
            Ok(Err(status)) => Err(self.refused(call, id, &status)),
            Ok(Ok(response)) => {
                self.dialer.answered();
                let items = self.items(call, response.into_inner());
                // The stream ends after the first error. The deadline is an error, too.
                Ok(stream::unfold(Some(items), move |items| async move {
                    let mut items = items?;
                    match timeout_at(deadline, items.next()).await {
                        Ok(item) => Some((item?, Some(items))),
                        Err(_) => Some((Err(timed_out()), None)),
                    }
                })
                .boxed())
            }
        }
    }

    /// Streams the events from now on. Returns as soon as the request was sent, because servers that use grpc-go send
    /// nothing before the first event. So an error of the server may come as the first item.
    pub(super) async fn events(
        &self,
        request: GetEventsRequest,
    ) -> Result<BoxStream<'static, Result<ContainerEventResponse, Error>>, Error> {
        let (tell_sent, sent) = oneshot::channel();
        let body = stream::once(async move {
            // The caller may be gone.
            let _ = tell_sent.send(());
            request
        });
        let client = self.clone();
        let mut opening = Box::pin(async move {
            let mut grpc = tonic::client::Grpc::new(client.channel.clone())
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES);
            let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
            let opened = match grpc.ready().await {
                Ok(()) => {
                    grpc.streaming(tonic::Request::new(body), path, ProstCodec::default())
                        .await
                }
                Err(error) => Err(Status::from_error(error.into())),
            };
            match opened {
                Ok(response) => {
                    client.dialer.answered();
                    Ok(client.items(GET_CONTAINER_EVENTS, response.into_inner()))
                }
                Err(status) => Err(client.refused(GET_CONTAINER_EVENTS, String::new(), &status)),
            }
        });
        let opened = tokio::time::timeout(self.timeout, async {
            tokio::select! {
                biased;
                opened = &mut opening => Some(opened),
                _ = sent => None,
            }
        });
        match opened.await {
            Ok(Some(opened)) => opened,
            Ok(None) => Ok(stream::once(opening).map(flatten).flatten().boxed()),
            Err(_) => Err(Error::Timeout {
                call: GET_CONTAINER_EVENTS,
                id: String::new(),
                after: self.timeout,
            }),
        }
    }

    /// The messages of a stream, to its end or first error.
    fn items<R: Send + 'static>(
        &self,
        call: &'static str,
        messages: Streaming<R>,
    ) -> BoxStream<'static, Result<R, Error>> {
        let client = self.clone();
        stream::unfold(Some(messages), move |messages| {
            let client = client.clone();
            async move {
                let mut messages = messages?;
                match messages.message().await {
                    Ok(message) => Some((Ok(message?), Some(messages))),
                    Err(status) => Some((Err(client.refused(call, String::new(), &status)), None)),
                }
            }
        })
        .boxed()
    }
}

/// An error is a stream of one item.
fn flatten<R: Send + 'static>(
    opened: Result<BoxStream<'static, Result<R, Error>>, Error>,
) -> BoxStream<'static, Result<R, Error>> {
    opened.unwrap_or_else(|error| stream::iter([Err(error)]).boxed())
}
