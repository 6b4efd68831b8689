//! Decodes from a list only the fields that a relist or the stats of a node need.

use prost::Message;
use prost::bytes::Bytes;
use tonic::GrpcMethod;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

use super::CriClient;
use super::request::Request;
use super::response::Response;
use crate::error::Error;
use crate::listed::{ListedContainer, ListedSandbox, ListedStats, Malformed};
use crate::v1::MAX_MESSAGE_BYTES;

const SERVICE: &str = "runtime.v1.RuntimeService";

/// What is listed, and how.
pub(super) trait Listed: Sized {
    const METHOD: &'static str;
    const PATH: &'static str;

    /// Reads an item of the list.
    ///
    /// # Errors
    ///
    /// Why it cannot be read: the end of a sentence about it.
    fn read(message: Bytes) -> Result<Self, String>;
}

impl Listed for ListedContainer {
    const METHOD: &'static str = "ListContainers";
    const PATH: &'static str = "/runtime.v1.RuntimeService/ListContainers";

    fn read(message: Bytes) -> Result<Self, String> {
        Self::read(message).map_err(|error| error.to_string())
    }
}

impl Listed for ListedSandbox {
    const METHOD: &'static str = "ListPodSandbox";
    const PATH: &'static str = "/runtime.v1.RuntimeService/ListPodSandbox";

    fn read(message: Bytes) -> Result<Self, String> {
        Self::read(message).map_err(|error| error.to_string())
    }
}

impl Listed for ListedStats {
    const METHOD: &'static str = "ListContainerStats";
    const PATH: &'static str = "/runtime.v1.RuntimeService/ListContainerStats";

    fn read(message: Bytes) -> Result<Self, String> {
        let stats = Self::decode(message).map_err(|error| format!("cannot be decoded: {error}"))?;
        match stats.is_text() {
            true => Ok(stats),
            false => Err(Malformed::Text.to_string()),
        }
    }
}

/// `ListContainersResponse`, `ListPodSandboxResponse` and `ListContainerStatsResponse` are alike: one field, the first. Its items are
/// parts of the answer, and are not copied.
#[derive(Clone, PartialEq, Message)]
struct List {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    items: Vec<Bytes>,
}

impl Response for List {}

impl List {
    fn read<T: Listed>(self) -> Result<Vec<T>, String> {
        let items = self.items.into_iter().enumerate();
        items
            .map(|(at, item)| T::read(item).map_err(|error| format!("item {at} of the list {error}")))
            .collect()
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
            let codec: ProstCodec<Q, List> = ProstCodec::default();
            grpc.unary(request, PathAndQuery::from_static(T::PATH), codec)
                .await
        };
        let list: List = self.unary(call, request, send).await?;
        list.read().map_err(|message| {
            let error = Error::InvalidResponse {
                call,
                id: String::new(),
                message,
            };
            tracing::debug!(%error, "CRI call failed");
            error
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Listed>(answer: &[u8]) -> Result<usize, String> {
        let list = List::decode(answer).unwrap();
        list.read::<T>().map(|items| items.len())
    }

    #[test]
    fn what_is_no_text_is_refused() {
        // The ids of two: field 1 of field 1.
        let answer = |second| [[0x0a, 3, 0x0a, 1, b'a'], [0x0a, 3, 0x0a, 1, second]].concat();
        // The id is field 1 of the attributes, which are field 1.
        let stats = |id| [0x0a, 5, 0x0a, 3, 0x0a, 1, id];
        assert_eq!(read::<ListedContainer>(&answer(b'b')), Ok(2));
        assert_eq!(read::<ListedSandbox>(&answer(b'b')), Ok(2));
        assert_eq!(read::<ListedStats>(&stats(b'b')), Ok(1));
        let refused = Err("item 1 of the list has a text that is not UTF-8".to_owned());
        assert_eq!(read::<ListedContainer>(&answer(0xff)), refused);
        assert_eq!(read::<ListedSandbox>(&answer(0xff)), refused);
        assert!(read::<ListedStats>(&stats(0xff)).is_err());
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        // The id has 2 bytes, and one is there.
        let answer = [0x0a, 3, 0x0a, 2, b'a'];
        let refused = Err("item 0 of the list is cut off".to_owned());
        assert_eq!(read::<ListedContainer>(&answer), refused);
        assert_eq!(read::<ListedSandbox>(&answer), refused);
        assert!(read::<ListedStats>(&answer).is_err());
    }
}
