//! Lists, their filters, and their batches.

use std::collections::BTreeMap;

use futures::stream::{BoxStream, StreamExt, iter};
use kubelet_cri::{Error, v1};
use tokio::time::Instant;

use super::MemoryCri;
use super::container::Container;
use super::sandbox::Sandbox;
use super::store::Store;

/// How many items the `Stream…` calls send in one message.
const BATCH: usize = 100;

impl MemoryCri {
    pub(super) fn list_sandboxes(&self, filter: Option<&v1::PodSandboxFilter>) -> Vec<v1::PodSandbox> {
        let filter = filter.cloned().unwrap_or_default();
        let state = self.settled(Instant::now());
        let wanted = Wanted::of(&state.sandboxes, &filter.id);
        let meant = |number: u64, sandbox: &Sandbox| {
            wanted.is(number) && has_labels(&sandbox.config.labels, &filter.label_selector)
        };
        let messages = state
            .sandboxes
            .iter()
            .filter(|(number, sandbox)| meant(*number, sandbox))
            .map(|(_, sandbox)| sandbox.message());
        messages
            .filter(|sandbox| filter.state.is_none_or(|wanted| wanted.state == sandbox.state))
            .collect()
    }

    pub(super) fn list_of_containers(&self, filter: Option<&v1::ContainerFilter>) -> Vec<v1::Container> {
        let filter = filter.cloned().unwrap_or_default();
        let state = self.settled(Instant::now());
        let wanted = Wanted::of(&state.containers, &filter.id);
        let of = Wanted::of(&state.sandboxes, &filter.pod_sandbox_id);
        let meant = |number: u64, container: &Container| {
            wanted.is(number)
                && of.is(container.sandbox)
                && filter
                    .state
                    .is_none_or(|wanted| wanted.state == container.state() as i32)
                && has_labels(&container.planned.container.labels, &filter.label_selector)
        };
        state
            .containers
            .iter()
            .filter(|(number, container)| meant(*number, container))
            .map(|(_, container)| container.message())
            .collect()
    }
}

/// The item with the id in a filter; a filter without id selects all.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    All,
    One(u64),
    None,
}

impl Wanted {
    pub(super) fn of<T>(store: &Store<T>, id: &str) -> Self {
        match store.find(id) {
            _ if id.is_empty() => Self::All,
            Ok(number) => Self::One(number),
            Err(_) => Self::None,
        }
    }

    pub(super) fn is(self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::One(wanted) => wanted == number,
            Self::None => false,
        }
    }
}

pub(super) fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// A list in batches; an empty list has none.
pub(super) fn batches<T, B>(
    list: Vec<T>,
    message: impl Fn(Vec<T>) -> B + Send + 'static,
) -> BoxStream<'static, Result<B, Error>>
where
    T: Clone + Send + 'static,
    B: Send + 'static,
{
    let batches: Vec<_> = list.chunks(BATCH).map(<[T]>::to_vec).collect();
    iter(batches.into_iter().map(move |batch| Ok(message(batch)))).boxed()
}
