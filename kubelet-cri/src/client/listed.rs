//! Decodes from a list only the fields that a relist or the stats of a node need.

use prost::Message;
use tonic::GrpcMethod;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use super::CriClient;
use super::request::Request;
use super::response::Response;
use crate::error::Error;
use crate::listed::{ListedContainer, ListedSandbox, ListedStats};
use crate::v1::MAX_MESSAGE_BYTES;

const SERVICE: &str = "runtime.v1.RuntimeService";

/// What is listed, and how.
pub(super) trait Listed: Message + Default + std::fmt::Debug + 'static {
    const METHOD: &'static str;
    const PATH: &'static str;

    /// Whether what is read of it is text.
    fn is_text(&self) -> bool;
}

impl Listed for ListedContainer {
    const METHOD: &'static str = "ListContainers";
    const PATH: &'static str = "/runtime.v1.RuntimeService/ListContainers";

    fn is_text(&self) -> bool {
        self.is_text()
    }
}

impl Listed for ListedSandbox {
    const METHOD: &'static str = "ListPodSandbox";
    const PATH: &'static str = "/runtime.v1.RuntimeService/ListPodSandbox";

    fn is_text(&self) -> bool {
        self.is_text()
    }
}

impl Listed for ListedStats {
    const METHOD: &'static str = "ListContainerStats";
    const PATH: &'static str = "/runtime.v1.RuntimeService/ListContainerStats";

    fn is_text(&self) -> bool {
        self.is_text()
    }
}

/// `ListContainersResponse`, `ListPodSandboxResponse` and `ListContainerStatsResponse` are alike: one field, the first.
#[derive(Clone, PartialEq, Message)]
struct List<T: Listed> {
    #[prost(message, repeated, tag = "1")]
    items: Vec<T>,
}

impl<T: Listed> Response for List<T> {
    fn check(&self) -> Result<(), String> {
        match self.items.iter().position(|item| !item.is_text()) {
            None => Ok(()),
            Some(at) => Err(format!("item {at} of the list has a text that is not UTF-8")),
        }
    }
}

impl CriClient {
    pub(super) async fn listed<Q, T>(&self, call: &'static str, request: Q) -> Result<Vec<T>, Error>
    where
        Q: Request + Message + Send + Sync + 'static,
        T: Listed,
    {
        let channel = self.channel.clone();
        let send = |request| async move {
            let mut grpc = Grpc::new(channel)
                .max_decoding_message_size(MAX_MESSAGE_BYTES)
                .max_encoding_message_size(MAX_MESSAGE_BYTES);
            grpc.ready()
                .await
                .map_err(|error| tonic::Status::from_error(error.into()))?;
            let mut request = tonic::Request::new(request);
            request
                .extensions_mut()
                .insert(GrpcMethod::new(SERVICE, T::METHOD));
            let codec: ProstCodec<Q, List<T>> = ProstCodec::default();
            grpc.unary(request, PathAndQuery::from_static(T::PATH), codec)
                .await
        };
        let list: List<T> = self.unary(call, request, send).await?;
        Ok(list.items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        // The ids of two: field 1 of field 1.
        let answer = |second| [[0x0a, 3, 0x0a, 1, b'a'], [0x0a, 3, 0x0a, 1, second]].concat();
        let containers = |second| List::<ListedContainer>::decode(&*answer(second)).unwrap().check();
        let sandboxes = |second| List::<ListedSandbox>::decode(&*answer(second)).unwrap().check();
        // The id is field 1 of the attributes.
        let stats = |id| {
            List::<ListedStats>::decode(&[0x0a, 5, 0x0a, 3, 0x0a, 1, id][..])
                .unwrap()
                .check()
        };
        assert_eq!((containers(b'b'), sandboxes(b'b')), (Ok(()), Ok(())));
        assert_eq!((stats(b'b').is_ok(), stats(0xff).is_ok()), (true, false));
        let refused = Err("item 1 of the list has a text that is not UTF-8".to_owned());
        assert_eq!((containers(0xff), sandboxes(0xff)), (refused.clone(), refused));
    }
}
